"""Connects operators, sensors and triggers to Kafka and Spark, and turns errors and results into Airflow's.

Operators, sensors, triggers and decorators call it. It may import ``airflow``, ``kafka``, ``batch``,
``launch`` and ``streams``, never ``spark`` or ``pyspark``. Runs belong to ``batch``; a hook
only connects, and converts results and errors for Airflow.
"""

from __future__ import annotations

from airflow_kstreams.launch.installation import require_airflow

require_airflow(what=__name__)
