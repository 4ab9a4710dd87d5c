"""Which partition a record belongs to, how many partitions a topic has, and which of them a task reads
together.

Called by ``topology``, ``kstream``, ``runtime``, the in-memory Kafka and ``batch``. Imports the modules at
the top of ``streams`` only. Pure arithmetic on names and numbers: nothing here asks a cluster.
"""
