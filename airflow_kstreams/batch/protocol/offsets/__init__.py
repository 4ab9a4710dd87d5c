"""The text beside committed offsets: a task's progress, its report, its figures, and what it has parked.

Written by ``task``, read by ``run``, ``report`` and ``inspect``. Imports ``streams`` only.
"""
