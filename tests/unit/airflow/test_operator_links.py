from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_kstreams.hooks.operator_links import SparkLink
from airflow_kstreams.operators.incremental_batch import incremental_batch
from tests.support.airflow.serialized_dags import DagSerialization

_KEY: Any = SimpleNamespace(dag_id="orders", run_id="one")


def _link(driver: str) -> str:
    operator: Any = SimpleNamespace(spark_driver=driver)
    return SparkLink().get_link(operator, ti_key=_KEY)


def test_tasks_get_their_links_when_airflow_serializes_them() -> None:
    with DAG("orders", schedule=None) as dag:
        incremental_batch(application_id="orders", application="/apps/orders.py")
    tasks = DagSerialization.to_dict(dag)["dag"]["tasks"]
    links = {
        task["__var"]["task_id"].partition(".")[2]: task["__var"]["_operator_extra_links"] for task in tasks
    }

    kafka = {"Kafka run": "_link_KafkaRunLink"}
    assert links == {
        "capture_stop_offsets": kafka,
        "run_topology": {**kafka, "Spark": "_link_SparkLink"},
        "finish_run": kafka,
    }


@pytest.mark.parametrize(
    ("address", "driver", "link"),
    [
        ("", "application_1", ""),
        ("https://history.example/", "", "https://history.example/"),
        (
            "https://history.example/history/{driver}",
            "application_1",
            "https://history.example/history/application_1",
        ),
        ("https://history.example/history/{driver}", "a/../b", "https://history.example/history/a%2F..%2Fb"),
        ("https://history.example/history/{driver}", "", ""),
        ("javascript:alert(1)", "application_1", ""),
    ],
)
def test_spark_link_is_the_deployments_address(
    monkeypatch: pytest.MonkeyPatch, address: str, driver: str, link: str
) -> None:
    monkeypatch.setenv("AIRFLOW__KSTREAMS__SPARK_URL", address)

    assert _link(driver) == link


def test_driver_has_no_name_before_spark_was_started() -> None:
    with DAG("orders", schedule=None) as dag:
        incremental_batch(application_id="orders", application="/apps/orders.py")

    task: Any = dag.get_task("incremental_batch.run_topology")
    assert task.spark_driver == ""
