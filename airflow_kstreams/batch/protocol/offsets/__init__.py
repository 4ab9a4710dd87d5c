"""Defines the text beside committed offsets: a task's progress, report, figures and parked records.

Written by ``task``, read by ``run``, ``report`` and ``inspect``. Imports ``streams`` only.
"""
