"""Runs after finished runs of the application ``flight-delays``; prints each run once.

It watches the run ledger in Kafka, so it needs no DAG to announce anything. An event only wakes it: what
is new it reads from the ledger itself, with a cursor of its own. So an event that comes twice prints nothing
again, and one that Airflow holds back until the next delays no run.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Asset, AssetWatcher, task
from airflow.sdk.exceptions import AirflowSkipException

from airflow_kstreams.hooks.kafka import DEFAULT_KAFKA_CONN_ID, KafkaHook
from airflow_kstreams.triggers.finished_run_watch import FinishedRunsTrigger

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
    # One at a time, because they share a cursor.
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=5)},
    tags=["kafka"],
    doc_md=__doc__,
) as dag:

    @task
    def tell_new_runs() -> list[str]:
        """Print what is new, and return its run ids."""
        from airflow_kstreams.hooks.reports import new_runs

        cluster = KafkaHook(DEFAULT_KAFKA_CONN_ID).cluster()
        with new_runs(cluster, "flight-delays", name="flight_delays_printed") as runs:
            if not runs:
                raise AirflowSkipException("Every finished run was told before")
            for run in runs:
                print(f"Run {run.run_id}: {run.records_in} records in, {run.records_out} out")
                for part in run.inputs:
                    print(f"  {part.topic_partition} [{part.start_offset}, {part.stop_offset})")
            return [run.run_id for run in runs]

    tell_new_runs()
