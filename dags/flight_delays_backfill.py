"""Backfills the departure delays day by day, beside ``flight_delays_hourly``.

The totals per carrier are state, so the days are processed in order, by this DAG of their own. They begin
empty and are written to ``carrier-delays-backfilled``, which must exist. Unpause the DAG, then::

    airflow backfill create --dag-id flight_delays_backfill --from-date 2013-01-01 --to-date 2013-01-07
        --reprocess-behavior failed --dag-run-conf '{"backfill": "first-week"}'

The airlines' names are dated 1 January 2013: a backfill that begins later does not see them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow_kstreams.operators.backfill_dag import backfill_dag

dag = backfill_dag(
    "flight_delays_backfill",
    application_id="flight-delays",
    application=str(Path(__file__).resolve().parents[1] / "spark_apps" / "flight_delays.py"),
    schedule="@daily",
    outputs={"carrier-delays": "carrier-delays-backfilled"},
    settings={"processing.guarantee": "exactly_once"},
    group_id="flight_delays",
    dag_arguments={
        "description": "Departure delays per carrier of past days, apart from the live totals",
        "start_date": datetime(2013, 1, 1, tzinfo=UTC),
        "default_args": {"retry_delay": timedelta(seconds=5)},
        "tags": ["kafka", "spark"],
        "doc_md": __doc__,
    },
)
