"""Starts one Kafka broker on this machine, for trying things out: its jars, and its process.

``dev/kafka`` and the tests start theirs with the same code. It needs Java, and pyspark for the Ivy that it
ships.
"""
