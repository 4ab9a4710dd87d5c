from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.batch.inspect.doctor import Level, Subject, diagnose
from airflow_kstreams.explore import Sample, SampleRecord, explore
from airflow_kstreams.streams import KStreamBuilder, RecordError, Topology, TopologyError, serdes
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import InMemoryKafka, TopologyTestDriver
from tests.simulation.crash_points import one_after_the_other
from tests.support.kafka.in_process import Application
from tests.support.topology.bound_topology import BoundTopology, Output

Seen = list[tuple[Any, Any]]


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def _ends_in(seen: Seen) -> Topology:
    """A topology without sink."""
    builder = _builder()
    builder.stream("in").filter(lambda _, v: v != "skip").foreach(lambda k, v: seen.append((k, v)))
    return builder.build()


def test_action_sees_each_record_when_called() -> None:
    seen: Seen = []
    builder = _builder()
    stream = builder.stream("in")
    stream.foreach(lambda k, v: seen.append((k, v)))
    stream.send_to("out")
    bound = BoundTopology(builder.build())
    bound.pipe("in", "a", 1, timestamp_ms=5)
    bound.pipe("in", None, None, timestamp_ms=6)
    assert seen == [("a", 1), (None, None)]
    assert bound.read("out") == [Output("a", 1, 5), Output(None, None, 6)]


def test_stream_ends_when_called() -> None:
    ended: object = _builder().stream("in").foreach(print)  # type: ignore[func-returns-value]
    assert ended is None


def test_node_is_named_as_in_kafka_streams_when_described() -> None:
    text = _ends_in([]).describe()
    assert "Processor: KSTREAM-FOREACH-0000000002 (stores: [])" in text
    assert "Sink" not in text


def test_foreach_is_refused_when_no_function_is_given() -> None:
    with pytest.raises(TopologyError) as caught:
        _builder().stream("in").foreach(None)  # type: ignore[arg-type]
    assert f"foreach at {__file__}:" in caught.value.cause


def test_record_and_node_are_named_when_the_action_fails() -> None:
    builder = _builder()
    builder.stream("in").foreach(lambda k, v: 1 // v)
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        driver.pipe_input("in", key="a", value=1, timestamp_ms=0)
        with pytest.raises(RecordError) as caught:
            driver.pipe_input("in", key="a", value=0, timestamp_ms=0)
    assert (caught.value.node, caught.value.offset) == ("KSTREAM-FOREACH-0000000001", 1)


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_run_without_sink_reads_its_slice_and_commits_when_finished(guarantee: str) -> None:
    seen: Seen = []
    kafka = InMemoryKafka()
    kafka.create_topic("in", partitions=2)
    app = Application(
        application_id="app",
        topology=_ends_in(seen),
        on=kafka,
        clock=kafka.clock,
        settings={"processing.guarantee": guarantee},
    )

    def publish(*records: tuple[int, str]) -> None:
        writer = kafka.writer(transactional_id=None)
        for partition, value in records:
            writer.produce("in", f'"{value}"'.encode(), b"k", partition, 1, None)
        writer.flush()

    with one_after_the_other():
        publish((0, "a"), (0, "skip"), (1, "b"))
        first = app.run("one", order=(0, 1))
        publish((1, "c"))
        second = app.run("two", order=(0, 2))
        empty = app.run("three", order=(0, 3))

    assert sorted(seen[:2]) == [("k", "a"), ("k", "b")]
    assert seen[2:] == [("k", "c")]
    assert [run.empty for run in (first, second, empty)] == [False, False, True]
    zero, one = TopicPartition("in", 0), TopicPartition("in", 1)
    assert first.stops == {zero: 2, one: 1}
    assert second.stops == {zero: 2, one: 2}
    assert [(run.records_in, run.records_out) for run in (first, second)] == [(3, 0), (1, 0)]
    committed = kafka.reader(group_id="app").committed([zero, one])
    assert {partition: found.offset for partition, found in committed.items()} == {zero: 2, one: 2}
    assert (first.warnings, second.warnings) == ((), ())


def test_doctor_finds_all_well_with_the_topics_when_there_is_no_sink() -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("in", partitions=2)
    app = Application(application_id="app", topology=_ends_in([]), on=kafka, clock=kafka.clock)
    found = diagnose(kafka, Subject(plan=app.topology.plan("app"), settings=app.checked), clock=kafka.clock)
    assert [finding.level for finding in found if finding.check == "topics"] == [Level.OK]


def test_records_are_shown_where_they_end_when_explored() -> None:
    seen: Seen = []
    records = tuple(
        SampleRecord(topic="in", partition=0, offset=at, key=b"k", value=value, timestamp_ms=at)
        for at, value in enumerate([b'"a"', b'"skip"', b'"b"'])
    )
    shown = explore(_ends_in(seen), sample=Sample(records=records, partitions={"in": 1}))
    counts = shown.counts("KSTREAM-FOREACH-0000000002")
    assert (counts.records_in, counts.records_out, counts.failed) == (2, 0, 0)
    assert seen == [("k", "a"), ("k", "b")]
    assert shown.output_topics == ()
    assert "foreach" in str(shown)
