"""What doctor finds of an application's DAG, in a real Airflow's database."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams.batch.inspect.doctor import Finding, Level
from airflow_kstreams.inspect.surroundings import airflow_checks
from tests.support.airflow.airflow_environment import add_connection
from tests.support.remedies import walked

DAG = """
from datetime import timedelta
from airflow.sdk import DAG
from airflow_kstreams.operators.run_topology import RunTopologyOperator

with DAG("shop", schedule=None, default_args={{"retries": {retries}}}, is_paused_upon_creation={paused}):
    RunTopologyOperator(
        task_id="run", application_id="{application_id}", application="shop.py", kafka_conn_id="kafka_shop"
    )
"""
KAFKA = '{"conn_type": "kafka", "extra": {"bootstrap.servers": "kafka:9092"}}'


@pytest.fixture
def store(airflow_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``store(retries=1, paused=False, application_id="shop")`` lets Airflow store a DAG."""
    monkeypatch.setenv("AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL", "0")
    # Compiled code is taken for that of a file of the same second and size.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    def stored(*, retries: int = 1, paused: bool = False, application_id: str = "shop") -> None:
        file = tmp_path / "shop_dag.py"
        file.write_text(DAG.format(retries=retries, paused=paused, application_id=application_id))
        DagBundlesManager().sync_bundles_to_db()  # type: ignore[no-untyped-call]
        bag = DagBag(dag_folder=str(file))
        assert bag.import_errors == {}
        sync_bag_to_db(bag, "tests", None)
        with create_session() as session:
            session.get_one(DagModel, "shop").is_paused = paused

    return stored


def looked(*, seconds: float = 60.0) -> list[Finding]:
    return list(airflow_checks.look_at_airflow("shop", os.environ, seconds=seconds))


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Ask the Airflow of this process: another one takes seconds to start."""
    from airflow_kstreams.hooks import print_dags

    def ask(_: str, application_id: str, **__: Any) -> Any:
        print_dags.main(application_id)
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    monkeypatch.setattr(airflow_checks, "ask", ask)


FAULTS = [
    walked("airflow_checks._judged: look for", {"application_id": "other"}, {}, "dag-missing"),
    walked("airflow_checks._judged: airflow dags unpause {}", {"paused": True}, {}, "dag-paused"),
    walked("airflow_checks._judged: give the DAG", {"retries": 0}, {"retries": 3}, "tasks-without-retries"),
]


@pytest.mark.promise("doctor-finds-what-surrounds")
@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(("fault", "mended", "code"), FAULTS)
def test_fault_of_a_dag_is_found_alone_until_it_is_mended(
    store: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    fault: dict[str, Any],
    mended: dict[str, Any],
    code: str,
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_SHOP", KAFKA)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
    store(**fault)
    (found,) = looked()
    assert (found.level, found.code) == (Level.WARNING, code)
    store(**mended)
    (well,) = looked()
    assert (well.level, well.text) == (
        Level.OK,
        "DAGs of the application: shop; their connections can be used: kafka_shop, spark_default",
    )


@pytest.mark.remedy("print_dags._no_spark")
def test_connections_are_found_wanting_until_they_are_added_as_it_says(
    store: Callable[..., None], monkeypatch: pytest.MonkeyPatch, in_this_process: None
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_KAFKA_SHOP", raising=False)
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT", raising=False)
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session

    with create_session() as session:
        session.query(Connection).filter_by(conn_id="spark_default").delete()
    store()
    faults = looked()
    assert [(each.level, each.code) for each in faults] == [(Level.ERROR, "connection-unfit")] * 2
    for each in faults:
        add_connection(
            each.fix.replace("HOST:PORT", "kafka:9092").replace("--conn-port 7077", ""), monkeypatch
        )
    assert [each.level for each in looked()] == [Level.OK]


def test_airflow_is_asked_in_a_process_of_its_own(store: Callable[..., None], tmp_path: Path) -> None:
    store()
    assert all("could not be asked" not in each.text for each in looked())
    database = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
    elsewhere = {name: each for name, each in os.environ.items() if name != database}
    environment = {**elsewhere, "AIRFLOW_HOME": str(tmp_path)}
    (unseen,) = airflow_checks.look_at_airflow("shop", environment, seconds=60.0)
    assert (unseen.level, "is installed and not set up here" in unseen.text) == (Level.UNSEEN, True)
