"""What operators, sensors and triggers share: connections to Kafka and Spark, outcomes of errors,
results of runs.
"""

from __future__ import annotations

from airflow_kstreams.streams.extras import require

require("airflow", "airflow.sdk", what=__name__)
