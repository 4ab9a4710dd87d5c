"""The operators as Airflow's scheduler and templates see them."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException
from airflow.serialization.serialized_objects import DagSerialization

from airflow_kstreams.operators.capture_stop_offsets import CaptureStopOffsetsOperator
from airflow_kstreams.operators.finish_run import FinishRunOperator
from airflow_kstreams.operators.incremental_batch import incremental_batch
from airflow_kstreams.operators.run_topology import RunTopologyOperator
from airflow_kstreams.sensors.run_finished import RunFinishedSensor


def _operators(**arguments: Any) -> list[BaseOperator]:
    common = {"application_id": "app", **arguments}
    return [
        CaptureStopOffsetsOperator(task_id="capture", application="app.py", **common),
        RunTopologyOperator(task_id="run", application="app.py", **common),
        FinishRunOperator(task_id="finish", **common),
    ]


@pytest.mark.parametrize("index", range(3))
def test_user_facing_fields_are_templates_when_rendered(index: int) -> None:
    with DAG(dag_id="d", schedule=None):
        operator = _operators(
            application_id="{{ app }}",
            kafka_conn_id="{{ conn }}",
            settings={"commit.interval.ms": "{{ ms }}"},
        )[index]

    operator.render_template_fields(Context(app="mine", conn="k", ms=7))  # type: ignore[typeddict-unknown-key]

    assert operator.application_id == "mine"  # type: ignore[attr-defined]
    assert operator.kafka_conn_id == "k"  # type: ignore[attr-defined]
    assert operator.settings == {"commit.interval.ms": "7"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("index", range(3))
def test_operator_fails_for_good_and_says_how_to_run_it_when_there_is_no_dag_run(index: int) -> None:
    with pytest.raises(AirflowFailException, match=r"without a dag run"):
        _operators()[index].execute(Context())


def test_run_operator_keeps_the_providers_templates_when_it_adds_its_own() -> None:
    own = set(RunTopologyOperator.template_fields)

    assert own >= set(SparkSubmitOperator.template_fields) - {"application_args"}
    assert own >= {"application_id", "settings", "kafka_conn_id"}


def test_run_operator_refuses_application_args_when_given() -> None:
    with pytest.raises(TypeError, match="application_args"):
        RunTopologyOperator(task_id="run", application_id="a", application="a.py", application_args=["x"])


def test_run_operator_takes_the_providers_parameters_when_given() -> None:
    operator = RunTopologyOperator(
        task_id="run", application_id="app", application="a.py", conf={"spark.x": "y"}, executor_memory="3g"
    )

    assert operator.name == "app"
    assert operator.conf == {"spark.x": "y"}
    assert operator._executor_memory == "3g"


def test_kill_does_nothing_when_spark_was_not_submitted() -> None:
    operator = RunTopologyOperator(
        task_id="run", application_id="app", application="a.py", spark_conn_id="nowhere"
    )

    operator.on_kill()

    assert operator._hook is None


def _dag() -> DAG:
    with DAG(dag_id="d", schedule=None, default_args={"retries": 2}) as dag:
        batch = incremental_batch(
            group_id="batch",
            application_id="app",
            application="app.py",
            settings={"processing.guarantee": "exactly_once"},
            conf={"spark.x": "y"},
        )
        batch >> RunFinishedSensor(task_id="wait", application_id="app", deferrable=True)
    return dag


def test_task_group_lays_out_capture_run_finish_when_used_in_a_dag() -> None:
    tasks = _dag().task_dict

    assert {name: sorted(task.downstream_task_ids) for name, task in tasks.items()} == {
        "batch.capture_stop_offsets": ["batch.run_topology"],
        "batch.run_topology": ["batch.finish_run"],
        "batch.finish_run": ["wait"],
        "wait": [],
    }
    assert {task.retries for task in tasks.values()} == {2}
    assert tasks["batch.run_topology"].conf == {"spark.x": "y"}  # type: ignore[union-attr]


def test_dag_is_the_same_when_airflow_serialized_it() -> None:
    serialized = DagSerialization.serialize_dag(_dag())
    again = DagSerialization.deserialize_dag(serialized)

    assert sorted(again.task_dict) == sorted(_dag().task_dict)
    settings = getattr(again.task_dict["batch.run_topology"], "settings", None)
    assert settings == {"processing.guarantee": "exactly_once"}
