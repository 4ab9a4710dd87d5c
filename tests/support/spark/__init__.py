"""Drivers in processes, gates that hold them, slots without Spark, a Spark cluster, and a watch for leaks.

Tests in ``integration/spark``, ``integration/airflow`` and ``faults`` take them; see
``tests/support/README.md``. May import the product and ``kafka`` beside it. What needs no process of
Spark's belongs elsewhere.
"""
