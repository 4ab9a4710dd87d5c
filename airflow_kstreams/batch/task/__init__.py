"""Runs one task: attempt, restore, loop with its end, commit (KIP-129).

Called by the hosts that ``spark`` runs on executors, and by ``continuous``. Imports ``invariants``,
``metrics``, ``ledger``, ``protocol`` and ``streams``, never ``run``: a task decides nothing about runs. Its
driver ships it what there is to do (:class:`~airflow_kstreams.batch.protocol.slice.stops.TaskShare`).
Beside its records and changelogs a task reads the committed offsets and, for the lease, the last records of
the ledger. It does not read the metadata topic.
"""
