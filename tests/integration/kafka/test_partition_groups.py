"""Partition groups of the user's own: whole runs on the real broker, task by task, without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.protocol.slice.metadata import RunState, read_metadata
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.streams import (
    FixedGroups,
    KStreamBuilder,
    PartitionGrouper,
    TopicPartition,
    Topology,
    serdes,
)
from airflow_kstreams.streams.errors import TopologyError
from tests.support.kafka.in_process import Application

Produce = Callable[..., None]
Consume = Callable[..., list[Any]]
TEXT = serdes.string()
SECONDS = 30.0


class Neighbours:
    """Partitions 0 and 1 of each topic together, 2 and 3 together, and so on, as in the spec's example."""

    id = "neighbours"

    def group(self, partitions_per_topic: Mapping[str, int]) -> list[set[TopicPartition]]:
        groups: list[set[TopicPartition]] = [
            set() for _ in range((max(partitions_per_topic.values()) + 1) // 2)
        ]
        for topic, count in partitions_per_topic.items():
            for number in range(count):
                groups[number // 2].add(TopicPartition(topic, number))
        return groups


class OneMoved(Neighbours):
    """The same, but partition 1 went to the second group."""

    def group(self, partitions_per_topic: Mapping[str, int]) -> list[set[TopicPartition]]:
        first, second, *others = super().group(partitions_per_topic)
        moved = {partition for partition in first if partition.partition == 1}
        return [first - moved, second | moved, *others]


def counts(source: str, target: str, grouper: PartitionGrouper | None) -> Topology:
    """Counts by key as the records come, so a group's count of a key spans its partitions."""
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT, partition_grouper=grouper)
    builder.stream(source).group_by_key().count(store="counts").to_stream().send_to(
        target, value_serde=serdes.int64()
    )
    return builder.build()


def two_stages(source: str, middle: str, target: str, grouper: PartitionGrouper) -> Topology:
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT, partition_grouper=grouper)
    builder.stream(source).through(middle).send_to(target)
    return builder.build()


def rows(*placed: tuple[str, int]) -> list[dict[str, Any]]:
    """``rows(("key", partition))``."""
    return [
        {"key": key, "value": f"{key}{partition}", "partition": partition, "timestamp_ms": number}
        for number, (key, partition) in enumerate(placed)
    ]


def totals(found: list[Any]) -> Counter[str]:
    """The largest count of each key; the keys of these tests keep to one group."""
    largest: Counter[str] = Counter()
    for row in found:
        key = row.key.decode()
        largest[key] = max(largest[key], int.from_bytes(row.value, "big"))
    return largest


def lag(app: Application, topic: str, partitions: int) -> dict[int, int]:
    """What lag tools show: log end minus committed offset."""
    admin, reader = app.cluster.admin(), app.cluster.reader(group_id=app.application_id)
    wanted = [TopicPartition(topic, number) for number in range(partitions)]
    try:
        ends = admin.end_offsets(wanted, isolation="read_uncommitted")
        committed = reader.committed(wanted)
        return {tp.partition: ends[tp] - committed[tp].offset for tp in wanted}
    finally:
        reader.close()
        admin.close()


@pytest.fixture
def source(topic_name: Callable[..., str], create_topic: Callable[..., str]) -> str:
    return create_topic(topic_name("in"), 4)


@pytest.fixture
def target(topic_name: Callable[..., str], create_topic: Callable[..., str]) -> str:
    return create_topic(topic_name("out"), 2)


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_state_stays_with_its_group_when_runs_follow_and_a_partition_may_not_move(
    kafka: str,
    application_id: str,
    source: str,
    target: str,
    produce: Produce,
    consume_all: Consume,
    guarantee: str,
) -> None:
    app = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=counts(source, target, Neighbours()),
        settings={"processing.guarantee": guarantee},
    )
    # "a" lies in both partitions of group 0, "b" in both of group 1.
    produce(source, rows(("a", 0), ("a", 1), ("b", 2), ("b", 3), ("a", 1)))
    first = app.run("run-1")
    assert [(task.task_id, task.records_in) for task in first.tasks] == [("0_0", 3), ("0_1", 2)]
    assert totals(consume_all(target)) == Counter(a=3, b=2)
    changelog = f"{application_id}-counts-changelog"
    assert {(row.key, row.partition) for row in consume_all(changelog)} == {(b"a", 0), (b"b", 1)}

    produce(source, rows(("a", 0), ("b", 3)))
    second = app.run("run-2")
    assert sum(task.restored for task in second.tasks) == 2
    assert totals(consume_all(target)) == Counter(a=4, b=3)
    assert set(lag(app, source, 4).values()) == {0}
    recorded = read_ledger(app.cluster, application_id).assignment
    assert (recorded.version, recorded.run_id) == (1, "run-1")
    assert recorded.subtopologies["0"].groups == ({source: (0, 1)}, {source: (2, 3)})

    produce(source, rows(("a", 1)))
    before = len(consume_all(target))
    moved = replace(app, topology=counts(source, target, OneMoved()))
    with pytest.raises(TopologyError, match=f"{source}-1 from group 0 to group 1") as caught:
        moved.begin("run-3")
    assert "as run 'run-1' did" in caught.value.fix
    assert read_metadata(app.cluster, application_id).state is RunState.FINISHED
    assert len(consume_all(target)) == before
    app.run("run-3")
    assert totals(consume_all(target)) == Counter(a=5, b=3)
    assert set(lag(app, source, 4).values()) == {0}


def test_retry_keeps_the_groups_it_began_with_when_the_grouper_answers_otherwise(
    kafka: str, application_id: str, source: str, target: str, produce: Produce, consume_all: Consume
) -> None:
    app = Application(
        bootstrap=kafka, application_id=application_id, topology=counts(source, target, Neighbours())
    )
    produce(source, rows(("a", 0), ("a", 1), ("b", 2)))
    slice_ = app.begin("run-1")
    app.task(slice_, 0, 0)
    # The same id, hence the same topology hash: what is frozen decides.
    later = replace(app, topology=counts(source, target, OneMoved()))
    again = later.begin("run-1", order=(0, 2))
    assert again.plan.groups == slice_.plan.groups
    assert {report.task_id: report.outcome for report in later.tasks(again)} == {
        "0_0": "already_done",
        "0_1": "done",
    }
    later.finish("run-1")
    assert totals(consume_all(target)) == Counter(a=2, b=1)


def test_new_partitions_join_the_groups_when_a_stateful_input_grew(
    kafka: str,
    application_id: str,
    source: str,
    target: str,
    produce: Produce,
    consume_all: Consume,
    grow: Callable[[str, int], None],
) -> None:
    app = Application(bootstrap=kafka, application_id=application_id, topology=counts(source, target, None))
    keys = [f"k{number}" for number in range(40)]
    produce(source, [{"key": key, "value": "v"} for key in keys])
    app.run("run-1")
    grow(source, 8)
    produce(source, [{"key": key, "value": "v"} for key in keys])
    summary = app.run("run-2")
    assert len(summary.tasks) == 4
    recorded = read_ledger(app.cluster, application_id).assignment
    assert (recorded.version, recorded.run_id) == (2, "run-2")
    assert recorded.subtopologies["0"].boundaries, "what is new waits for what came before it"
    app.run("run-3")
    assert totals(consume_all(target)) == Counter(dict.fromkeys(keys, 2))
    assert set(lag(app, source, 8).values()) == {0}


def test_nothing_is_pinned_when_a_run_had_no_records(
    kafka: str, application_id: str, source: str, target: str, produce: Produce, consume_all: Consume
) -> None:
    app = Application(
        bootstrap=kafka, application_id=application_id, topology=counts(source, target, Neighbours())
    )
    assert app.run("run-1").empty
    assert read_ledger(app.cluster, application_id).assignment.version == 0
    other = replace(app, topology=counts(source, target, OneMoved()))
    produce(source, rows(("a", 1), ("a", 2), ("b", 0)))
    other.run("run-2")
    assert totals(consume_all(target)) == Counter(a=2, b=1)


def test_nothing_is_pinned_when_begin_dies_before_its_commit(
    kafka: str,
    application_id: str,
    source: str,
    target: str,
    produce: Produce,
    consume_all: Consume,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class DiedError(Exception): ...

    def die(*_: Any, **__: Any) -> None:
        raise DiedError

    app = Application(
        bootstrap=kafka, application_id=application_id, topology=counts(source, target, Neighbours())
    )
    produce(source, rows(("a", 1), ("a", 2), ("b", 0)))
    with monkeypatch.context() as patch, pytest.raises(DiedError):
        patch.setattr(CoordinatorSession, "write", die)
        app.begin("run-1")
    assert read_ledger(app.cluster, application_id).assignment.version == 0
    replace(app, topology=counts(source, target, OneMoved())).run("run-1")
    assert totals(consume_all(target)) == Counter(a=2, b=1)


def test_every_partition_notifies_when_groups_differ_on_both_sides_of_a_topic(
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
    app = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=two_stages(source, middle, target, Neighbours()),
    )
    produce(source, rows(*((f"k{n}", n % 4) for n in range(20))))
    slice_ = app.begin("run-1")
    assert slice_.plan.tasks == {"0": 2, "1": 2}
    for group in (1, 0):
        app.task(slice_, 0, group)
    assert read_metadata(app.cluster, application_id).done == {(0, 0), (0, 1)}
    for group in (1, 0):
        app.task(slice_, 1, group)
    app.finish("run-1")
    assert sorted(row.value.decode() for row in consume_all(target)) == sorted(
        f"k{n}{n % 4}" for n in range(20)
    )
    assert set(lag(app, source, 4).values()) | set(lag(app, middle, 3).values()) == {0}

    # Nothing but offsets is kept per group here, so the next run may group anew.
    produce(source, rows(("late", 3)))
    regrouped = replace(app, topology=two_stages(source, middle, target, FixedGroups(3)))
    assert regrouped.begin("run-2").plan.tasks == {"0": 3, "1": 3}
    regrouped.run("run-2", order=(0, 2))
    assert sum(row.key == b"late" for row in consume_all(target)) == 1
    assert set(lag(app, source, 4).values()) | set(lag(app, middle, 3).values()) == {0}
