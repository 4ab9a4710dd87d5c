"""Starts and runs an application continuously: its tasks take turns until the lease says stop.

Called by the driver and the task host in ``spark``. Imports ``run`` for the start, ``task`` for the tasks,
``ledger`` and ``protocol``. Only what differs from a batch is here: the start, the work and the end of a
task, and the turns of a thread.
"""
