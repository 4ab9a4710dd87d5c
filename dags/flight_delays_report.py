"""Prints the carrier table once a run of the application ``flight-delays`` is finished.

Trigger it with the run id of a ``flight_delays_hourly`` run, or with ``latest`` for whatever was finished
last.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_kstreams.hooks.kafka import DEFAULT_KAFKA_CONN_ID, KafkaHook
from airflow_kstreams.sensors.run_finished import RunFinishedSensor

_HEADER = ("carrier", "flights", "cancelled", "mean delay, min", "worst delay, min")

with DAG(
    dag_id="flight_delays_report",
    description="The carrier table of a finished run",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=5)},
    params={
        "run_id": Param(
            "latest",
            type="string",
            minLength=1,
            description="run of flight_delays_hourly to wait for, or latest",
        )
    },
    tags=["kafka"],
    doc_md=__doc__,
) as dag:

    @task
    def print_carrier_table(run: dict[str, Any]) -> int:
        """Print the table to the task's log and return the number of carriers."""
        import msgspec

        from airflow_kstreams.hooks.reports import last_values

        values = last_values(KafkaHook(DEFAULT_KAFKA_CONN_ID).cluster(), "carrier-delays")
        print(f"After run {run['run_id']}: {run['records_in']} records in, {run['records_out']} records out")
        print("{:>8} {:>9} {:>10} {:>16} {:>17}".format(*_HEADER))
        for carrier, value in sorted(values.items()):
            row = msgspec.json.decode(value)
            mean, worst = row["mean_delay_minutes"], row["worst_delay_minutes"]
            print(
                f"{carrier.decode():>8} {row['flights']:>9,} {row['cancelled']:>10,} "
                f"{'-' if mean is None else f'{mean:.2f}':>16} {'-' if worst is None else worst:>17}"
            )
        return len(values)

    finished = RunFinishedSensor(
        task_id="wait_for_run",
        application_id="flight-delays",
        run_id="{{ '' if params.run_id == 'latest' else params.run_id }}",
        deferrable=True,
        poke_interval=5,
        timeout=3600,
    )
    print_carrier_table(finished.output)  # type: ignore[arg-type]  # Airflow hands over what it stands for
