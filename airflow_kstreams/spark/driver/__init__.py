"""The driver of a run: session, one Spark job per subtopology or slot, and their reports.

Called by application files through ``airflow_kstreams.spark.run``. Imports ``executor``, whose hosts it
ships, and ``batch``, ``kafka``, ``launch``. ``batch`` makes all decisions; code that runs on executors is in
``executor``.
"""
