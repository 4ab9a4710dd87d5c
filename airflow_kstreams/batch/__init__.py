"""KIP-95, incremental batch: what a run is, where it stops, when it is finished.

Rooms, each importing only those after it: ``continuous`` - ``inspect`` - ``report`` - ``expand``, ``replay``,
``reset`` - ``run``, ``task`` (which do not import each other) - ``metrics`` - ``moving`` - ``ledger`` -
``protocol``. All of them stand on the ports of ``streams``; no Kafka client, Spark or Airflow here. Beside
the rooms: the machine's clock, how often something is attempted again, and whether metadata topic, ledger and
committed offsets agree (``evidence``, which stands between ``ledger`` and those above it).
"""
