"""Which partition a record belongs to, how many partitions a topic has, and which of them a task reads
together.

Called by ``topology``, ``kstream``, ``runtime``, the in-memory Kafka and ``batch``. Imports the modules at
the top of ``streams`` only. Pure arithmetic on names and numbers: nothing here asks a cluster, but for
``linear_hash_partitioner.py``, through a producer that it is given.

What producers of a topic that grows need stands at this door: :class:`LinearHashPartitioner`,
:func:`partition_of_key` and :func:`processor_of_partition`.
"""

from airflow_kstreams.streams.partitioning.linear_hash_partitioner import LinearHashPartitioner
from airflow_kstreams.streams.partitioning.linear_hashing import partition_of_key, processor_of_partition

__all__ = ["LinearHashPartitioner", "partition_of_key", "processor_of_partition"]
