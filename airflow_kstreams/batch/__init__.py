"""Implements KIP-95, incremental batch: begins a run, freezes its stop offsets, runs its tasks, finishes it.

Rooms, each importing only those after it: ``continuous`` - ``inspect`` - ``report`` - ``expand``, ``replay``,
``reset`` - ``run``, ``task`` (which do not import each other) - ``metrics`` - ``growing`` - ``ledger`` -
``protocol``. All of them stand on the ports of ``streams``; no Kafka client, Spark or Airflow here. Beside
the rooms, ``clock`` is the machine's clock, ``retry_budget`` counts attempts, ``evidence`` compares metadata
topic, ledger and committed offsets, and ``invariants`` checks each commit right before it is made.
"""
