"""Runs the calls of asynchronous nodes: on an event loop, on threads. Knows no record queue, store or writer.

Called by ``runtime``, which gives the calls and takes their results. Imports ``graph`` and ``records``. The
way of a record between its calls belongs to ``runtime``.
"""
