"""Airflow's environment, before any test module imports Airflow, and what its tests share."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import TESTS
from tests.integration.airflow.word_totals import WordTotals
from tests.support.airflow.airflow_environment import EXAMPLE_DAGS, TEST_DAGS, prepare
from tests.support.airflow.task_log import unbroken
from tests.support.spark.gated_scene import scene

__all__ = ["scene"]

HOME = prepare()
_ROOT = TESTS.parent
_logical_dates = iter(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=n) for n in range(10_000))


@dataclass(frozen=True, slots=True, kw_only=True)
class DagRunOutcome:
    """What became of a dag run.

    :param run_id: of the dag run.
    :param state: ``success`` or ``failed``.
    :param tasks: task id -> state.
    :param tries: task id -> number of tries.
    :param results: task id -> what it left in XCom.
    :param errors: (task id, exception) of every failed try.
    """

    run_id: str
    state: str
    tasks: dict[str, str]
    tries: dict[str, int]
    results: dict[str, Any]
    errors: list[tuple[str, BaseException]]

    def error_text(self) -> str:
        """The texts of all errors."""
        return "\n".join(unbroken(str(error)) for _, error in self.errors)


@pytest.fixture(scope="session")
def airflow_database() -> Path:
    """Airflow's home, as ``dev/setup`` makes one; ``airflow-empty.db`` stays without history."""
    shutil.copy(_ROOT / ".airflow" / "airflow.cfg", HOME)
    for name in ("airflow.db", "airflow-empty.db"):
        shutil.copy(_ROOT / ".setup" / "airflow-empty.db", HOME / name)
    return HOME


@pytest.fixture(scope="session")
def dag_module(airflow_database: Path) -> ModuleType:
    """The test DAGs, loaded once."""
    return _loaded(TEST_DAGS / "increments.py")


@pytest.fixture(scope="session")
def example_dag(airflow_database: Path) -> Callable[[str], Any]:
    """An example DAG by its id, which names its file; None if there is none."""

    @cache
    def example(dag_id: str) -> Any:
        file = EXAMPLE_DAGS / f"{dag_id}.py"
        return _loaded(file).dag if file.exists() else None

    return example


def _loaded(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"kstreams_test_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def connections(kafka: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``connections(**client_settings)`` defines kafka_default; done once with the session's broker."""

    def define(**client_settings: str) -> None:
        extra = {"bootstrap.servers": kafka, **client_settings}
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": extra}))

    define()
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2,4]"}))
    return define


@pytest.fixture
def run_dag(
    dag_module: ModuleType, example_dag: Callable[[str], Any], connections: Callable[..., None]
) -> Iterator[Callable[..., DagRunOutcome]]:
    """``run_dag("increments", conf, again=None)`` runs a DAG with ``dag.test()``, as a new dag run: one for
    tests, or an example.

    With ``again`` that dag run is cleared and run once more.
    """
    dates: dict[str, datetime] = {}

    def run(name: str, conf: dict[str, Any], *, again: DagRunOutcome | None = None) -> DagRunOutcome:
        logical_date = next(_logical_dates) if again is None else dates[again.run_id]
        dag_module.failures.clear()
        dag = example_dag(name) or getattr(dag_module, name)
        # Airflow makes the run's id from run_after, so the same date gives the same dag run, cleared.
        dag_run = dag.test(run_after=logical_date, logical_date=logical_date, run_conf=conf)
        outcome = _outcome(dag_run, list(dag_module.failures))
        dates[outcome.run_id] = logical_date
        return outcome

    yield run
    dag_module.failures.clear()


def _outcome(dag_run: Any, errors: list[tuple[str, BaseException]]) -> DagRunOutcome:
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    with create_session() as session:
        instances = dag_run.get_task_instances(session=session)
        results = {
            row.task_id: XComModel.deserialize_value(row)
            for row in session.query(XComModel).filter_by(dag_id=dag_run.dag_id, run_id=dag_run.run_id)
            if row.key == "return_value"
        }
        return DagRunOutcome(
            run_id=dag_run.run_id,
            state=str(dag_run.state),
            tasks={instance.task_id: str(instance.state) for instance in instances},
            tries={instance.task_id: instance.try_number for instance in instances},
            results=results,
            errors=errors,
        )


@pytest.fixture
def words(
    tmp_path: Path,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    produce: Callable[..., None],
) -> WordTotals:
    """A stateful application with topics of its own."""
    return WordTotals(
        tmp_path,
        application_id=application_id,
        source=create_topic(topic_name("words"), 3),
        sink=create_topic(topic_name("totals"), 2),
        produce=produce,
    )
