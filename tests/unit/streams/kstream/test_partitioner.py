from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStream,
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    RecordError,
    SlidingWindow,
    StoreSpec,
    TopologyBuilder,
    TopologyError,
    Windowed,
    serdes,
)
from airflow_kstreams.testing import InMemoryKafka, TopologyTestDriver
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("state-stays-with-its-keys-behind-a-partitioner")


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def by_value(topic: str, key: Any, value: Any, partitions: int) -> int | None:
    """Place by the value; negative ones by their key."""
    return None if value < 0 else value % partitions


def partitions_of(driver: TopologyTestDriver, topic: str = "out") -> list[int]:
    return [record.partition for record in driver.read_output(topic)]


@pytest.mark.parametrize("stepping", [False, True])
def test_each_record_goes_where_the_partitioner_says(*, stepping: bool) -> None:
    made, asked = builder(), list[tuple[Any, ...]]()

    def noted(*arguments: Any) -> int:
        asked.append(arguments)
        return by_value(*arguments) or 0

    made.stream("in").send_to("out", partitioner=noted)
    if stepping:  # who asks for stream time has another loop
        made.stream("in").process(Idle).send_to("other")
    with TopologyTestDriver(made.build(), application_id="app", partitions={"in": 1, "out": 3}) as driver:
        for value in (5, 3, 4):
            driver.pipe_input("in", key="k", value=value, timestamp_ms=0)
        assert partitions_of(driver) == [2, 0, 1]
    assert asked == [("out", "k", value, 3) for value in (5, 3, 4)]


@pytest.mark.parametrize("keys", [serdes.string(), serdes.time_windowed(serdes.string(), 5)])
def test_key_decides_where_the_partitioner_says_none(keys: Any) -> None:
    made = builder()
    source = made.stream("in", key_serde=keys)
    source.send_to("out", partitioner=by_value)
    source.send_to("plain")
    with TopologyTestDriver(
        made.build(), application_id="app", partitions={"in": 1, "out": 5, "plain": 5}
    ) as driver:
        for name in "abcdef":
            key = name if keys == serdes.string() else Windowed(name, 5, 10)
            driver.pipe_input("in", key=key, value=-1, timestamp_ms=0)
        found = partitions_of(driver)
        assert found == partitions_of(driver, "plain")
        assert len({*found}) > 1


def test_places_are_the_same_when_runs_begin_anew_between_the_records() -> None:
    made = builder()
    made.stream("in").through("middle", partitioner=by_value).send_to("out", partitioner=by_value)
    kafka = InMemoryKafka()
    for topic, count in {"in": 1, "middle": 2, "out": 3}.items():
        kafka.create_topic(topic, partitions=count)
    app = Application(application_id="app", topology=made.build(), on=kafka, settings={"settle.ms": 0})
    for number in range(4):
        kafka.append("in", b"%d" % number, b"k")
        app.run(f"run-{number}")
    assert sorted((r.partition(), r.value()) for r in kafka.records("middle")) == [
        (0, b"0"),
        (0, b"2"),
        (1, b"1"),
        (1, b"3"),
    ]
    assert sorted((r.partition(), r.value()) for r in kafka.records("out")) == [
        (0, b"0"),
        (0, b"3"),
        (1, b"1"),
        (2, b"2"),
    ]


@pytest.mark.parametrize("given", [3, -1, "0", 1.0, True, 98_765])
def test_node_and_record_are_named_when_there_is_no_such_partition(given: Any) -> None:
    made = builder()
    made.stream("in").send_to("out", partitioner=lambda *_: given, name="placed")
    with TopologyTestDriver(made.build(), application_id="app", partitions={"in": 1, "out": 3}) as driver:
        with pytest.raises(
            RecordError, match=r"cannot place the result for topic 'out' of in-0@0 at node 'placed'"
        ) as bad:
            driver.pipe_input("in", key="k", value=7, timestamp_ms=0)
        found = "another number" if type(given) is int else type(given).__name__
        assert f"returned {found}, expected one of its 3 partitions, 0 to 2, or None" in bad.value.cause
        assert "partitioner" in bad.value.fix


def test_low_level_builder_takes_a_partitioner_too() -> None:
    made = TopologyBuilder().add_source("in", "in", value_serde=serdes.json())
    made.add_sink("out", "out", "in", value_serde=serdes.json(), partitioner=by_value)
    with TopologyTestDriver(made.build(), application_id="app", partitions={"in": 1, "out": 3}) as driver:
        driver.pipe_input("in", key=b"k", value=4, timestamp_ms=0)
        assert partitions_of(driver) == [1]


def test_partitioner_is_part_of_the_topology_hash_and_its_body_is_not() -> None:
    def hashed(**options: Any) -> str:
        made = builder()
        made.stream("in").send_to("out", **options)
        return made.build().topology_hash()

    assert hashed() != hashed(partitioner=by_value)
    assert hashed(partitioner=by_value) == hashed(partitioner=lambda *_: 0)


class Idle(Processor):
    def process(self, record: ProcessorRecord) -> None:
        """Do nothing."""


class Sending(Processor):
    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: ProcessorRecord) -> None:
        self._context.send("out", record.key, record.value)


def test_sending_by_name_is_refused_past_a_sink_with_a_partitioner() -> None:
    made = builder()
    made.stream("in").process(Sending).send_to("out", partitioner=by_value)
    with (
        TopologyTestDriver(made.build(), application_id="app") as driver,
        pytest.raises(TopologyError, match="sends to 'out' by name, whose sink here has a partitioner"),
    ):
        driver.pipe_input("in", key="k", value=1, timestamp_ms=0)


STATE: dict[str, Callable[[KStreamBuilder, KStream], Any]] = {
    "a fold": lambda made, read: read.group_by_key().count(store="n"),
    "a table": lambda made, read: made.table("middle", store="t"),
    "a join with a table": lambda made, read: read.join(made.table("table"), max).send_to("out"),
    "a join of streams": lambda made, read: (
        read.with_window(SlidingWindow(size_ms=1))
        .join(made.stream("other").with_window(SlidingWindow(size_ms=1)), max)
        .send_to("out")
    ),
    "a processor": lambda made, read: read.process(
        Sending, StoreSpec(name="s", key_serde=serdes.string(), value_serde=serdes.json())
    ),
    "a fold behind operators": lambda made, read: (
        read.filter(lambda key, value: True).merge(made.stream("other")).group_by_key().count(store="n")
    ),
}


@pytest.mark.parametrize("state", [*STATE])
def test_partitioner_is_refused_where_state_is_kept_of_what_it_places(state: str) -> None:
    made = builder()
    made.stream("in").send_to("middle", partitioner=by_value, name="placed")
    read = made.stream("middle")
    STATE[state](made, read)
    with pytest.raises(TopologyError, match=rf"sink 'placed' \(.*{__file__}:\d+\) places") as refused:
        made.build()
    assert "repartition" in refused.value.fix


def test_partitioner_is_taken_where_keys_are_placed_anew_ahead_of_the_state() -> None:
    made = builder()
    read = made.stream("in").through("middle", partitioner=by_value)
    read.repartition(2, name="anew").group_by_key().count(store="n")
    read.group_by(lambda key, value: key).count(store="m")
    made.build()


def test_mistake_is_refused_with_the_users_line() -> None:
    with pytest.raises(TopologyError, match=rf"send_to\('out'\) at {__file__}:"):
        builder().stream("in").send_to("out", partitioner=3)  # type: ignore[arg-type]
