"""DAGs for tests: application, its file and its topics come with the dag run's conf."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Context

from airflow_kstreams.operators.incremental_batch import incremental_batch
from airflow_kstreams.sensors.run_finished import RunFinishedSensor

#: What tasks failed with, in order: the tests run these DAGs in their own process.
failures: list[tuple[str, BaseException]] = []


def remember(context: Context) -> None:
    """Keep a failure for the test to look at."""
    error = context["exception"]
    failures.append(
        (context["ti"].task_id, error if isinstance(error, BaseException) else RuntimeError(error))
    )


_DEFAULTS: dict[str, Any] = {
    "retries": 0,
    "retry_delay": timedelta(seconds=1),
    "on_failure_callback": remember,
    "on_retry_callback": remember,
}
_APPLICATION = "{{ dag_run.conf['application_id'] }}"
_CONF = {"spark.ui.enabled": "false", "spark.driver.memory": "512m"}


def _batch(**settings: Any) -> None:
    incremental_batch(
        group_id="batch",
        application_id=_APPLICATION,
        application="{{ dag_run.conf['application'] }}",
        settings={"processing.guarantee": "exactly_once", "client.timeout.ms": 5_000, **settings},
        conf=_CONF,
    )


with DAG(dag_id="increments", schedule=None, default_args=_DEFAULTS) as increments:
    _batch()

with DAG(
    dag_id="increments_retried", schedule=None, default_args={**_DEFAULTS, "retries": 2}
) as increments_retried:
    _batch()

with DAG(
    dag_id="increments_misspelt", schedule=None, default_args={**_DEFAULTS, "retries": 2}
) as increments_misspelt:
    _batch(**{"commit.intervall.ms": 1_000})

with DAG(dag_id="wait_here", schedule=None, default_args=_DEFAULTS) as wait_here:
    RunFinishedSensor(
        task_id="wait",
        application_id=_APPLICATION,
        run_id="{{ dag_run.conf['run_id'] }}",
        poke_interval=0.2,
        timeout=2,
    )

with DAG(dag_id="wait_deferred", schedule=None, default_args=_DEFAULTS) as wait_deferred:
    RunFinishedSensor(
        task_id="wait",
        application_id=_APPLICATION,
        run_id="{{ dag_run.conf['run_id'] }}",
        poke_interval=0.2,
        timeout=2,
        deferrable=True,
    )
