"""Wraps confluent-kafka, which no other package imports: clients, settings, schema-registry serdes.

It implements the ports of ``streams/ports.py``. Hooks, the Spark side, ``explore`` and the command line
make a ``KafkaCluster`` here and pass it to ``batch``, which knows the ports alone. It may import
``streams``; what a run does with a topic belongs to ``batch``.
"""
