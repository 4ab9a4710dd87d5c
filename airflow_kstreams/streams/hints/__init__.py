"""Answers to wrong calls: checks of functions, names of Kafka Streams, the line that made a node.

Called by the DSL, ``processor`` and ``topology``. Imports errors and the modules at the top of ``streams``.
"""
