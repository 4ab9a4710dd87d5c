"""Answers wrong calls: checks functions, knows the names of Kafka Streams, finds the line that made a node.

Called by the DSL, ``processor`` and ``topology``. Imports errors and the modules at the top of ``streams``.
"""
