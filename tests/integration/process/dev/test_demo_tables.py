"""The demo's tables after runs on Kafka in memory: what the judge and the command ``tables`` say of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.cli.app import app
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from airflow_kstreams.tables.connections import open_tables
from airflow_kstreams.tables.parquet.opening import rows_opener
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from dev.flight_demo import tables_oracle
from dev.flight_demo.data import records, stretches
from dev.flight_demo.increments import APPLICATION_ID
from dev.flight_demo.lake import DELTA, ICEBERG, Lake
from dev.flight_demo.publisher import TOPICS
from dev.flight_demo.tables_check import CHANGES, add_row, words
from tests.support.fresh_python import ROOT
from tests.support.kafka.in_process import Application

DAYS = 3
RUNS = {"increment-1": False, "increment-2": False, "increment-3": False, "nothing-new": True}


@dataclass(frozen=True)
class Demo:
    """What the demo does, without brokers, Airflow and Spark."""

    kafka: InMemoryKafka
    lake: Lake

    def run(self, run_id: str) -> RunSummary:
        opened = open_tables(self.lake.settings)
        return Application(
            application_id=APPLICATION_ID,
            topology=ApplicationFile.read(ROOT / "spark_apps" / "flight_delays.py").topology(),
            on=self.kafka,
            clock=self.kafka.clock,
            tables=opened,
            open_rows=rows_opener(opened),
        ).run(run_id)

    def differences(self, lake: Lake) -> list[str]:
        """What the judge finds wrong."""
        return [line.what for line in tables_oracle.judge(lake, DAYS, RUNS) if not line.is_equal]

    def check(self, lake: Lake, patch: pytest.MonkeyPatch) -> tuple[int, set[str]]:
        """Exit code of the command, and the tables in which it finds differences."""
        patch.setattr("airflow_kstreams.kafka.cluster.KafkaCluster", lambda *_, **__: self.kafka)
        patch.chdir(ROOT)
        for name, value in lake.environment.items():
            patch.setenv(name, value)
        done = CliRunner().invoke(app, [*words(lake, APPLICATION_ID, "in-memory:9092"), "--json"])
        assert done.stderr == ""
        return done.exit_code, {each["table"] for each in json.loads(done.stdout)["differences"]}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """Three increments, and a run with nothing new."""
    lake = Lake.made(tmp_path_factory.mktemp("demo") / "lake")
    done = Demo(InMemoryKafka(clock=ManualClock(now_ms=1_700_000_000_000)), lake)
    for topic in TOPICS:
        done.kafka.create_topic(topic)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in lake.environment.items():
            patch.setenv(name, value)
        for run_id, stretch in zip(RUNS, stretches(DAYS), strict=False):
            for record in records(stretch):
                done.kafka.append(record.topic, record.value, record.key, timestamp_ms=record.timestamp_ms)
            assert not done.run(run_id).empty
        assert done.run("nothing-new").empty
        yield done


def test_tables_have_the_sums_of_the_data_set_and_a_snapshot_for_each_increment(demo: Demo) -> None:
    lines = {line.what: line for line in tables_oracle.judge(demo.lake, DAYS, RUNS)}
    assert {line.is_equal for line in lines.values()} == {True}
    assert lines["flights"].expected > 2_000
    assert lines["snapshots of increment-3"].found == {"Iceberg": 1, "Delta": 1}
    assert lines["snapshots of nothing-new"].found == {"Iceberg": 0, "Delta": 0}


def test_command_finds_nothing_in_a_copy_after_another_one_was_changed(
    demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_row(demo.lake.copy(tmp_path / "changed"))
    assert demo.check(demo.lake.copy(tmp_path / "copy"), monkeypatch) == (0, set())


@pytest.mark.parametrize("state", CHANGES)
def test_judge_and_command_find_what_was_changed_by_hand(
    demo: Demo, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = demo.lake.copy(tmp_path / "lake")
    CHANGES[state](copy)
    assert {"flights", "carriers with another row"} <= set(demo.differences(copy))
    assert demo.check(copy, monkeypatch) == (1, {ICEBERG, DELTA})
