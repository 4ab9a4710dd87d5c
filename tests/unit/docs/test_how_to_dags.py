"""DAGs and results of the how-to pages: what comes after what, what is skipped, what lies in a database."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams.batch.report.results import result_of_summary
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.airflow import airflow_environment
from tests.support.docs.how_to_pages import follower, values_of
from tests.support.docs.orders_application import GOOD, application, write_orders
from tests.support.docs.snippets import Snippets

# Before the first module of the Airflow side is imported.
airflow_environment.prepare()


def dag_of(code: str) -> Any:
    """Return the one DAG that a file defines; of any type, as its tasks are of many."""
    from airflow.sdk import DAG

    made: list[DAG] = []
    entered = DAG.__enter__

    def entering(dag: DAG) -> Any:
        made.append(dag)
        return entered(dag)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(DAG, "__enter__", entering)
        values_of(code)
    (dag,) = made
    return dag


@pytest.mark.snippets("docs/how-to/chain-applications.md")
def test_dags_have_the_order_that_the_page_on_chaining_says(snippets: Snippets) -> None:
    chained = dag_of(snippets.take("python").code)
    begin_totals = chained.get_task("totals.capture_stop_offsets")
    assert begin_totals.upstream_task_ids == {"clean.finish_run"}
    (asset,) = chained.get_task("totals.finish_run").outlets

    report = dag_of(snippets.take("python").code)
    assert [each.name for each in report.timetable.asset_condition.objects] == [asset.name]
    assert not report.get_task("orders_done").run_id, "the last one"


@pytest.mark.snippets("docs/how-to/skip-when-nothing-is-new.md")
def test_tasks_are_skipped_behind_an_empty_run_when_the_page_is_followed(
    snippets: Snippets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = dag_of(snippets.take("python").code)
    asked = dag.get_task("something_new")
    assert asked.upstream_task_ids == {"incremental_batch.finish_run"}
    assert asked.downstream_task_ids == {"report"}
    assert asked.task_type == "_ShortCircuitDecoratedOperator"

    reader = follower(tmp_path, monkeypatch)
    write_orders(reader)
    reader.append("orders", GOOD, b"1")
    orders = application(reader)
    with_records, empty = (result_of_summary(orders.run(run_id, (0, at))) for at, run_id in enumerate("ab"))
    assert asked.python_callable(with_records) is True
    assert asked.python_callable(empty) is False

    sensor = dag_of(snippets.take("python").code).get_task("enough")
    assert (sensor.soft_fail, sensor.min_records) == (True, 1_000)


@pytest.mark.snippets("docs/how-to/results-into-a-database.md")
def test_rows_are_those_of_the_topic_when_the_page_on_databases_is_followed(
    snippets: Snippets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "totals.db"
    monkeypatch.setenv("DATABASE", str(path))
    file = follower(tmp_path, monkeypatch).write(snippets.take("python").code)
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE totals (customer TEXT PRIMARY KEY, cents INTEGER)")

    totals = [("ann", 250, 0), ("ben", 70, 1), ("ann", 300, 2)]
    for _ in range(2):  # another attempt makes the calls again
        with TopologyTestDriver(ApplicationFile.read(file).topology(), application_id="rows") as driver:
            driver.pipe_records("customer-totals", totals)

    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT customer, cents FROM totals ORDER BY customer").fetchall()
    assert rows == [("ann", 300), ("ben", 70)]


@pytest.mark.snippets("docs/how-to/sizing.md")
def test_arguments_of_the_page_on_sizing_reach_spark(snippets: Snippets) -> None:
    from airflow_kstreams.operators.run_topology import RunTopologyOperator

    named = values_of(snippets.take("python").code)
    assert named["one_machine"] == {"conn_type": "spark", "host": "local[2,4]"}
    made = RunTopologyOperator(
        task_id="run", application_id="orders", application="orders.py", **named["default_args"]
    )
    assert (made._num_executors, made._executor_cores, made._executor_memory) == (3, 1, "2g")
