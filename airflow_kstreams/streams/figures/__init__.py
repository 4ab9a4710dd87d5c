"""Defines what a task counts and times: records by topic and node, calls, latencies.

Filled by ``runtime`` and ``calls``; carried beside offsets by ``batch``. Values only.
"""
