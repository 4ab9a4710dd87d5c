from __future__ import annotations

import random
from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    TopologyBuilder,
    serdes,
)
from airflow_kstreams.streams.errors import RecordError, TopologyError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.runtime.execution import TaskProgress
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.topology import Topology
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.topology.records import FakeRecord
from tests.support.topology.task_on_logs import TaskOnLogs, log_of

IN = TopicPartition("in", 0)


class Sending(Processor):
    """Sends each record to the topic that its key names."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: ProcessorRecord) -> None:
        self.context.send(record.key, record.key, record.value, **self.serdes())

    def serdes(self) -> dict[str, Any]:
        return {"key_serde": serdes.string(), "value_serde": serdes.json()}


class SendingPlainly(Sending):
    def serdes(self) -> dict[str, Any]:
        return {}


def topology(definition: type[Processor]) -> Topology:
    return (
        TopologyBuilder()
        .add_source("in", "in", key_serde=serdes.string(), value_serde=serdes.json())
        .add_processor("send", definition, "in")
        .add_sink("out", "out", "send", key_serde=serdes.string(), value_serde=serdes.json())
        .add_source("other", "other")
        .add_sink("copy", "copy", "other")
        .build()
    )


def test_record_is_written_with_time_and_headers_when_a_topic_is_named() -> None:
    with TopologyTestDriver(topology(Sending), application_id="app") as driver:
        driver.pipe_input("in", key="elsewhere", value={"a": 1}, timestamp_ms=5, headers=[("h", b"1")])
        (record,) = driver.read_output("elsewhere", value_serde=serdes.json())
    assert (record.key, record.value, record.timestamp_ms, record.headers) == (
        b"elsewhere",
        {"a": 1},
        5,
        [("h", b"1")],
    )


def test_sinks_serdes_are_used_when_the_topic_has_a_sink_here() -> None:
    with TopologyTestDriver(topology(SendingPlainly), application_id="app") as driver:
        driver.pipe_input("in", key="out", value={"a": 1}, timestamp_ms=5)
        assert [(r.key, r.value) for r in driver.read_output("out")] == [("out", {"a": 1})]


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        ("in", "which the topology reads"),
        ("other", "which the topology reads"),
        ("app-metadata", "engine's own"),
        ("no topic", "does not allow"),
    ],
)
def test_send_is_refused_when_a_run_could_not_end(topic: str, message: str) -> None:
    driver = TopologyTestDriver(topology(Sending), application_id="app")
    with pytest.raises(TopologyError, match=message):
        driver.pipe_input("in", key=topic, value=1, timestamp_ms=5)


def test_record_is_named_when_what_is_sent_does_not_fit() -> None:
    driver = TopologyTestDriver(topology(SendingPlainly), application_id="app")
    with pytest.raises(RecordError, match="takes bytes"):
        driver.pipe_input("in", key="elsewhere", value=1, timestamp_ms=5)


def test_headers_are_replaced_for_that_result_only_when_given() -> None:
    class Relabelling(Sending):
        def process(self, record: ProcessorRecord) -> None:
            self.context.forward(record.key, 1, headers=[("new", b"2")])
            self.context.forward(record.key, 2)
            self.context.forward(record.key, 3, headers=[])

    with TopologyTestDriver(topology(Relabelling), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=0, timestamp_ms=5, headers=[("old", b"1")])
        assert [r.headers for r in driver.read_output("out")] == [[("new", b"2")], [("old", b"1")], []]


def test_record_is_named_when_a_result_is_given_a_negative_time() -> None:
    class Dating(Sending):
        def process(self, record: ProcessorRecord) -> None:
            self.context.forward(record.key, 1, timestamp_ms=record.value)

    with TopologyTestDriver(topology(Dating), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=0, timestamp_ms=5)
        assert [r.timestamp_ms for r in driver.read_output("out")] == [0]
        with pytest.raises(RecordError, match=r"in-0@1 at node 'send'.*timestamp_ms is a number below 0"):
            driver.pipe_input("in", key="k", value=-1, timestamp_ms=5)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"timestamp_ms": 4.5}, "TypeError: forward: timestamp_ms is float, expected int"),
        ({"timestamp_ms": "5"}, "TypeError: forward: timestamp_ms is str, expected int"),
        ({"timestamp_ms": 2**63}, "forward: timestamp_ms is a number beyond 64 bits, expected epoch"),
        ({"headers": {"a": b"b"}}, "TypeError: forward: headers are dict, expected a list of pairs"),
        ({"headers": [("a", "b")]}, "TypeError: forward: headers are a list that holds something else"),
        ({"headers": ["ab"]}, "TypeError: forward: headers are a list that holds something else"),
    ],
)
def test_record_is_named_when_a_result_is_given_what_kafka_does_not_hold(
    given: dict[str, Any], found: str
) -> None:
    class Giving(Sending):
        def process(self, record: ProcessorRecord) -> None:
            self.context.forward(record.key, 1, **given)

    with TopologyTestDriver(topology(Giving), application_id="app") as driver:
        with pytest.raises(RecordError, match=f"in-0@0 at node 'send'.*{found}"):
            driver.pipe_input("in", key="k", value=0, timestamp_ms=5)
        assert driver.read_output("out") == []


class Committing(Processor):
    """Asks for a commit after each value that is a multiple of three."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: ProcessorRecord) -> None:
        self.context.forward(record.key, record.value)
        if record.value % 3 == 0:
            self.context.commit()


@pytest.mark.parametrize("cached", [False, True])
def test_commit_is_due_right_after_the_record_when_a_processor_asks(cached: bool) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("in").process(Committing).send_to("out")
    if cached:
        builder.stream("in").group_by_key().count(store="counts")
    sent: list[bytes] = []
    task = StreamTask(
        builder.build(),
        task_id=TaskId(subtopology=0, group=0),
        bounds={IN: (0, 8)},
        produce=lambda topic, value, *rest: sent.append(value),
        settings=ApplicationSettings.parse("app"),
        progress=TaskProgress(),
    )
    task.restored()
    task.open()
    task.add(
        IN,
        [FakeRecord(at=n, key_bytes=b"k", value_bytes=str(n + 1).encode(), timestamp_ms=n) for n in range(8)],
    )
    positions = []
    while task.process(1000):
        if task.commit_due(interval_elapsed=False):
            task.flush()
            positions.append(task.group.positions()[IN])
    assert positions == [3, 6]
    assert task.execution.complete


class AlwaysCommitting(Committing):
    """Asks for a commit when it starts and after whatever comes."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.commit()

    def process(self, record: ProcessorRecord) -> None:
        self.context.forward(record.key, record.value)
        self.context.commit()


@pytest.mark.parametrize("seed", range(5))
def test_emission_does_not_depend_on_crashes_when_a_commit_is_asked_for_below_a_cached_table(
    seed: int,
) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    counts = builder.stream("in").group_by_key().count(store="counts")
    counts.to_stream().process(AlwaysCommitting).send_to("out")
    task = TaskOnLogs(
        topology=builder.build(),
        logs={IN: log_of(IN, [(b"k%d" % (n % 3), b"1", n) for n in range(40)])},
        rng=random.Random(seed),
        crashes=seed,
        settings={"commit.every.records": 10},
    )
    task.run()
    assert [(w.key, w.value) for w in task.outputs] == [
        (b"k%d" % key, str(sum(n % 3 == key for n in range(end))).encode())
        for end in (10, 20, 30, 40)
        for key in ((end - 10 + first) % 3 for first in range(3))  # in order of first change
    ]
