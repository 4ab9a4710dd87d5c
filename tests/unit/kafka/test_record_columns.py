"""When records cross by columns, and what is said when they do not."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import closing
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from airflow_kstreams.kafka import record_columns
from airflow_kstreams.kafka.child_reader import FetchedRecord
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.ports import TimedRecords
from airflow_kstreams.streams.records.timestamp_reading import RecordTimestamps

pytestmark = pytest.mark.promise("records-cross-alike")

FUNCTIONS = ("rd_kafka_type", "rd_kafka_name")


class FakeLibrary(ModuleType):
    """The library, as far as the fences use it.

    :ivar answers: what the child process finds.
    """

    INTERFACE = 2
    FUNCTIONS: tuple[str, ...] = FUNCTIONS

    def __init__(self) -> None:
        super().__init__("airflow_kstreams_columns")
        self.bound: tuple[int, ...] = ()
        self.answers = True
        self.looks: list[tuple[Any, ...]] = []

    def bind(self, addresses: tuple[int, ...]) -> None:
        self.bound = addresses

    def looks_right(self, *asked: Any) -> bool:
        self.looks.append(asked)
        return self.answers

    def columns(self, records: object) -> None:
        """Make columns; the fences do not ask for any."""

    def Queue(self, consumer: object) -> object:
        return SimpleNamespace(consumer=consumer, close=lambda: None)


class Client:
    """An object with room for a handle."""

    __slots__ = ("handle",)


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLibrary]:
    made = FakeLibrary()
    monkeypatch.delenv(record_columns.VARIABLE, raising=False)
    monkeypatch.setitem(sys.modules, "airflow_kstreams_columns", made)
    record_columns.forget()
    yield made
    record_columns.forget()


def queue_of(client: object, **config: str) -> object:
    return record_columns.columns_of(client, {"bootstrap.servers": "unused:9092", **config})  # type: ignore[arg-type]


def test_records_cross_by_columns_when_every_fence_lets_them(library: FakeLibrary) -> None:
    assert queue_of(Client()) is not None
    assert str(record_columns.border()) == "by columns"
    assert len(set(library.bound)) == len(FUNCTIONS)
    assert 0 not in library.bound


def test_one_client_of_a_kind_is_looked_at(library: FakeLibrary) -> None:
    first = Client()
    for client in (first, Client()):
        assert queue_of(client, **{"client.id": "mine"}) is not None
    assert library.looks == [(first, object.__basicsize__, 1, "mine#consumer-", 5_000)]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda patch: patch.setenv(record_columns.VARIABLE, "off"), "KSTREAMS_COLUMNS is off"),
        (
            lambda patch: patch.setattr("confluent_kafka.version", lambda: "2.99.0"),
            "confluent-kafka 2.99.0 is not tested with airflow-kstreams-columns",
        ),
        (
            lambda patch: patch.setitem(sys.modules, "airflow_kstreams_columns", None),
            "airflow-kstreams-columns is not installed",
        ),
        (
            lambda patch: patch.setattr(FakeLibrary, "INTERFACE", 3),
            "airflow-kstreams-columns is of another version than airflow-kstreams",
        ),
        (
            lambda patch: patch.setattr(FakeLibrary, "FUNCTIONS", ("rd_kafka_no_such",)),
            "the client library lacks a function: ",
        ),
    ],
    ids=["off", "other client", "not installed", "other library", "function missing"],
)
def test_records_cross_one_by_one_when_a_fence_does_not_let_them(
    monkeypatch: pytest.MonkeyPatch, library: FakeLibrary, change: Any, why: str
) -> None:
    change(monkeypatch)
    assert queue_of(Client()) is None
    assert str(record_columns.border()).startswith(f"one by one: {why}")
    assert not library.looks


def test_records_cross_one_by_one_when_the_child_process_does_not_find_the_handle(
    library: FakeLibrary, caplog: pytest.LogCaptureFixture
) -> None:
    library.answers = False
    with caplog.at_level(logging.WARNING):
        assert queue_of(Client()) is None
    assert queue_of(Client()) is None
    why = "one by one: a client's handle is not where confluent-kafka used to keep it"
    assert str(record_columns.border()) == why
    assert [record.getMessage() for record in caplog.records] == [f"records cross {why}"]
    assert len(library.looks) == 1


def test_a_client_without_room_for_a_handle_is_not_looked_at(library: FakeLibrary) -> None:
    assert queue_of(object()) is None
    assert not library.looks


@pytest.mark.remedy("record_columns._loaded")
def test_environment_is_refused_when_it_asks_for_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(record_columns.VARIABLE, "on")
    with pytest.raises(ConfigError, match="KSTREAMS_COLUMNS is 'on'"):
        record_columns.border()
    monkeypatch.setenv(record_columns.VARIABLE, "auto")
    assert str(record_columns.border()) == "by columns"


def test_timestamps_are_those_beside_the_records_and_of_the_records_alike() -> None:
    times = [5, 3, 3, 9]
    records: list[Any] = [
        FetchedRecord("t", 0, offset, (b"k", b"v"), (1, time_ms), None, None)
        for offset, time_ms in enumerate(times)
    ]
    beside = RecordTimestamps(latest_ms=-1)(TimedRecords(records, times))
    assert beside == RecordTimestamps(latest_ms=-1)(records)
    # A time that is not usable is replaced, and not in the list that came.
    unusable = TimedRecords(records, [5, -1, 3, 9])
    assert RecordTimestamps(latest_ms=-1)(unusable)[1] == [5, 5, 3, 9]
    assert unusable.timestamps_ms == [5, -1, 3, 9]


@pytest.mark.parametrize(("small", "looks"), [(True, 0), (False, 1)])
def test_client_is_looked_at_when_its_reader_reads_more_than_little(
    library: FakeLibrary, small: bool, looks: int
) -> None:
    cluster = KafkaCluster({"bootstrap.servers": "127.0.0.1:1"})
    with closing(cluster.reader(group_id="app", small=small)):
        assert len(library.looks) == looks
