"""The README's Python is what it says it is: an application, a DAG and a test, which work together."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_kstreams.streams.topology.loader import load_topology
from tests.support.airflow import airflow_environment
from tests.support.topology.examples import write_project

_ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder that holds the README's files."""
    return write_project((_ROOT / "README.md").read_text(encoding="utf-8"), tmp_path)


def test_application_plans_its_topics_when_copied_from_the_readme(project: Path) -> None:
    plan = load_topology(project / "spark_apps" / "orders.py").plan("orders")

    assert (plan.inputs, plan.outputs) == (("orders",), ("customer-totals",))


def test_dag_has_the_three_steps_when_copied_from_the_readme(project: Path) -> None:
    airflow_environment.prepare()
    from airflow.models import DagBag  # by this name in every release from 3.1 on

    bag = DagBag(str(project / "dags"))

    assert bag.import_errors == {}
    steps = ["capture_stop_offsets", "run_topology", "finish_run"]
    assert {dag_id: dag.task_ids for dag_id, dag in bag.dags.items()} == {
        "orders_hourly": [f"incremental_batch.{step}" for step in steps]
    }
