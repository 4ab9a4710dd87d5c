"""Where a run starts, and what it refuses, when offsets expired and topics changed: whole runs on the real
broker, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.cimpl import NewPartitions

from airflow_kstreams.batch.protocol.slice.stops import Span, TaskShare, slice_of, without_partitions
from airflow_kstreams.batch.task.work import task_slice
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import DataLossError
from tests.conftest import read_rows
from tests.support.kafka.in_process import Application

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

Produce = Callable[..., None]
Consume = Callable[..., list[Any]]
TEXT = serdes.string()
SECONDS = 30.0


def through(source: str, middle: str, target: str) -> Topology:
    builder = KStreamBuilder()
    stream = builder.stream(source, key_serde=TEXT, value_serde=TEXT)
    stream.through(middle, key_serde=TEXT, value_serde=TEXT).send_to(target)
    return builder.build()


def sent_and_read_again(source: str, middle: str, target: str) -> Topology:
    builder = KStreamBuilder()
    builder.stream(source, key_serde=TEXT, value_serde=TEXT).send_to(middle)
    builder.stream(middle, key_serde=TEXT, value_serde=TEXT).send_to(target)
    return builder.build()


def counted_by_value(source: str, target: str) -> Topology:
    builder = KStreamBuilder()
    (
        builder.stream(source, key_serde=TEXT, value_serde=TEXT)
        .group_by(lambda _key, value: value, key_serde=TEXT, value_serde=TEXT)
        .count(store="counts")
        .to_stream()
        .send_to(target, key_serde=TEXT, value_serde=serdes.int64())
    )
    return builder.build()


def pass_through(source: str, target: str) -> Topology:
    builder = KStreamBuilder()
    builder.stream(source, key_serde=TEXT, value_serde=TEXT).send_to(target)
    return builder.build()


def rows(*values: object, partition: int = -1) -> list[dict[str, Any]]:
    return [{"key": str(value), "value": str(value), "partition": partition} for value in values]


def texts(found: list[Any]) -> list[str]:
    return sorted(row.value.decode() for row in found)


@pytest.fixture
def topics(topic_name: Callable[..., str], create_topic: Callable[..., str]) -> tuple[str, str, str]:
    """Input, intermediate and output topic, of two partitions each."""
    return (
        create_topic(topic_name("in"), 2),
        create_topic(topic_name("middle"), 2),
        create_topic(topic_name("out"), 2),
    )


@pytest.fixture
def expire(kafka_admin: AdminClient, application_id: str) -> Callable[[], None]:
    """What ``offsets.retention.minutes`` does to the group of an application that was paused for long."""

    def delete() -> None:
        kafka_admin.delete_consumer_groups([application_id])[application_id].result(SECONDS)

    return delete


@pytest.fixture
def recreate(
    kafka_admin: AdminClient, create_topic: Callable[..., str], wait_until: Callable[..., Any]
) -> Callable[[str], None]:
    def again(topic: str) -> None:
        kafka_admin.delete_topics([topic])[topic].result(SECONDS)
        wait_until(
            lambda: topic not in kafka_admin.list_topics(timeout=SECONDS).topics, f"the end of {topic}"
        )
        create_topic(topic, 2)

    return again


def commits(bootstrap: str, group: str, partition: TopicPartition) -> int:
    """How often a partition's offset was committed, as the broker's own log of offsets has it."""
    wanted = group.encode(), partition.topic.encode() + partition.partition.to_bytes(4, "big")
    return sum(
        wanted[0] in (row.key or b"") and (row.key or b"").endswith(wanted[1])
        for row in read_rows(bootstrap, "__consumer_offsets")
    )


def committed(bootstrap: str, group: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        wanted = [TopicPartition(topic, number) for number in range(2)]
        return [found.offset for found in consumer.committed(wanted, timeout=SECONDS)]
    finally:
        consumer.close()


@pytest.mark.parametrize("topology", [through, sent_and_read_again])
@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_old_records_stay_processed_when_the_offsets_of_an_intermediate_topic_expired(
    kafka: str,
    application_id: str,
    topics: tuple[str, str, str],
    produce: Produce,
    consume_all: Consume,
    expire: Callable[[], None],
    topology: Callable[..., Topology],
    policy: str,
) -> None:
    source, middle, target = topics
    app = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=topology(*topics),
        settings={"first.run.offsets": policy},
    )
    app.run("run-0")
    produce(source, rows(*range(20)))
    app.run("run-1")
    old = texts(consume_all(target))
    assert len(old) == 20
    expire()
    produce(source, rows("new"))
    produce(middle, rows("outsider"))
    app.run("run-2")
    assert texts(consume_all(target)) == sorted([*old, "new", "outsider"])


def test_counts_go_on_when_the_offsets_of_a_purged_repartition_topic_expired(
    kafka: str,
    application_id: str,
    topics: tuple[str, str, str],
    produce: Produce,
    consume_all: Consume,
    expire: Callable[[], None],
) -> None:
    source, _, target = topics
    app = Application(
        bootstrap=kafka, application_id=application_id, topology=counted_by_value(source, target)
    )
    produce(source, rows(*"aaab"))
    app.run("run-1")
    expire()
    produce(source, rows(*"ab"))
    app.run("run-2")
    counts = {row.key.decode(): int.from_bytes(row.value, "big") for row in consume_all(target)}
    assert counts == {"a": 4, "b": 2}


def test_no_record_is_lost_when_partitions_are_added_to_an_intermediate_topic_under_latest(
    kafka: str,
    application_id: str,
    topics: tuple[str, str, str],
    produce: Produce,
    consume_all: Consume,
    kafka_admin: AdminClient,
    wait_until: Callable[..., Any],
) -> None:
    source, middle, target = topics
    app = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=through(*topics),
        settings={"first.run.offsets": "latest"},
    )
    app.run("run-0")
    produce(source, rows(*range(20)))
    slice_ = app.begin("run-1")
    kafka_admin.create_partitions([NewPartitions(middle, 4)])[middle].result(SECONDS)
    wait_until(
        lambda: len(kafka_admin.list_topics(middle, timeout=SECONDS).topics[middle].partitions) == 4,
        "the new partitions",
    )
    app.tasks(slice_)
    app.finish("run-1")
    assert {row.partition for row in consume_all(middle)} == {0, 1, 2, 3}
    assert len(consume_all(target)) < 20
    app.run("run-2")
    assert texts(consume_all(target)) == sorted(map(str, range(20)))


@pytest.mark.parametrize("later", [3, 20])
def test_loss_is_an_error_at_once_when_a_topic_is_created_again_while_a_run_is_under_way(
    kafka: str,
    application_id: str,
    topics: tuple[str, str, str],
    produce: Produce,
    consume_all: Consume,
    recreate: Callable[[str], None],
    later: int,
) -> None:
    source, _, target = topics
    app = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=pass_through(source, target),
        settings={"run.stall.timeout.ms": 4_000},
    )
    produce(source, rows(*range(10), partition=0))
    slice_ = app.begin("run-1")
    recreate(source)
    produce(source, rows(*(f"other-{number}" for number in range(later)), partition=0))
    text = rf"topic {source} is not the one run 'run-1' began with: its id is \S+, expected \S+"
    with pytest.raises(DataLossError, match=text):
        app.task(slice_, 0, 0)
    with pytest.raises(DataLossError, match=text):
        app.begin("run-1", order=(0, 2))
    assert consume_all(target) == []


def test_loss_is_an_error_when_a_tasks_log_ends_before_its_stop(
    kafka: str, application_id: str, topics: tuple[str, str, str], produce: Produce
) -> None:
    source, _, target = topics
    app = Application(bootstrap=kafka, application_id=application_id, topology=pass_through(source, target))
    produce(source, rows(*range(10), partition=0))
    slice_ = app.begin("run-1")
    common = without_partitions(slice_)
    longer, idle = TaskShare(0, 0, (Span(0, 0, 0, 15),)), TaskShare(0, 1, (Span(0, 1, 0, 0),))
    admin, reader = app.cluster.admin(), app.cluster.reader(group_id=application_id)
    try:
        assert task_slice(slice_of(common, idle), idle, reader, admin).processed is True
        with pytest.raises(
            DataLossError, match=f"{source}-0: the log ends at 10, but run 'run-1' stops at 15"
        ):
            task_slice(slice_of(common, longer), longer, reader, admin)
    finally:
        reader.close()
        admin.close()


def test_run_is_empty_when_inputs_hold_nothing_but_markers_and_aborted_records(
    kafka: str,
    application_id: str,
    topics: tuple[str, str, str],
    produce: Produce,
    consume_all: Consume,
) -> None:
    source, _, target = topics
    app = Application(bootstrap=kafka, application_id=application_id, topology=pass_through(source, target))
    produce(source, rows("a", partition=0))
    app.run("run-1")
    assert committed(kafka, application_id, source) == [1, 0]
    produce(source, rows("void", "void", partition=0), transactional_id=f"{source}-0", abort=True)
    produce(source, rows("void", partition=1), transactional_id=f"{source}-1", abort=True)
    slice_ = app.begin("run-2")
    assert slice_.plan.empty
    assert [part.stop_offset for part in slice_.inputs] == [4, 2]
    assert committed(kafka, application_id, source) == [4, 2]
    assert app.finish("run-2").empty
    produce(source, rows("void", partition=0), transactional_id=f"{source}-0", abort=True)
    produce(source, rows("b", partition=1))
    summary = app.run("run-3")
    assert not summary.empty
    assert texts(consume_all(target)) == ["a", "b"]
    assert committed(kafka, application_id, source) == [6, 3]


def test_offset_of_a_quiet_partition_is_committed_again_when_only_others_go_on(
    kafka: str, application_id: str, topics: tuple[str, str, str], produce: Produce
) -> None:
    source, _, target = topics
    application = Application(
        bootstrap=kafka, application_id=application_id, topology=pass_through(source, target)
    )
    produce(source, rows(1, partition=0) + rows(2, partition=1))
    application.run("run-1")
    before = commits(kafka, application_id, TopicPartition(source, 1))
    produce(source, rows(3, partition=0))
    application.run("run-2")
    assert commits(kafka, application_id, TopicPartition(source, 1)) > before > 0, "or it expires some day"
    assert committed(kafka, application_id, source) == [2, 1]
