"""Partitions: those of keys and of topics, and the groups of them that tasks read.

Called by ``topology``, ``kstream``, ``runtime``, the in-memory Kafka and ``batch``. Imports the modules at
the top of ``streams`` only. Pure arithmetic on names and numbers: only ``linear_hash_partitioner.py`` asks a
cluster, through a producer that it is given.

Producers of a topic that grows import from here :class:`LinearHashPartitioner`, :func:`partition_of_key` and
:func:`processor_of_partition`.
"""

from airflow_kstreams.streams.partitioning.linear_hash_partitioner import LinearHashPartitioner
from airflow_kstreams.streams.partitioning.linear_hashing import partition_of_key, processor_of_partition

__all__ = ["LinearHashPartitioner", "partition_of_key", "processor_of_partition"]
