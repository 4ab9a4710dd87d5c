"""A stateless application over the flights, to be backfilled by several runs at the same moment."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG, CronDataIntervalTimetable

from airflow_kstreams.operators.incremental_batch import incremental_batch

with DAG(
    dag_id="flights_copied",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    # The schedule itself has nothing to do any more.
    end_date=datetime(2013, 1, 31, tzinfo=UTC),
    catchup=False,
    # It holds for the schedule's own runs; each backfill has a limit of its own.
    max_active_runs=1,
    default_args={"retries": 0},
) as dag:
    incremental_batch(
        group_id="batch",
        application_id="flights-copied",
        application=str(Path(__file__).resolve().parents[3] / "applications" / "meeting_flights.py"),
        settings={"processing.guarantee": "exactly_once"},
        conf={"spark.ui.enabled": "false", "spark.driver.memory": "512m"},
        backfill_outputs={"flights-live": "flights-copied"},
    )
