"""Starts other processes: JVM options, the file of client settings, the run spec, ends of processes.

Called by the Airflow side (``hooks``, ``operators``), by ``spark`` and by ``cli``: Airflow and Spark meet
here and never import each other. Imports ``streams.errors`` and ``streams.plan`` only; what imports
pyspark or Airflow does not belong here.
"""
