"""The end of a run and the begin of the next one, in the test driver."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from airflow_kstreams.streams import (
    ConfigError,
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    RecordError,
    Serde,
    StateStoreError,
    StoreSpec,
    Topology,
    TumblingWindow,
    serdes,
)
from airflow_kstreams.streams.errors import StoreSerdeError, TaskCorruptedError
from airflow_kstreams.testing import InMemoryKafka, TopologyTestDriver
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("values-survive-their-serde")


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def _seen(_: str, number: int, seen: dict[int, int]) -> dict[int, int]:
    return {**seen, number: seen.get(number, 0) + 1}


def numbers_seen(value_serde: Serde, storage: Literal["memory", "rocksdb"] = "memory") -> Topology:
    made = builder()
    store = StoreSpec(name="seen", key_serde=serdes.string(), value_serde=value_serde, storage=storage)
    seen = made.stream("in").group_by_key().aggregate(dict, _seen, store=store)
    seen.to_stream().send_to("out", value_serde=serdes.json())
    return made.build()


RUNS: tuple[list[int], ...] = ([1, 2], [1], [], [2, 1])


@pytest.mark.parametrize("storage", ["memory", "rocksdb"])
def test_driver_gives_what_runs_give_when_it_restarts_between_them(
    storage: Literal["memory", "rocksdb"],
) -> None:
    if storage == "rocksdb":
        pytest.importorskip("rocksdict")
    topology = numbers_seen(serdes.json(dict[int, int]), storage)
    kafka = InMemoryKafka()
    for topic in ("in", "out"):
        kafka.create_topic(topic)
    app = Application(application_id="app", topology=topology, on=kafka, settings={"settle.ms": 0})
    with TopologyTestDriver(topology, application_id="app") as driver:
        for number, values in enumerate(RUNS):
            if number:
                driver.restart()
            for value in values:
                driver.pipe_input("in", key="k", value=value, timestamp_ms=0)
                kafka.append("in", b"%d" % value, b"k")
            app.run(f"run-{number}")
        last = driver.read_output("out")[-1].value
    assert last == {"1": 3, "2": 2}
    assert serdes.json().deserialize(kafka.records("out")[-1].value() or b"") == last


def test_run_is_refused_when_the_next_one_would_restore_another_value() -> None:
    kafka = InMemoryKafka()
    for topic in ("in", "out"):
        kafka.create_topic(topic)
    kafka.append("in", b"1", b"k")
    app = Application(
        application_id="app", topology=numbers_seen(serdes.json()), on=kafka, settings={"settle.ms": 0}
    )
    with pytest.raises(
        StoreSerdeError, match=r"store 'seen', at a key of 1 B: .* does not give back"
    ) as refused:
        app.run("run-1")
    assert not refused.value.is_retriable
    assert "serdes.json(dict[int,int])" in refused.value.fix
    assert kafka.records("out") == []


class Noted(Processor):
    """Counts in a store that is not logged, and says when it opens and closes."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes

    def init(self, context: ProcessorContext) -> None:
        self._context = context
        self._store = context.state_store("memo")
        self._notes.append("init")

    def process(self, record: ProcessorRecord) -> None:
        self._store.put(record.key, (self._store.get(record.key) or 0) + 1)
        self._context.forward(record.key, self._store.get(record.key))

    def close(self) -> None:
        self._notes.append("close")
        self._context.forward("closed", 0)


def test_processors_close_and_open_when_a_run_ends_and_the_next_begins() -> None:
    notes: list[str] = []
    made = builder()
    memo_store = StoreSpec(name="memo", key_serde=serdes.string(), value_serde=serdes.json(), logged=False)
    made.stream("in").process(lambda: Noted(notes), memo_store).send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        memo = driver.store("memo")
        driver.pipe_input("in", key="a", value=0, timestamp_ms=1)
        driver.pipe_input("in", key="a", value=0, timestamp_ms=2)
        assert memo.get("a") == 2
        driver.restart()
        assert notes == ["init", "close", "init"]
        assert memo.get("a") is None
        driver.pipe_input("in", key="a", value=0, timestamp_ms=3)
        assert [(record.key, record.value) for record in driver.read_output("out")] == [
            ("a", 1),
            ("a", 2),
            ("closed", 0),
            ("a", 1),
        ]


@pytest.mark.promise("driver-gives-what-runs-give")
def test_stream_time_goes_on_when_a_run_ends() -> None:
    made = builder()
    windowed = made.stream("in").group_by_key().windowed_by(TumblingWindow(size_ms=10, grace_ms=0))
    windowed.count(store="counts").to_stream().send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        driver.pipe_input("in", key="a", value=0, timestamp_ms=25)
        driver.restart()
        driver.pipe_input("in", key="a", value=0, timestamp_ms=5)
        driver.pipe_input("in", key="a", value=0, timestamp_ms=26)
        assert [record.value for record in driver.read_output("out")] == [1, 2]


def test_driver_does_not_restart_when_a_record_failed_or_it_is_closed() -> None:
    def fail(value: Any) -> Any:
        raise ValueError("no")

    made = builder()
    made.stream("in").map_values(fail).send_to("out")
    driver = TopologyTestDriver(made.build(), application_id="app")
    with pytest.raises(RecordError):
        driver.pipe_input("in", key="a", value=0, timestamp_ms=0)
    with pytest.raises(TaskCorruptedError):
        driver.restart()
    driver.close()
    with pytest.raises(ConfigError, match="closed"):
        driver.restart()


def test_driver_is_closed_when_a_store_cannot_be_restored() -> None:
    changed: list[str] = []

    def read(data: bytes) -> str:
        if changed:
            raise ValueError("another version of the code")
        return data.decode()

    serde = Serde(serialize=str.encode, deserialize=read, id="changing")
    made = builder()
    made.table("in", value_serde=serde, store="newest").to_stream().send_to("out", value_serde=serde)
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        driver.pipe_input("in", key="a", value="ant", timestamp_ms=0)
        changed.append("since")
        with pytest.raises(StateStoreError, match=r"store 'newest', at a key of 1 B: .*another version"):
            driver.restart()
        with pytest.raises(ConfigError, match="closed"):
            driver.store("newest")
