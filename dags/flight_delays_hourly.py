"""Every hour: departure delays per carrier, from the flights that have arrived in Kafka since the last run.

Needs the connections ``kafka_default`` and ``spark_default`` (host ``local[2,4]`` for a local Spark: two
slots, four attempts of each task). Where ``FLIGHT_TABLES`` is set, the application writes tables as well, and
the connection ``flight_tables`` says where they are.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG

from airflow_kstreams.operators.incremental_batch import incremental_batch

with DAG(
    dag_id="flight_delays_hourly",
    description="Departure delays per carrier from what arrived since the last run, exactly once",
    schedule="@hourly",
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=5)},
    tags=["kafka", "spark"],
    doc_md=__doc__,
) as dag:
    incremental_batch(
        group_id="flight_delays",
        application_id="flight-delays",
        application=str(Path(__file__).resolve().parents[1] / "spark_apps" / "flight_delays.py"),
        settings={"processing.guarantee": "exactly_once"},
        tables_conn_id="flight_tables" if os.environ.get("FLIGHT_TABLES") else None,
    )
