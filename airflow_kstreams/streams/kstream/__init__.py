"""The DSL: streams, grouped streams and tables, compiled to a topology.

Users call ``builder``, ``kstream``, ``grouped`` and ``ktable``, through ``airflow_kstreams.streams``. The
modules that those import turn a call into nodes, and ``operators`` holds the work of a node. Imports
``graph``, ``topology``, ``processor`` and the modules at the top of ``streams``. Nothing is bound or run
here.
"""
