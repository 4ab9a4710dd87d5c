"""What one run reads, and the records of the metadata topic that say so: the slice, its stop offsets, each
task's share, and the fold of the log into a state of the run.

Written by ``run`` and by tasks' done notifications; read by everything above. Imports ``logs`` beside it and
``streams``. Which offsets are frozen is decided in ``run/begin``.
"""
