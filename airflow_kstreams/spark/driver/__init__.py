"""The driver of a run: session, one Spark job per subtopology or slot, and what comes back.

Called by application files through ``airflow_kstreams.spark.run``. Imports ``executor``, whose hosts it
ships, and ``batch``, ``kafka``, ``launch``. Everything that decides is in ``batch``; what runs on executors
is in ``executor``.
"""
