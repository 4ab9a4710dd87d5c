"""The task protocol on the real broker, task by task, without Spark."""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import RecordError, TaskFencedError, UpstreamNotDoneError
from dev.servers.embedded import tool_command
from tests.support.crash import Crash
from tests.support.kafka.in_process import Application

Produce = Callable[..., None]
Consume = Callable[..., list[Any]]
GUARANTEES = pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])


def pass_through(source: str, target: str) -> Topology:
    builder = KStreamBuilder()
    builder.stream(source, key_serde=serdes.string(), value_serde=serdes.json()).send_to(target)
    return builder.build()


def rekeyed_counts(source: str, target: str, on_record: Callable[[Any], None] = lambda _: None) -> Topology:
    builder = KStreamBuilder()

    def key_of(_: str, value: Any) -> str:
        on_record(value)
        return f"group-{value % 3}"

    (
        builder.stream(source, key_serde=serdes.string(), value_serde=serdes.json(int))
        .group_by(key_of, key_serde=serdes.string(), value_serde=serdes.json(int))
        .count(store="counts")
        .to_stream()
        .send_to(target, key_serde=serdes.string(), value_serde=serdes.int64())
    )
    return builder.build()


def latest(rows: list[Any]) -> dict[str, int]:
    return {row.key.decode(): int.from_bytes(row.value, "big") for row in rows}


def lags(bootstrap: str, group: str, topics: dict[str, int]) -> dict[tuple[str, int], int]:
    """Log end minus committed offset, the way lag tools compute it."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        wanted = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
        return {
            (found.topic, found.partition): consumer.get_watermark_offsets(found, timeout=30)[1]
            - found.offset
            for found in consumer.committed(wanted, timeout=30)
        }
    finally:
        consumer.close()


@pytest.fixture
def source(topic_name: Callable[..., str], create_topic: Callable[..., str]) -> str:
    return create_topic(topic_name("in"), 2)


@pytest.fixture
def target(topic_name: Callable[..., str], create_topic: Callable[..., str]) -> str:
    return create_topic(topic_name("out"), 2)


@GUARANTEES
def test_increment_holds_only_what_is_new_when_runs_follow_each_other(
    kafka: str,
    application_id: str,
    source: str,
    target: str,
    produce: Produce,
    consume_all: Consume,
    guarantee: str,
) -> None:
    application = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=rekeyed_counts(source, target),
        settings={"processing.guarantee": guarantee},
    )
    expected: Counter[str] = Counter()
    for increment, numbers in enumerate([range(50), range(50, 80), range(80, 81)]):
        produce(source, [(f"k{n}", n) for n in numbers])
        expected.update(f"group-{n % 3}" for n in numbers)
        summary = application.run(f"run-{increment}")
        by_task = {report.task_id: report for report in summary.tasks}
        first_stage = sum(report.records_in for task, report in by_task.items() if task.startswith("0_"))
        assert first_stage == len(numbers)
        assert latest(consume_all(target)) == expected
    empty = application.run("run-empty")
    assert empty.empty
    assert latest(consume_all(target)) == expected


@pytest.mark.parametrize("tail", ["commit marker", "abort marker", "aborted records", "open transaction"])
def test_stop_is_reached_and_lag_is_zero_when_the_tail_is_no_record(
    kafka: str,
    application_id: str,
    source: str,
    target: str,
    produce: Produce,
    consume_all: Consume,
    tail: str,
) -> None:
    produce(source, [{"key": "a", "value": 1, "partition": 0}])
    hanging: Producer | None = None
    if tail == "commit marker":
        produce(source, [{"key": "a", "value": 2, "partition": 0}], transactional_id=f"{source}-t")
    elif tail == "open transaction":
        hanging = Producer({"bootstrap.servers": kafka, "transactional.id": f"{source}-h"})
        hanging.init_transactions(30)
        hanging.begin_transaction()
        hanging.produce(source, b"9", b"a", partition=0)
        hanging.flush(30)
    else:
        count = 1 if tail == "abort marker" else 50
        rows = [{"key": "a", "value": 8, "partition": 0}] * count
        produce(source, rows, transactional_id=f"{source}-t", abort=True)
    application = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=pass_through(source, target),
        settings={"settle.ms": 200},
    )
    summary = application.run("run-1")
    expected = [1, 2] if tail == "commit marker" else [1]
    assert [row.json() for row in consume_all(target)] == expected
    assert summary.records_in == len(expected)
    if hanging is None:
        assert set(lags(kafka, application_id, {source: 2}).values()) == {0}
    else:
        hanging.commit_transaction(30)
        application.run("run-2")
        assert [row.json() for row in consume_all(target)] == [1, 9], "what was open belongs to the next run"


def test_outsiders_records_are_processed_when_a_user_topic_lies_between(
    kafka: str,
    application_id: str,
    source: str,
    target: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    produce: Produce,
    consume_all: Consume,
) -> None:
    middle = create_topic(topic_name("middle"), 3)
    builder = KStreamBuilder()
    stream = builder.stream(source, key_serde=serdes.string(), value_serde=serdes.json())
    stream.through(middle).map_values(lambda v: v * 10).send_to(target, value_serde=serdes.json())
    application = Application(bootstrap=kafka, application_id=application_id, topology=builder.build())
    produce(source, [("a", 1), ("b", 2)])
    produce(middle, [("c", 3)])
    application.run("run-1")
    assert sorted(row.json() for row in consume_all(target)) == [10, 20, 30]
    assert set(lags(kafka, application_id, {source: 2, middle: 3}).values()) == {0}
    produce(middle, [("d", 4)])
    second = application.run("run-2")
    assert not second.empty
    assert sorted(row.json() for row in consume_all(target)) == [10, 20, 30, 40]


def test_consumer_stage_is_refused_when_its_upstream_has_not_notified(
    kafka: str, application_id: str, source: str, target: str, produce: Produce
) -> None:
    produce(source, [(f"k{n}", n) for n in range(10)])
    application = Application(
        bootstrap=kafka, application_id=application_id, topology=rekeyed_counts(source, target)
    )
    slice_ = application.begin("run-1")
    application.task(slice_, 0, 0)
    with pytest.raises(UpstreamNotDoneError):
        application.task(slice_, 1, 0)


def test_slice_stays_and_resumes_when_a_record_cannot_be_decoded(
    kafka: str, application_id: str, source: str, target: str, produce: Produce, consume_all: Consume
) -> None:
    produce(source, [{"key": "a", "value": 1, "partition": 0}, {"key": "a", "value": b"{", "partition": 0}])
    produce(source, [{"key": "a", "value": 3, "partition": 0}])
    application = Application(
        bootstrap=kafka, application_id=application_id, topology=pass_through(source, target)
    )
    slice_ = application.begin("run-1")
    with pytest.raises(RecordError) as caught:
        application.task(slice_, 0, 0)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (source, 0, 1)
    assert consume_all(target) == [], "nothing of the failed attempt is visible"
    produce(source, [{"key": "a", "value": 4, "partition": 0}])
    builder = KStreamBuilder()
    lenient = serdes.json()
    mended = type(lenient)(
        id=lenient.id,
        serialize=lenient.serialize,
        deserialize=lambda b: -1 if b == b"{" else lenient.deserialize(b),
    )
    builder.stream(source, key_serde=serdes.string(), value_serde=mended).send_to(target)
    application.topology = builder.build()
    again = application.begin("run-1", (0, 2))
    assert again.inputs == slice_.inputs, "the slice is the one that failed, whatever arrived since"
    assert again.generation > slice_.generation
    application.tasks(again)
    application.finish("run-1")
    assert [row.json() for row in consume_all(target)] == [1, -1, 3]


@pytest.mark.parametrize("crash_at", [0, 1, 7, 39])
def test_every_result_comes_once_when_an_attempt_dies_between_commits(
    kafka: str,
    application_id: str,
    source: str,
    target: str,
    produce: Produce,
    consume_all: Consume,
    crash_at: int,
) -> None:
    crashed = threading.Event()

    def on_record(value: int) -> None:
        if value == crash_at and not crashed.is_set():
            crashed.set()
            raise Crash

    produce(source, [{"key": "k", "value": n, "partition": 0} for n in range(40)])
    application = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=rekeyed_counts(source, target, on_record),
        settings={"commit.every.records": 3},
    )
    slice_ = application.begin("run-1")
    with pytest.raises(Crash):
        application.task(slice_, 0, 0)
    reports = application.tasks(slice_)
    repartitioned = consume_all(f"{application_id}-counts-repartition")
    summary = application.finish("run-1")
    assert sorted(msgspec.json.decode(row.value) for row in repartitioned) == list(range(40))
    assert latest(consume_all(target)) == Counter(f"group-{n % 3}" for n in range(40))
    assert reports[0].records_in == 40, "the counters survive the crash"
    assert summary.records_in == 40


@pytest.mark.promise("zombies-change-nothing")
def test_older_attempt_stops_when_a_newer_one_takes_the_task_over(
    kafka: str, application_id: str, source: str, target: str, produce: Produce, consume_all: Consume
) -> None:
    waiting, go_on = threading.Event(), threading.Event()
    first = threading.current_thread()

    def on_record(value: int) -> None:
        if value == 5 and threading.current_thread() is not first:
            waiting.set()
            go_on.wait(60)

    produce(source, [{"key": "k", "value": n, "partition": 0} for n in range(20)])
    application = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=rekeyed_counts(source, target, on_record),
        settings={"commit.every.records": 2},
    )
    slice_ = application.begin("run-1")
    outcome: list[Any] = []

    def zombie() -> None:
        try:
            outcome.append(application.task(slice_, 0, 0))
        except TaskFencedError as error:
            outcome.append(error)

    thread = threading.Thread(target=zombie)
    thread.start()
    assert waiting.wait(60)
    application.tasks(slice_)
    go_on.set()
    thread.join(60)
    assert not thread.is_alive()
    assert outcome[0].outcome == "already_done", "the zombie found its stop committed by the newer attempt"
    repartitioned = consume_all(f"{application_id}-counts-repartition")
    assert sorted(msgspec.json.decode(row.value) for row in repartitioned) == list(range(20))
    application.finish("run-1")


def test_task_of_a_superseded_driver_writes_nothing_when_the_run_was_taken_over(
    kafka: str, application_id: str, source: str, target: str, produce: Produce, consume_all: Consume
) -> None:
    produce(source, [("k", 1)])
    application = Application(
        bootstrap=kafka, application_id=application_id, topology=pass_through(source, target)
    )
    old = application.begin("run-1", (0, 1))
    new = application.begin("run-1", (0, 2))
    with pytest.raises(TaskFencedError, match=f"generation {new.generation}"):
        for group in range(2):
            application.task(old, 0, group)
    assert consume_all(target) == []
    application.tasks(new)
    application.finish("run-1")
    assert [row.json() for row in consume_all(target)] == [1]


def test_state_is_restored_from_the_changelog_when_the_next_run_starts(
    kafka: str, application_id: str, source: str, target: str, produce: Produce, consume_all: Consume
) -> None:
    application = Application(
        bootstrap=kafka, application_id=application_id, topology=rekeyed_counts(source, target)
    )
    produce(source, [("k", n) for n in range(9)])
    application.run("run-1")
    produce(source, [("k", 0)])
    slice_ = application.begin("run-2")
    reports = application.tasks(slice_)
    application.finish("run-2")
    assert sum(report.restored for report in reports) == 3
    assert latest(consume_all(target)) == {"group-0": 4, "group-1": 3, "group-2": 3}


def test_kafkas_own_tool_shows_no_lag_when_a_run_is_finished(
    kafka: str, application_id: str, source: str, target: str, produce: Produce
) -> None:
    produce(source, [(f"k{n}", n) for n in range(20)], transactional_id=f"{source}-c")
    produce(source, [(f"k{n}", n) for n in range(5)], transactional_id=f"{source}-a", abort=True)
    application = Application(
        bootstrap=kafka, application_id=application_id, topology=rekeyed_counts(source, target)
    )
    application.run("run-1")
    command = tool_command(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        ["--bootstrap-server", kafka, "--describe", "--group", application_id],
    )
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    rows = [line.split() for line in told.splitlines() if line.startswith(application_id)]
    lag_by_partition = {(row[1], int(row[2])): row[5] for row in rows}
    topics = (source, f"{application_id}-counts-repartition")
    assert lag_by_partition == {(topic, number): "0" for topic in topics for number in range(2)}
