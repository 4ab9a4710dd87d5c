from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStream,
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    RecordContext,
    RecordError,
    SlidingWindow,
    Topology,
    TopologyError,
    TumblingWindow,
    serdes,
)
from airflow_kstreams.testing import InMemoryKafka, TopologyTestDriver
from tests.support.kafka.in_process import Application


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def dated(stream: KStream) -> KStream:
    """Date each record by its value."""
    return stream.set_timestamp(lambda key, value: value)


class Seen(Processor):
    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: ProcessorRecord) -> None:
        times = [record.timestamp_ms, self._context.timestamp_ms, self._context.stream_time_ms]
        self._context.forward(record.key, times)


@pytest.mark.parametrize("stepping", [False, True])
def test_what_follows_has_the_new_time_and_what_stands_beside_has_the_old(*, stepping: bool) -> None:
    made = builder()
    stream = made.stream("in")
    stream.send_to("before")
    dated(stream).map_values(lambda value: value).send_to("out")
    dated(stream).map_values(lambda v, context: context.timestamp_ms).send_to("told")
    stream.send_to("after")
    if stepping:
        dated(stream).process(Seen).send_to("seen")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        for time_ms in (90, 70):
            driver.pipe_input("in", key="k", value=time_ms // 10, timestamp_ms=time_ms)
        for topic, times in {"before": [90, 70], "out": [9, 7], "after": [90, 70]}.items():
            assert [record.timestamp_ms for record in driver.read_output(topic)] == times
        assert [record.value for record in driver.read_output("told")] == [9, 7]
        if stepping:
            assert [record.value for record in driver.read_output("seen")] == [[9, 9, 90], [7, 7, 90]]


def test_new_time_is_dated_again_when_two_follow_each_other() -> None:
    def a_bit_later(key: Any, value: Any, context: RecordContext) -> int:
        return context.timestamp_ms + 1

    made = builder()
    dated(made.stream("in")).set_timestamp(a_bit_later).send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=5, timestamp_ms=90)
        assert driver.read_output("out")[0].timestamp_ms == 6


def test_table_notes_the_largest_of_the_new_times_and_needs_no_topic() -> None:
    made = builder()
    dated(made.stream("in")).group_by_key().count(store="n").to_stream().send_to("out")
    topology = made.build()
    assert topology.internal_topics == ()
    with TopologyTestDriver(topology, application_id="app") as driver:
        for value in (7, 5):
            driver.pipe_input("in", key="k", value=value, timestamp_ms=90)
        assert [(r.value, r.timestamp_ms) for r in driver.read_output("out")] == [(1, 7), (2, 7)]


def windowed() -> Topology:
    made = builder()
    grouped = dated(made.stream("in")).group_by_key()
    counts = grouped.windowed_by(TumblingWindow(size_ms=10, grace_ms=0)).count(store="n")
    counts.to_stream().map(lambda windowed, count: (windowed.key, [windowed.start_ms, count])).send_to("out")
    return made.build()


def test_windows_go_by_the_new_times_and_their_stream_time_by_them_too() -> None:
    topology = windowed()
    assert [topic.name for topic in topology.internal_topics] == ["n-repartition"]
    with TopologyTestDriver(topology, application_id="app") as driver:
        for value in (3, 12, 4, 15):  # the third is late; by the topic's own times all would be
            driver.pipe_input("in", key="k", value=value, timestamp_ms=1_000)
        assert [r.value for r in driver.read_output("out")] == [[0, 1], [10, 1], [10, 2]]
        assert driver.counts.by("late") == 1


def test_windows_are_the_same_when_runs_begin_anew_between_the_records() -> None:
    kafka = InMemoryKafka()
    for topic in ("in", "out"):
        kafka.create_topic(topic)
    app = Application(application_id="app", topology=windowed(), on=kafka, settings={"settle.ms": 0})
    for number, value in enumerate((3, 12, 4, 15)):
        kafka.append("in", b"%d" % value, b"k", timestamp_ms=1_000)
        app.run(f"run-{number}")
    assert [*kafka.values("out")] == [b"[0,1]", b"[10,1]", b"[10,2]"]


@pytest.mark.parametrize("between", ["nothing", "merge", "table", "table join"])
def test_windows_go_by_the_new_times_when_operators_stand_between(between: str) -> None:
    made = builder()
    stream = made.stream("in")
    redated = dated(stream)
    match between:
        case "merge":
            redated = redated.merge(made.stream("other"))
        case "table":
            redated = redated.group_by_key().reduce(lambda _, value: value, store="latest").to_stream()
        case "table join":
            redated = redated.left_join(made.table("table"), lambda value, _: value)
    counts = redated.group_by_key().windowed_by(TumblingWindow(size_ms=10, grace_ms=0)).count(store="n")
    counts.to_stream().send_to("out", key_serde=serdes.time_windowed(serdes.string(), 10))
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        for value in (3, 12):
            driver.pipe_input("in", key="k", value=value, timestamp_ms=1_000)
        assert len(driver.read_output("out", key_serde=serdes.bytes())) == 2


def test_joined_streams_meet_by_the_new_times() -> None:
    made = builder()
    window = SlidingWindow(size_ms=5)
    left = dated(made.stream("left")).with_window(window)
    left.join(made.stream("right").with_window(window), lambda one, two: [one, two], name="j").send_to("out")
    topology = made.build()
    assert [topic.name for topic in topology.internal_topics] == ["j-left-repartition"]
    with TopologyTestDriver(topology, application_id="app") as driver:
        driver.pipe_input("left", key="k", value=103, timestamp_ms=5_000)
        driver.pipe_input("right", key="k", value=1, timestamp_ms=105)
        driver.pipe_input("right", key="k", value=2, timestamp_ms=5_000)
        assert [(r.value, r.timestamp_ms) for r in driver.read_output("out")] == [([103, 1], 105)]


def test_time_reaches_a_later_stage_when_calls_stand_between() -> None:
    async def same(value: Any) -> Any:
        return value

    made = builder()
    dated(made.stream("in")).map_values_async(same).send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=8, timestamp_ms=90)
        assert driver.read_output("out")[0].timestamp_ms == 8


@pytest.mark.parametrize("given", [-1, 1.5, None, "7", True, 2**63])
def test_node_and_record_are_named_when_the_function_returns_no_time(given: Any) -> None:
    made = builder()
    made.stream("in").set_timestamp(lambda k, v: given, name="dated").send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        with pytest.raises(RecordError, match=r"in-0@0 at node 'dated'.*set_timestamp: the func") as bad:
            driver.pipe_input("in", key="k", value=1, timestamp_ms=0)
        assert bad.value.node == "dated"


def test_record_without_a_time_is_skipped_and_counted_when_the_policy_says_so() -> None:
    made = builder()
    dated(made.stream("in")).send_to("out")
    settings = {"processing.exception.handler": "skip"}
    with TopologyTestDriver(made.build(), application_id="app", settings=settings) as driver:
        for value in (4, -4):
            driver.pipe_input("in", key="k", value=value, timestamp_ms=0)
        assert [record.timestamp_ms for record in driver.read_output("out")] == [4]
        assert driver.counts.by("skipped") == 1


def test_mistake_is_refused_with_the_users_line() -> None:
    with pytest.raises(TopologyError, match=f"set_timestamp at {__file__}:"):
        builder().stream("in").set_timestamp(5)  # type: ignore[arg-type]
