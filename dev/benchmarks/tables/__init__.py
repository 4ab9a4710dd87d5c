"""Lines of ``dev/bench`` about tables of a lakehouse: what they run, and what they read back.

``dev/bench`` calls these modules where a workload's name begins with ``table-``. What runs on Spark stands in
``table_topologies``, and ``dev.benchmarks.spark_host`` runs it. What needs no Spark runs in processes of its
own (``table_host``): a finish, a library's bare commit, commits to a table with a long history, a task.
"""
