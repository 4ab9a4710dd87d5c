"""Defines the records of the metadata topic that describe what one run reads: the slice, its stop offsets,
each task's share, and the fold of the log into a state of the run.

Written by ``run`` and by tasks' done notifications; read by everything above. Imports ``logs`` beside it and
``streams``. ``run/begin`` decides which offsets are frozen.
"""
