"""What the command shows of a store, on the in-memory Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_kstreams.streams.topology.application_file import ApplicationFile
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.command_line import json_of
from tests.support.kafka.in_process import Application
from tests.unit.cli.test_app import invoke

if TYPE_CHECKING:
    from typer.testing import Result

FILE = """
from airflow_kstreams.streams import KStreamBuilder, TumblingWindow, serdes

def topology():
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    orders = builder.stream("orders").group_by_key()
    orders.count(store="totals")
    orders.windowed_by(TumblingWindow(size_ms=60_000, grace_ms=1_000_000)).count(store="minutes")
    return builder.build()
"""


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> InMemoryKafka:
    kafka = InMemoryKafka(clock=ManualClock(now_ms=1_700_000_000_000))
    kafka.create_topic("orders")
    for key, timestamp_ms in (("bob", 60_000), ("ann", 60_001), ("ann", 120_000)):
        kafka.append("orders", b"{}", key.encode(), timestamp_ms=timestamp_ms)
    monkeypatch.setattr("airflow_kstreams.kafka.cluster.KafkaCluster", lambda *given, **named: kafka)
    return kafka


@pytest.fixture
def application(kafka: InMemoryKafka, tmp_path: Path) -> Application:
    """It has finished one run."""
    path = tmp_path / "orders.py"
    path.write_text(FILE)
    application = Application(
        on=kafka, clock=kafka.clock, application_id="shop", topology=ApplicationFile.read(path).topology()
    )
    application.run("one")
    return application


@pytest.fixture
def state(application: Application, tmp_path: Path) -> Path:
    return tmp_path / "orders.py"


def shown(path: Path, *arguments: str) -> Result:
    return invoke("state", str(path), *arguments, "--application-id", "shop", "--bootstrap-server", "in:9092")


def rows(result: Result) -> list[list[str]]:
    """Return the words of each line below the headings, and of the notes."""
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    return [words for line in result.stdout.splitlines()[1:] if (words := line.split())]


def test_store_is_shown_with_the_run_it_is_of(state: Path) -> None:
    headings, _, *entries, moment = rows(shown(state, "totals"))
    assert headings == ["key", "value", "timestamp", "task"]
    assert [row[:2] + row[-1:] for row in entries] == [["'ann'", "2", "0_0"], ["'bob'", "1", "0_0"]]
    assert " ".join(moment) == "as of run one, finished 2023-11-14 22:13:20 UTC"


def test_windows_of_one_key_are_shown_with_their_bounds(state: Path) -> None:
    headings, _, *entries, _ = rows(shown(state, "minutes", "ann"))
    assert headings[:4] == ["key", "start", "end", "value"]
    assert [row[:6] for row in entries] == [
        ["'ann'", "1970-01-01", "00:01:00.000", "1970-01-01", "00:02:00.000", "1"],
        ["'ann'", "1970-01-01", "00:02:00.000", "1970-01-01", "00:03:00.000", "1"],
    ]


def test_json_holds_all_entries_and_their_moment(state: Path) -> None:
    result = shown(state, "minutes", "ann", "--json")
    assert json_of(result, "state") == {
        "entries": [
            {
                "key": "ann",
                "value": 1,
                "start_ms": start_ms,
                "end_ms": start_ms + 60_000,
                "waits": None,
                "timestamp_ms": timestamp_ms,
                "task": "0_0",
            }
            for start_ms, timestamp_ms in ((60_000, 60_001), (120_000, 120_000))
        ],
        "more": False,
        "application_id": "shop",
        "store": "minutes",
        "as_of": "as of run one, finished 2023-11-14 22:13:20 UTC",
    }


def test_json_says_that_there_are_more_entries_when_the_limit_is_reached(state: Path) -> None:
    document = json_of(shown(state, "totals", "--limit", "1", "--json"), "state")
    assert ([entry["key"] for entry in document["entries"]], document["more"]) == (["ann"], True)
    assert json_of(shown(state, "totals", "eve", "--json"), "state")["entries"] == []


def test_there_is_said_to_be_more_when_the_limit_is_reached(state: Path) -> None:
    assert "there are more than 1 entry: --limit 0 shows all" in shown(state, "totals", "--limit", "1").stdout
    assert "there are more" not in shown(state, "totals", "--limit", "2").stdout
    assert "there are more" not in shown(state, "totals", "--limit", "0").stdout


def test_key_is_taken_as_bytes_when_it_is_hexadecimal(state: Path) -> None:
    found = json_of(shown(state, "totals", b"bob".hex(), "--hex", "--json"), "state")
    assert [entry["key"] for entry in found["entries"]] == ["bob"]
    assert shown(state, "totals", "bob", "--hex").exit_code == 2


def test_key_that_is_not_there_is_said_to_be_none(state: Path) -> None:
    assert "no entry has the key eve" in shown(state, "totals", "eve").stdout


def test_stores_are_named_when_there_is_no_such_one(state: Path) -> None:
    result = shown(state, "total")
    assert result.exit_code == 1
    assert (
        "no store 'total' [KS-APP-001] -- what to do: name one of its stores: minutes, totals"
        in result.stderr
    )


def test_run_under_way_is_named(state: Path, application: Application, kafka: InMemoryKafka) -> None:
    kafka.append("orders", b"{}", b"bob", timestamp_ms=130_000)
    slice_ = application.begin("two")
    assert "as of the last commit: run two was under way" in shown(state, "totals").stdout
    application.tasks(slice_)
    application.finish("two")
    assert "as of run two, finished" in shown(state, "totals").stdout
