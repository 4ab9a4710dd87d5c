"""Which partition a record belongs to, how many partitions a topic has, and which of them a task reads
together.

Called by ``topology``, ``kstream``, ``runtime``, the in-memory Kafka and ``batch``. Imports the modules at
the top of ``streams`` only. Pure arithmetic on names and numbers: nothing here asks a cluster.

What producers of a topic that grows need stands at this door: :func:`partition_of_key` and
:func:`processor_of_partition`.
"""

from airflow_kstreams.streams.partitioning.linear_hashing import partition_of_key, processor_of_partition

__all__ = ["partition_of_key", "processor_of_partition"]
