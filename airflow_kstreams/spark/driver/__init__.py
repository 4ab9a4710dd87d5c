"""The driver of a run: session, one Spark job per subtopology, and what comes back.

Called by application files through ``airflow_kstreams.spark.run``. Imports ``executor``, whose
hosts it ships, and ``batch``, ``kafka``, ``launch``. What runs on executors is in ``executor``.
"""
