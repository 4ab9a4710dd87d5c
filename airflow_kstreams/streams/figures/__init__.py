"""Defines the counts and times of a task: records by topic and node, calls, latencies.

Filled by ``runtime`` and ``calls``; carried beside offsets by ``batch``. Values only, and how durations and
times read (``time_texts``).
"""
