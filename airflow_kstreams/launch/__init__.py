"""Starting other processes: JVM options, the file of client settings, the JSON that says what to
run, ends of processes.

Called by the Airflow side (``hooks``, ``operators``), by ``spark`` and by ``cli``: Airflow and Spark
meet here and never import each other. Imports ``streams.errors`` only; what imports pyspark or Airflow
does not belong here.
"""
