"""Runs after every finished run of the application ``flight-delays``; prints each once.

It watches the run ledger in Kafka, so it needs no DAG to announce anything. A run may be announced twice,
after a crash of the triggerer. This DAG remembers the runs that it has printed, and skips them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, Variable, task
from airflow.sdk.exceptions import AirflowSkipException

from airflow_kstreams.hooks.asset_events import announced_runs
from airflow_kstreams.triggers.finished_runs import FinishedRunsTrigger

_TOLD = "flight_delays_told_runs"
#: A run is announced again soon or never, so the last ones are enough.
_REMEMBERED = 100

_runs = Asset(
    "flight_delays_runs",
    watchers=[
        AssetWatcher(
            name="flight_delays_ledger",
            trigger=FinishedRunsTrigger(
                application_id="flight-delays", name="flight_delays_followed", from_start=True
            ),
        )
    ],
)

with DAG(
    dag_id="flight_delays_followed",
    description="Prints every finished run once, however often it is announced",
    schedule=[_runs],
    catchup=False,
    # One at a time, because each reads what the last one remembered.
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=5)},
    tags=["kafka"],
    doc_md=__doc__,
) as dag:

    @task
    def tell_new_runs(triggering_asset_events: Mapping[Any, Collection[Any]] | None = None) -> list[str]:
        """Print what is new, and return its run ids."""
        told: list[str] = Variable.get(_TOLD, default=[], deserialize_json=True)
        new = [run for run in announced_runs(triggering_asset_events or {}) if run["run_id"] not in told]
        if not new:
            raise AirflowSkipException("Every announced run was told before")
        for run in new:
            print(f"Run {run['run_id']}: {run['records_in']} records in, {run['records_out']} out")
            for topic, partitions in run["offsets"].items():
                print(f"  {topic}: {', '.join(f'{n} [{a}, {b})' for n, (a, b) in partitions.items())}")
        run_ids = [str(run["run_id"]) for run in new]
        Variable.set(_TOLD, [*told, *run_ids][-_REMEMBERED:], serialize_json=True)
        return run_ids

    tell_new_runs()
