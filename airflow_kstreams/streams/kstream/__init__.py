"""The DSL: streams, grouped streams and tables, compiled to a topology.

What users call is in ``builder``, ``kstream``, ``grouped`` and ``ktable``; how a call becomes nodes, in the
modules that those import; what a node does, in ``operators``. Called by users, through
``airflow_kstreams.streams``. Imports ``graph``, ``topology``, ``processor`` and the modules at the top of
``streams``. Nothing is bound or run here.
"""
