"""Runs the calls of asynchronous nodes: on an event loop, on threads. Knows no record queue, store or writer.

Called by ``runtime``, which says what is called and takes note of what comes back. Imports ``graph`` and
``records``. What a record does between its calls belongs to ``runtime``.
"""
