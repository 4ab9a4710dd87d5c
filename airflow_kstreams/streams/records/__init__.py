"""The records of one task on their way to its nodes: queues, the choice among partitions, timestamps,
stream time, wall-clock timers, the record being processed, and what becomes of one that fails.

Called by ``codegen`` and ``runtime``; ``batch`` reads and writes the partition times. Imports ``graph`` and
the modules at the top of ``streams``. What a node does with a record does not belong here.
"""
