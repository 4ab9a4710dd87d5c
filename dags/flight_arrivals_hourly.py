"""Every hour: the flights that have arrived in Kafka since the last run are announced at their airports.

What an airport that is down did not hear is parked: the run succeeds, and the next one begins with it.

Needs the connections ``kafka_default`` and ``spark_default``, and where Spark runs the service's address in
``AIRPORT_SERVICE_URL`` (``python -m dev.airport_service`` starts one).
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG

from airflow_kstreams.operators.incremental_batch import incremental_batch

with DAG(
    dag_id="flight_arrivals_hourly",
    description="Flights announced at a slow service, each once and in the order of its carrier",
    schedule="@hourly",
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=5)},
    tags=["kafka", "spark"],
    doc_md=__doc__,
) as dag:
    incremental_batch(
        group_id="flight_arrivals",
        application_id="flight-arrivals",
        application=str(Path(__file__).resolve().parents[1] / "spark_apps" / "flight_arrivals.py"),
        settings={"processing.guarantee": "exactly_once", "retry.run.budget.ms": "60000"},
    )
