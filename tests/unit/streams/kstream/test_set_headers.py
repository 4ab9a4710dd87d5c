from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    RecordContext,
    RecordError,
    TopologyError,
    serdes,
)
from airflow_kstreams.testing import InMemoryKafka, TopologyTestDriver
from tests.support.kafka.in_process import Application

OLD: list[tuple[str, bytes | None]] = [("old", b"1")]
NEW: list[tuple[str, bytes | None]] = [("new", b"2"), ("none", None)]


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


class Seen(Processor):
    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: ProcessorRecord) -> None:
        names = [name for name, _ in self._context.headers]
        self._context.forward(record.key, [[name for name, _ in record.headers], names])


@pytest.mark.parametrize("stepping", [False, True])
def test_what_follows_has_the_new_headers_and_what_stands_beside_has_the_old(*, stepping: bool) -> None:
    made = builder()
    stream = made.stream("in")
    stream.send_to("before")
    changed = stream.set_headers(lambda key, value: NEW)
    changed.map_values(lambda value: value).send_to("out")
    changed.map_values(lambda v, context: [name for name, _ in context.headers]).send_to("told")
    stream.send_to("after")
    if stepping:
        changed.process(Seen).send_to("seen")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        for _ in range(2):
            driver.pipe_input("in", key="k", value=1, timestamp_ms=0, headers=OLD)
        for topic, headers in {"before": OLD, "out": NEW, "after": OLD}.items():
            assert [record.headers for record in driver.read_output(topic)] == [headers] * 2
        assert [record.value for record in driver.read_output("told")] == [["new", "none"]] * 2
        if stepping:
            assert driver.read_output("seen")[0].value == [["new", "none"]] * 2


def test_headers_are_added_when_the_function_declares_the_context() -> None:
    def placed(key: Any, value: Any, context: RecordContext) -> list[tuple[str, bytes | None]]:
        return [*context.headers, ("from", f"{context.topic}@{context.offset}".encode())]

    def numbered(key: Any, value: Any, *, context: RecordContext) -> list[tuple[str, bytes | None]]:
        return [*context.headers, ("n", b"1")]

    made = builder()
    made.stream("in").set_headers(placed).set_headers(numbered).send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=1, timestamp_ms=0, headers=OLD)
        assert driver.read_output("out")[0].headers == [*OLD, ("from", b"in@0"), ("n", b"1")]


def test_headers_reach_a_later_stage_when_calls_stand_between() -> None:
    async def same(value: Any) -> Any:
        return value

    made = builder()
    made.stream("in").set_headers(lambda k, v: NEW).map_values_async(same).send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=1, timestamp_ms=0, headers=OLD)
        assert driver.read_output("out")[0].headers == NEW


def test_results_have_no_headers_when_a_cached_table_emits() -> None:
    made = builder()
    counts = made.stream("in").set_headers(lambda k, v: NEW).group_by_key().count(store="n").to_stream()
    counts.send_to("out")
    counts.set_headers(lambda k, v: OLD).send_to("set")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=1, timestamp_ms=0, headers=OLD)
        assert driver.read_output("out")[0].headers == []
        assert driver.read_output("set")[0].headers == OLD


def test_headers_pass_a_repartition_topic_and_runs_that_begin_anew() -> None:
    made = builder()
    changed = made.stream("in").set_headers(lambda k, v: [("v", str(v).encode())]).repartition(2, name="r")
    changed.send_to("out")
    kafka = InMemoryKafka()
    for topic in ("in", "out"):
        kafka.create_topic(topic)
    app = Application(application_id="app", topology=made.build(), on=kafka, settings={"settle.ms": 0})
    for number in range(3):
        kafka.append("in", b"%d" % number, b"k")
        app.run(f"run-{number}")
    assert [record.headers() for record in kafka.records("out")] == [[("v", b"%d" % n)] for n in range(3)]


@pytest.mark.parametrize(
    "given", [None, {"a": b""}, "ab", [("a", "text")], [("a",)], [(b"a", b"")], ["ab"], [["a", b""]]]
)
def test_node_and_record_are_named_when_the_function_returns_no_headers(given: Any) -> None:
    made = builder()
    made.stream("in").set_headers(lambda k, v: given, name="headed").send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        with pytest.raises(RecordError, match=r"in-0@0 at node 'headed'.*set_headers: the function") as bad:
            driver.pipe_input("in", key="k", value=1, timestamp_ms=0)
        assert bad.value.node == "headed"


def test_record_is_dead_lettered_with_its_own_headers_when_the_policy_says_so() -> None:
    made = builder()
    twice = made.stream("in").set_headers(lambda k, v: NEW)
    twice.map_values(lambda v: 1 // v).send_to("out")
    settings = {
        "processing.exception.handler": "dead-letter",
        "errors.dead.letter.queue.topic.name": "dead",
    }
    with TopologyTestDriver(made.build(), application_id="app", settings=settings) as driver:
        for value in (0, 1):
            driver.pipe_input("in", key="k", value=value, timestamp_ms=0, headers=OLD)
        assert [record.headers for record in driver.read_output("out")] == [NEW]
        letter = driver.read_output("dead", key_serde=serdes.bytes(), value_serde=serdes.bytes())[0]
        assert letter.headers[:1] == OLD


def test_mistake_is_refused_with_the_users_line() -> None:
    with pytest.raises(TopologyError, match=f"set_headers at {__file__}:"):
        builder().stream("in").set_headers([("a", b"")])  # type: ignore[arg-type]
