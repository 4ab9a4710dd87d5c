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
    RecordContext,
    StoreSpec,
    TopologyError,
    serdes,
)
from airflow_kstreams.testing import InMemoryKafka, TopologyTestDriver
from tests.support.kafka.in_process import Application

Build = Callable[[KStream], KStream]

HEADERS: list[tuple[str, bytes | None]] = [("h", b"1"), ("h", None)]


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def told(context: RecordContext) -> list[Any]:
    names = [name for name, _ in context.headers]
    return [context.topic, context.partition, context.offset, context.timestamp_ms, names]


#: What `told` says of the record that the tests pipe: the second one of its topic.
PLACE = ["in", 0, 1, 70, ["h", "h"]]

CALLS: dict[str, Build] = {
    "filter": lambda s: s.filter(lambda c, k, v: told(c) == PLACE, with_context=True),
    "filter_not": lambda s: s.filter_not(lambda c, k, v: told(c) != PLACE, with_context=True),
    "map": lambda s: s.map(lambda c, k, v: (k, [v, told(c)]), with_context=True),
    "map_values": lambda s: s.map_values(lambda c, v: [v, told(c)], with_context=True),
    "flat_map": lambda s: s.flat_map(lambda c, k, v: [(k, told(c)), (k, v)], with_context=True),
    "flat_map_values": lambda s: s.flat_map_values(
        lambda c, v: (each for each in (told(c), v)), with_context=True
    ),
    "select_key": lambda s: s.select_key(lambda c, k, v: str(c.offset), with_context=True),
    "branch": lambda s: s.branch(lambda c, k, v: told(c) == PLACE, with_context=True)[0],
    "split": lambda s: s.split(other=lambda c, k, v: told(c) != PLACE, default="it", with_context=True)["it"],
}
GIVEN: dict[str, list[tuple[str, Any]]] = {
    "filter": [("k", 7)],
    "filter_not": [("k", 7)],
    "map": [("k", [7, PLACE])],
    "map_values": [("k", [7, PLACE])],
    "flat_map": [("k", PLACE), ("k", 7)],
    "flat_map_values": [("k", PLACE), ("k", 7)],
    "select_key": [("1", 7)],
    "branch": [("k", 7)],
    "split": [("k", 7)],
}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("stepping", [False, True])
@pytest.mark.parametrize("call", [*CALLS])
def test_function_gets_the_context_of_its_record(call: str, *, stepping: bool, threads: int) -> None:
    made = builder()
    stream = CALLS[call](made.stream("in"))
    stream.send_to("out")
    if stepping:  # who asks for stream time has another loop
        made.stream("in").process(Ticking).send_to("ticks")
    settings = {"num.threads.per.task": threads, "num.stream.threads": threads}
    with TopologyTestDriver(made.build(), application_id="app", settings=settings) as driver:
        driver.pipe_input("in", key="k", value=6, timestamp_ms=60)
        driver.read_output("out")
        driver.pipe_input("in", key="k", value=7, timestamp_ms=70, headers=HEADERS)
        found = [(record.key, record.value) for record in driver.read_output("out")]
    assert found == GIVEN[call]


class Ticking(Processor):
    """Forwards at every 100 ms of stream time."""

    def init(self, context: ProcessorContext) -> None:
        self._context = context
        context.schedule(100)

    def process(self, record: ProcessorRecord) -> None:
        pass

    def punctuate(self, stream_time_ms: int) -> None:
        self._context.forward("tick", stream_time_ms)


@pytest.mark.parametrize("call", ["peek", "foreach"])
def test_contexts_stay_as_they_are_when_an_action_keeps_them(call: str) -> None:
    made, kept = builder(), list[RecordContext]()
    getattr(made.stream("in"), call)(lambda c, k, v: kept.append(c), with_context=True)
    made.stream("in").send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        for time_ms in (5, 6):
            driver.pipe_input("in", key="k", value=1, timestamp_ms=time_ms, headers=HEADERS)
    kept[0].headers.clear()
    assert [told(context) for context in kept] == [["in", 0, 0, 5, ["h", "h"]], ["in", 0, 1, 6, ["h", "h"]]]


def test_context_is_that_of_no_record_when_a_table_emits_at_a_commit_point() -> None:
    made = builder()
    spec = StoreSpec(name="n", key_serde=serdes.string(), value_serde=serdes.int64(), cached=True)
    counts = made.stream("in").group_by_key().count(store=spec).to_stream()
    counts.map_values(lambda c, v: [v, *told(c)], with_context=True).send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=1, timestamp_ms=9, headers=HEADERS)
        assert [record.value for record in driver.read_output("out")] == [[1, None, -1, -1, 9, []]]


def test_context_is_that_of_no_record_when_a_timer_forwards() -> None:
    made = builder()
    ticks = made.stream("in").process(Ticking)
    ticks.map_values(lambda c, v: [v, *told(c)], with_context=True).send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=1, timestamp_ms=100, headers=HEADERS)
        assert [record.value for record in driver.read_output("out")] == [[100, None, -1, -1, 100, []]]


def test_context_has_what_a_processor_above_gave_its_result() -> None:
    class Redating(Processor):
        def init(self, context: ProcessorContext) -> None:
            self._context = context

        def process(self, record: ProcessorRecord) -> None:
            self._context.forward("k", 1, timestamp_ms=3, headers=[("new", b"")])

    made = builder()
    made.stream("in").process(Redating).map_values(lambda c, v: told(c), with_context=True).send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=1, timestamp_ms=9, headers=HEADERS)
        assert [record.value for record in driver.read_output("out")] == [["in", 0, 0, 3, ["new"]]]


def test_contexts_are_the_same_when_runs_begin_anew_between_the_records() -> None:
    made = builder()
    made.stream("in").map_values(lambda c, v: c.offset, with_context=True).send_to("out")
    kafka = InMemoryKafka()
    for topic in ("in", "out"):
        kafka.create_topic(topic)
    app = Application(application_id="app", topology=made.build(), on=kafka, settings={"settle.ms": 0})
    for number in range(4):
        kafka.append("in", b"1", b"k")
        if number != 1:
            app.run(f"run-{number}")
    assert [*kafka.values("out")] == [b"0", b"1", b"2", b"3"]


def test_function_is_refused_when_it_takes_no_context() -> None:
    bare: Any = lambda v: v  # noqa: E731
    with pytest.raises(
        TopologyError, match=rf"map_values at {__file__}:\d+ is given <lambda>\(v\) .* \(context, value\)"
    ):
        builder().stream("in").map_values(bare, with_context=True)
