"""Holds what operators, sensors and triggers share: connections to Kafka and Spark, outcomes of errors,
results.

Operators, sensors, triggers and decorators call it. It may import ``airflow``, ``kafka``, ``batch``,
``launch`` and ``streams``, never ``spark`` or ``pyspark``. What a run does belongs to ``batch``; a hook
only connects, and turns results and errors into what Airflow keeps and does.
"""

from __future__ import annotations

from airflow_kstreams.streams.extras import require

require("airflow", "airflow.sdk", what=__name__)
