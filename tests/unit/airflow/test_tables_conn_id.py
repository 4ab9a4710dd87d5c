"""A connection that says where tables are reaches the tasks of a run, and its secrets nothing else."""

from __future__ import annotations

import json
import runpy
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, BaseOperator, Connection, Context
from pyiceberg.catalog import load_catalog

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.hooks import tables_connection as tables_hook
from airflow_kstreams.hooks.airflow_versions import AirflowFailException
from airflow_kstreams.hooks.kafka import KafkaHook
from airflow_kstreams.hooks.tables_connection import settings_of, tables_settings
from airflow_kstreams.kafka.configuration.config_file import read_client_config
from airflow_kstreams.operators.incremental_batch import incremental_batch
from airflow_kstreams.operators.reset_application import ResetApplicationOperator
from airflow_kstreams.operators.work.run_state import FoundRun
from airflow_kstreams.streams import DeltaTable, IcebergTable, KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.tables.connections import OpenedTables, open_tables, parted
from airflow_kstreams.tables.parquet.opening import rows_opener
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.airflow.airflow_environment import add_connection
from tests.support.airflow.loaded_here import load_here
from tests.support.fresh_python import ROOT
from tests.support.kafka.in_process import Application
from tests.support.remedies import walked
from tests.support.tables.duckdb_reader import delta_rows, iceberg_rows

APP, CANARY = "app", "canary-of-storage"


@dataclass
class Line:
    text: str


def topology(folder: Path) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string())
    lines = builder.stream("in", value_serde=serdes.json(Line))
    lines.send_to_table(IcebergTable("lake.lines", row=Line))
    lines.send_to_table(DeltaTable(str(folder / "lines"), row=Line))
    return builder.build()


@dataclass
class Dag:
    """A DAG whose tasks work on a Kafka in memory, and on tables in a folder; Spark's task runs here."""

    folder: Path
    kafka: InMemoryKafka
    clock: ManualClock
    drivers: list[dict[str, str]] = field(default_factory=list)

    def tasks(self, tables_conn_id: str | None) -> list[Any]:
        with DAG(dag_id="d", schedule=None) as dag:
            incremental_batch(
                group_id="g",
                application_id=APP,
                application="app.py",
                settings={"processing.guarantee": "exactly_once"},
                tables_conn_id=tables_conn_id,
            )
        return [dag.get_task(f"g.{name}") for name in ("capture_stop_offsets", "run_topology", "finish_run")]

    def execute(self, operator: BaseOperator, run_id: str) -> Any:
        instance = SimpleNamespace(dag_id="d", task_id=operator.task_id, try_number=1, map_index=-1)
        run = SimpleNamespace(run_id=run_id, clear_number=0, data_interval_start=None, data_interval_end=None)
        return operator.execute(cast("Context", {"ti": instance, "dag_run": run}))

    def drive(self, config: dict[str, str], run_id: str) -> None:
        """Do what a driver does that reads these settings."""
        self.drivers.append(config)
        tables = open_tables(parted(config)[1])
        app = Application(
            application_id=APP,
            topology=topology(self.folder),
            on=self.kafka,
            clock=self.clock,
            tables=tables,
            open_rows=rows_opener(tables),
        )
        with closing(app.coordinator()) as coordinator:
            slice_ = app.begin(run_id, coordinator=coordinator)
            for sub in slice_.plan.topology.subtopologies:
                for share in coordinator.unfinished(slice_, sub.id):
                    app.launched(slice_, share)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    extra = {
        "iceberg.type": "sql",
        "iceberg.uri": f"sqlite:///{tmp_path}/catalog.db",
        "iceberg.warehouse": f"file://{tmp_path}/warehouse",
        "iceberg.s3.secret-access-key": CANARY,
    }
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "generic", "extra": extra}))
    return extra


@pytest.fixture
def dag(tmp_path: Path, lake: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Dag:
    clock = ManualClock(now_ms=1_700_000_000_000)
    made = Dag(tmp_path, InMemoryKafka(clock=clock), clock)
    made.kafka.create_topic("in")
    monkeypatch.setattr(KafkaHook, "cluster", lambda *_, **__: made.kafka)
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: clock.now_ms())
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", "kafka://in-memory:9092")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
    load_here(monkeypatch, lambda *_: topology(tmp_path).plan(APP))

    def submit(operator: Any, context: Context) -> None:
        config = read_client_config(operator.env_vars["KSTREAMS_KAFKA_CONFIG_FILE"])
        assert CANARY not in str((operator.application_args, operator.env_vars, operator.conf))
        made.drive(config, cast("Any", context)["dag_run"].run_id)

    monkeypatch.setattr(SparkSubmitOperator, "execute", submit)
    return made


def test_runs_land_in_tables_once_and_show_no_secret_of_the_connection(
    dag: Dag, lake: dict[str, str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    masked: list[str] = []
    monkeypatch.setattr(tables_hook, "mask_secret", masked.append)
    results = []
    for run_id, text in (("r1", "one"), ("r2", "two"), ("r3", None)):
        if text is not None:
            dag.kafka.append("in", json.dumps({"text": text}).encode(), b"k")
        results += [dag.execute(task, run_id) for task in dag.tasks("lake")]

    table = load_catalog("default", **{name.removeprefix("iceberg."): text for name, text in lake.items()})
    found = table.load_table("lake.lines")
    query = "SELECT text FROM {table} ORDER BY text"
    assert iceberg_rows(found.metadata_location.removeprefix("file://"), query) == [("one",), ("two",)]
    assert delta_rows(str(dag.folder / "lines"), query) == [("one",), ("two",)]
    assert len(found.metadata.snapshots) == 2, "a run with nothing new makes none"
    assert dag.drivers == [{"bootstrap.servers": "in-memory:9092", **lake}] * 2
    assert set(masked) >= {CANARY}
    kept = [dag.kafka.values(topic) for topic in dag.kafka.topics()]
    assert CANARY not in f"{results} {caplog.text} {kept} {dag.drivers}"


@pytest.mark.remedy("connections.OpenedTables.check")
def test_run_does_not_begin_before_it_is_said_where_tables_are(dag: Dag) -> None:
    dag.kafka.append("in", b'{"text": "one"}', b"k")
    for task in dag.tasks(None)[:1]:
        with pytest.raises(AirflowFailException, match=r"lake\.lines.* not said where its catalogue is"):
            dag.execute(task, "r1")
    assert FoundRun.read(cast("Any", dag.kafka), APP, "r1").slice is None
    assert dag.execute(dag.tasks("lake")[0], "r1")["record_span"] == 1


def test_no_spark_is_started_for_the_landing_when_each_subtopology_has_a_task_of_its_own(dag: Dag) -> None:
    with DAG(dag_id="parts", schedule=None) as parts:
        incremental_batch(group_id="g", application_id=APP, application="app.py", per_subtopology=True)
    assert list(parts.task_ids) == ["g.capture_stop_offsets", "g.run_subtopology_0", "g.finish_run"]


@pytest.mark.parametrize(("folder", "conn_id"), [("/lake", "flight_tables"), ("", "")])
def test_hourly_example_asks_for_the_connection_when_it_writes_tables(
    folder: str, conn_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLIGHT_TABLES", folder)
    example = runpy.run_path(str(ROOT / "dags" / "flight_delays_hourly.py"))["dag"]
    assert [task.tables_conn_id for task in example.tasks] == [conn_id] * 3


def test_task_that_resets_opens_the_tables_of_the_connection(
    dag: Dag, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def opening(conn_id: str) -> OpenedTables:
        opened.append(conn_id)
        return open_tables({})

    monkeypatch.setattr("airflow_kstreams.operators.reset_application.opened_tables", opening)
    with pytest.raises(AirflowFailException):
        dag.execute(ResetApplicationOperator(task_id="t", application_id="app", tables_conn_id="lake"), "r")
    assert opened == ["lake"]


@pytest.mark.remedy("tables_connection.tables_settings")
def test_connection_is_found_that_was_added_by_the_command_of_the_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match="connection 'nowhere' is not defined") as raised:
        tables_settings("nowhere")
    add_connection(raised.value.fix, monkeypatch)
    assert dict(tables_settings("nowhere"))["iceberg.type"] == "rest"


@pytest.mark.parametrize(
    "fault",
    [
        walked("tables_connection.settings_of: write it as", '{"iceberg.token": "hush-hush"'),
        walked("tables_connection.settings_of: write it as", '["hush-hush"]'),
        '{"iceberg.token": "hush-hush", "token": "hush-hush"}',
        '{"iceberg.token": {"hush-hush": 1}}',
    ],
)
def test_connection_is_refused_without_its_secrets_when_its_extra_says_nothing_of_tables(
    fault: str,
) -> None:
    def of(extra: str) -> Any:
        return settings_of(Connection(conn_id="lake", conn_type="generic", extra=extra, password="hush-hush"))

    with pytest.raises(ConfigError, match="connection 'lake': ") as raised:
        of(fault)
    assert "hush-hush" not in str(raised.value)
    told = '{"iceberg.type": "rest", "iceberg.uri": "https://HOST"}'
    assert dict(of(told)) == json.loads(told)
    assert dict(of("")) == {}
