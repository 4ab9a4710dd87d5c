"""Continuous runs: where one starts, its coordinator, and tasks that take turns until they are stopped.

Called by the continuous driver and host in ``spark``. Imports ``run``, ``task`` and ``protocol``.
"""
