"""DAGs that tests backfill: the application and its topics come by the environment of the test's process."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Asset, CronDataIntervalTimetable

from airflow_kstreams.operators.backfill_dag import backfill_dag
from airflow_kstreams.operators.incremental_batch import incremental_batch

#: Where the test says what to run; parsed elsewhere, the DAGs are merely well-formed.
VARIABLE = "KSTREAMS_TEST_BACKFILLS"
START = datetime(2020, 1, 1, tzinfo=UTC)

_given: dict[str, Any] = json.loads(os.environ.get(VARIABLE, "{}"))
_APPLICATION: dict[str, Any] = {
    "group_id": "batch",
    "application_id": _given.get("application_id", "app"),
    "application": _given.get("application", "app.py"),
    "conf": {"spark.ui.enabled": "false", "spark.driver.memory": "512m"},
    "settings": {"processing.guarantee": "exactly_once", "autostop.at": "interval_end"},
}
_OUTPUTS: dict[str, str] = _given.get("outputs", {"out": "again"})
_DEFAULTS: dict[str, Any] = {"retries": 0, "retry_delay": timedelta(seconds=1)}

with DAG(
    dag_id="live_and_backfilled",
    schedule=CronDataIntervalTimetable("0 * * * *", timezone="UTC"),
    start_date=START,
    catchup=False,
    max_active_runs=1,
    default_args=_DEFAULTS,
) as live_and_backfilled:
    incremental_batch(**_APPLICATION, backfill_outputs=_OUTPUTS, outlets=[Asset("kstreams_test_live")])

backfilled_in_order = backfill_dag(
    "backfilled_in_order",
    schedule="0 * * * *",
    outputs=_OUTPUTS,
    dag_arguments={"start_date": START, "default_args": _DEFAULTS},
    **_APPLICATION,
)
