"""DAGs for tests: application, its file and its topics come with the dag run's conf."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Asset, Context, task

from airflow_kstreams.operators.incremental_batch import incremental_batch
from airflow_kstreams.operators.replay_dead_letters import ReplayDeadLettersOperator
from airflow_kstreams.operators.reset_application import ResetApplicationOperator
from airflow_kstreams.sensors.condition_sensor import ConditionSensor
from airflow_kstreams.sensors.new_data import NewDataSensor
from airflow_kstreams.sensors.run_finished import RunFinishedSensor
from airflow_kstreams.sensors.stop_offsets_reached import StopOffsetsReachedSensor

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


def _batch(
    outlets: Sequence[Asset] = (), per_subtopology: Sequence[int] | bool = False, /, **settings: Any
) -> None:
    incremental_batch(
        outlets=outlets,
        group_id="batch",
        application_id=_APPLICATION,
        application="{{ dag_run.conf['application'] }}",
        settings={"processing.guarantee": "exactly_once", "client.timeout.ms": 2_000, **settings},
        conf=_CONF,
        per_subtopology=per_subtopology,
    )


#: Updated by every finished run of ``increments``.
TOTALS = Asset("kstreams_test_totals")

with DAG(dag_id="increments", schedule=None, default_args=_DEFAULTS) as increments:
    _batch([TOTALS])

with DAG(
    dag_id="increments_retried", schedule=None, default_args={**_DEFAULTS, "retries": 2}
) as increments_retried:
    _batch()

with DAG(
    dag_id="increments_in_parts", schedule=None, default_args={**_DEFAULTS, "retries": 2}
) as increments_in_parts:
    _batch((), [0, 1])

with DAG(
    dag_id="increments_misspelt", schedule=None, default_args={**_DEFAULTS, "retries": 2}
) as increments_misspelt:
    _batch(**{"commit.intervall.ms": 1_000})

#: Its settings come with the dag run, too.
with DAG(dag_id="increments_mended", schedule=None, default_args=_DEFAULTS) as increments_mended:
    incremental_batch(
        group_id="batch",
        application_id=_APPLICATION,
        application="{{ dag_run.conf['application'] }}",
        settings="{{ dag_run.conf['settings'] | tojson }}",
        conf=_CONF,
    )

#: Everything that could tell a secret is on: Spark's pages, its event log, the client's own debug lines.
with DAG(dag_id="increments_watched", schedule=None, default_args=_DEFAULTS) as increments_watched:
    incremental_batch(
        group_id="batch",
        application_id=_APPLICATION,
        application="{{ dag_run.conf['application'] }}",
        kafka_conn_id="kafka_secured",
        settings={"processing.guarantee": "exactly_once", "client.timeout.ms": 10_000},
        conf={
            "spark.driver.memory": "512m",
            "spark.ui.port": "{{ dag_run.conf['ui_port'] }}",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": "{{ dag_run.conf['folder'] }}",
        },
    )

with DAG(
    dag_id="inline",
    schedule=None,
    default_args=_DEFAULTS,
    params={"words": 2},
    render_template_as_native_obj=True,
) as inline:

    @task.kstreams(application_id=_APPLICATION, settings={"processing.guarantee": "exactly_once"}, conf=_CONF)
    def upper_case(source, sink, run_id, params):  # type: ignore[no-untyped-def]
        """Copy a topic in upper case."""
        from airflow_kstreams.streams import KStreamBuilder, serdes

        if not isinstance(run_id, str) or params["words"] != 2:
            raise ValueError(f"found {run_id!r} and {params!r} in Airflow's context")
        builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        builder.stream(source).map_values(str.upper).send_to(sink)
        return builder.build()

    upper_case("{{ dag_run.conf['source'] }}", sink="{{ dag_run.conf['sink'] }}")  # type: ignore[call-arg]

with DAG(dag_id="gated_inline", schedule=None, default_args=_DEFAULTS) as gated_inline:

    @task.kstreams(
        application_id=_APPLICATION,
        settings={"processing.guarantee": "exactly_once", "commit.interval.ms": 200, "lease.ms": 6_000},
        conf=_CONF,
    )
    def sums():  # type: ignore[no-untyped-def]
        """Sum with gates that the test holds."""
        from tests.applications.gated_sums import topology

        return topology()

    sums()

with DAG(dag_id="reset", schedule=None, default_args=_DEFAULTS) as reset:
    ResetApplicationOperator(
        task_id="reset", application_id=_APPLICATION, input_topics="{{ dag_run.conf['topics'] }}"
    )

with DAG(dag_id="replay", schedule=None, default_args=_DEFAULTS) as replay:
    ReplayDeadLettersOperator(task_id="replay", application_id=_APPLICATION)

_WAITING: dict[str, Any] = {
    "task_id": "wait",
    "application_id": _APPLICATION,
    "poke_interval": 0.2,
    "timeout": 2,
}


def _waiting(name: str, sensor: type[ConditionSensor], **arguments: Any) -> None:
    """Define two DAGs that wait for the same: ``<name>_here`` and ``<name>_deferred``."""
    for mode, deferrable in (("here", False), ("deferred", True)):
        with DAG(dag_id=f"{name}_{mode}", schedule=None, default_args=_DEFAULTS) as dag:
            sensor(**_WAITING, deferrable=deferrable, **arguments)
        globals()[dag.dag_id] = dag


_waiting("wait", RunFinishedSensor, run_id="{{ dag_run.conf['run_id'] }}")
_waiting(
    "wait_again",
    RunFinishedSensor,
    run_id="{{ dag_run.conf['run_id'] }}",
    retries=2,
    retry_delay=timedelta(seconds=0),
)
_waiting(
    "wait_for_interval",
    RunFinishedSensor,
    data_interval_start="{{ dag_run.conf['start'] }}",
    data_interval_end="{{ dag_run.conf['end'] }}",
)
_waiting(
    "wait_for_data",
    NewDataSensor,
    topics="{{ dag_run.conf['topic'] }}",
    min_records="{{ dag_run.conf['min_records'] }}",
)
_waiting(
    "wait_for_stage",
    StopOffsetsReachedSensor,
    subtopology="{{ dag_run.conf['subtopology'] }}",
    run_id="{{ dag_run.conf['run_id'] }}",
)
