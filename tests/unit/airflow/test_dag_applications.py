from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_kstreams.operators.incremental_batch import CaptureStopOffsetsOperator, incremental_batch
from airflow_kstreams.operators.run_topology import RunTopologyOperator
from airflow_kstreams.pages.dag_applications import KafkaTask, kafka_tasks
from airflow_kstreams.pages.kept_runs import figures_in
from airflow_kstreams.sensors.new_data import NewDataSensor
from tests.support.airflow.serialized_dags import DagSerialization

_FILE = "/apps/orders.py"


class OrdersOperator(CaptureStopOffsetsOperator):
    """A user's own."""


def tasks_of(dag: DAG) -> dict[str, KafkaTask]:
    return {task.task_id: task for task in kafka_tasks(DagSerialization.to_dict(dag))}


def test_tasks_name_their_application_when_a_run_is_laid_out() -> None:
    with DAG("orders", schedule=None) as dag:
        incremental_batch(
            application_id="orders",
            application=_FILE,
            kafka_conn_id="kafka_of_orders",
            settings={"suspicion.quiet": 3, "output.topics": "{{ params.outputs }}"},
        )
    found = tasks_of(dag)

    assert [name.partition(".")[2] for name in found] == [
        "capture_stop_offsets",
        "run_topology",
        "finish_run",
    ]
    assert {(task.application_id, task.kafka_conn_id) for task in found.values()} == {
        ("orders", "kafka_of_orders")
    }
    assert all(task.settings == {"suspicion.quiet": 3} and task.is_complete for task in found.values())


def test_task_is_found_when_its_operator_is_a_users_own() -> None:
    with DAG("orders", schedule=None) as dag:
        OrdersOperator(task_id="own", application_id="orders", application=_FILE)

    assert tasks_of(dag)["own"].application_id == "orders"


def test_task_that_only_waits_for_an_application_names_none() -> None:
    with DAG("after", schedule=None) as dag:
        NewDataSensor(task_id="wait", application_id="orders")

    assert tasks_of(dag) == {}


@pytest.mark.parametrize("application_id", ["{{ params.app }}", "orders-{% if ds %}a{% endif %}", "a{# b #}"])
def test_application_is_left_open_when_its_id_is_a_template(application_id: str) -> None:
    with DAG("orders", schedule=None) as dag:
        incremental_batch(application_id=application_id, application=_FILE)

    assert {task.application_id for task in tasks_of(dag).values()} == {None}


def test_application_is_left_open_when_it_differs_by_map_index() -> None:
    with DAG("orders", schedule=None) as dag:
        RunTopologyOperator.partial(task_id="mapped", application=_FILE).expand(application_id=["a", "b"])
        RunTopologyOperator.partial(task_id="one", application=_FILE, application_id="orders").expand(
            settings=[{"autostop.at": "eol"}]
        )
    found = tasks_of(dag)

    assert found["mapped"].application_id is None
    assert (found["one"].application_id, found["one"].kafka_conn_id) == ("orders", "kafka_default")


def test_document_of_another_shape_names_no_application() -> None:
    documents: tuple[dict[str, Any], ...] = (
        {},
        {"dag": {}},
        {"dag": {"tasks": [{}, {"__var": {"_task_module": None}}]}},
    )
    assert [list(kafka_tasks(document)) for document in documents] == [[], [], []]


@pytest.mark.promise("pages-show-no-values")
@pytest.mark.parametrize(
    "value",
    [
        {"run_id": "one", "application_id": "orders", "records_in": 3, "password": "secret"},
        '{"run_id": "one", "application_id": "orders", "records_in": 3, "password": "secret"}',
    ],
)
def test_figures_are_those_of_a_result_alone(value: Any) -> None:
    assert figures_in(value) == {"run_id": "one", "application_id": "orders", "records_in": 3}


@pytest.mark.promise("pages-show-no-values")
@pytest.mark.parametrize("value", [None, "secret", "[1, 2]", ["secret"], {"secret": 1}, {"run_id": "one"}, 3])
def test_result_of_another_kind_has_no_figures(value: Any) -> None:
    assert figures_in(value) == {}
