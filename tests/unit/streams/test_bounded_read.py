from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

import pytest

from airflow_kstreams.streams.bounded_read import (
    PORTION_BYTES,
    PORTION_OFFSETS,
    BoundedRead,
    Patience,
    partition_portions,
    portions,
)
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError
from airflow_kstreams.streams.ports import CommittedOffset, Fetched, ReaderPort, TopicPartition
from airflow_kstreams.testing import InMemoryKafka
from tests.support.topology.records import FakeRecord

A0, A1 = TopicPartition("A", 0), TopicPartition("A", 1)


class Script:
    """A reader that gives what it was made with, one fetch a second, then nothing; and its clock."""

    def __init__(self, *fetches: tuple[dict[TopicPartition, list[int]], dict[TopicPartition, int]]) -> None:
        self.fetches = list(fetches)
        self.calls: list[tuple[str, Any]] = []
        self.seconds = 0.0

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        self.calls.append(("assign", dict(starts)))

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("pause", sorted(partitions)))

    def poll(self, *, max_records: int, timeout_seconds: float) -> Fetched:
        self.seconds += 1
        offsets, ends = self.fetches.pop(0) if self.fetches else ({}, {})
        return Fetched({tp: [record(tp, at) for at in found] for tp, found in offsets.items()}, ends)

    def monotonic_seconds(self) -> float:
        return self.seconds


def record(partition: TopicPartition, at: int) -> Any:
    return FakeRecord(at=at, in_topic=partition.topic, in_partition=partition.partition)


def bounded(script: Script, spans: dict[TopicPartition, tuple[int, int]], **options: Any) -> BoundedRead:
    return BoundedRead(cast("ReaderPort", script), spans, clock=cast("Any", script), **options)


def offsets_of(read: BoundedRead) -> list[dict[TopicPartition, list[int]]]:
    return [{tp: [r.offset() for r in records] for tp, records in fetched.items()} for fetched in read]


def test_what_lies_in_the_spans_is_given_when_a_fetch_goes_past_their_ends() -> None:
    script = Script(({A0: [3, 5, 6]}, {}), ({A0: [7], A1: [0]}, {A1: 9}))
    read = bounded(script, {A0: (3, 6), A1: (0, 9), TopicPartition("A", 2): (4, 4)})
    assert offsets_of(read) == [{A0: [3, 5]}, {A1: [0]}]
    assert read.positions == {A0: 6, A1: 9}
    assert script.calls == [("assign", {A0: 3, A1: 0}), ("pause", [A0]), ("assign", {})]


def test_the_reader_is_left_alone_when_there_is_nothing_to_read() -> None:
    script = Script()
    assert offsets_of(bounded(script, {A0: (4, 4)})) == []
    assert script.calls == []


def test_the_read_goes_on_to_an_end_of_partition_when_whole_transactions_are_wanted() -> None:
    script = Script(({A0: [0, 1, 2]}, {}), ({A0: [3]}, {}), ({}, {A0: 5}))
    read = bounded(script, {A0: (0, 2)}, whole_transactions=True)
    assert offsets_of(read) == [{A0: [0, 1, 2]}, {A0: [3]}, {}]
    assert read.positions == {A0: 5}


def test_dropped_partitions_are_paused_and_given_no_more_when_others_go_on() -> None:
    script = Script(({A0: [0], A1: [0]}, {}), ({A0: [1], A1: [1]}, {}))
    read = bounded(script, {A0: (0, 9), A1: (0, 2)})
    seen = []
    for fetched in read:
        seen.append(set(fetched))
        read.drop([A0])
    assert seen == [{A0, A1}, {A1}]
    assert ("pause", [A0]) in script.calls


def test_the_read_ends_when_it_is_stopped() -> None:
    script = Script(({A0: [0]}, {}))
    read = bounded(script, {A0: (0, 9)})
    for _ in read:
        read.stop()
    assert script.calls[-1] == ("assign", {})
    assert script.seconds == 1


@pytest.mark.remedy("bounded_read.unanswered")
def test_the_silent_partitions_are_named_when_nothing_comes_for_too_long() -> None:
    script = Script(({A0: [0]}, {}))
    with pytest.raises(KafkaClientError, match="A-0, A-1: nothing could be read for 36 s"):
        offsets_of(bounded(script, {A0: (0, 9), A1: (0, 9)}))
    assert script.seconds == 37
    up = Script(({A0: [0]}, {A0: 9}), ({A1: [4]}, {A1: 9}))
    assert offsets_of(bounded(up, {A0: (0, 9), A1: (0, 9)})) == [{A0: [0]}, {A1: [4]}]


@pytest.mark.parametrize(("since", "given_up_at"), [("anything", 15), ("record", 13), ("start", 11)])
def test_the_wait_is_counted_from_what_the_caller_says_when_an_end_or_a_record_comes(
    since: Any, given_up_at: float
) -> None:
    script = Script(({A0: [0]}, {}), ({A1: [0]}, {}), ({}, {}), ({}, {A0: 4}))
    patience = Patience(seconds=10, since=since, error=lambda left, _: ConfigError(str(left), fix="none"))
    with pytest.raises(ConfigError, match=r"partition=0.*partition=1"):
        offsets_of(bounded(script, {A0: (0, 9), A1: (0, 9)}, patience=patience))
    assert script.seconds == given_up_at


def test_the_read_ends_incomplete_when_no_error_is_wanted() -> None:
    script = Script(({A0: [0]}, {}))
    read = bounded(script, {A0: (0, 9)}, patience=Patience(seconds=5, since="start", error=None))
    assert offsets_of(read)[0] == {A0: [0]}
    assert read.positions == {A0: 1}
    assert script.calls[-1] == ("assign", {})


def offsets(count: int, metadata: str) -> dict[TopicPartition, CommittedOffset]:
    return {TopicPartition("in", number): CommittedOffset(number, metadata) for number in range(count)}


@pytest.mark.promise("offset-commits-fit")
@pytest.mark.parametrize(
    ("count", "metadata"), [(0, ""), (1, "x" * 4096), (3_400, "x" * 298), (999, "é" * 2000)]
)
def test_portions_are_small_and_hold_everything_when_many_offsets_are_committed(
    count: int, metadata: str
) -> None:
    wanted = offsets(count, metadata)
    found = list(portions(wanted))
    assert [tp for portion in found for tp in portion] == list(wanted)
    assert {tp: at for portion in found for tp, at in portion.items()} == wanted
    assert all(0 < len(portion) <= PORTION_OFFSETS for portion in found)
    sizes = [sum(len(at.metadata.encode()) for at in portion.values()) for portion in found]
    assert max(sizes, default=0) <= PORTION_BYTES


@pytest.mark.promise("offset-commits-fit")
def test_partitions_are_asked_for_in_portions() -> None:
    wanted = list(offsets(2 * PORTION_OFFSETS + 1, ""))
    found = list(partition_portions(wanted))
    assert [len(portion) for portion in found] == [PORTION_OFFSETS, PORTION_OFFSETS, 1]
    assert [tp for portion in found for tp in portion] == wanted


@pytest.mark.promise("offset-commits-fit")
def test_offsets_in_portions_are_seen_together_when_one_transaction_commits_them() -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("in", partitions=3_400)
    wanted = offsets(3_400, "x" * 298)
    writer = kafka.writer(transactional_id="app-0_0")
    reader = kafka.reader(group_id="app", isolation="read_uncommitted")
    writer.init_transactions()
    writer.begin()
    writer.send_offsets(wanted, reader)
    assert reader.committed(wanted) == {}
    writer.commit()
    assert reader.committed(wanted) == wanted


@pytest.mark.promise("offset-commits-fit")
def test_offsets_are_committed_in_portions_outside_transactions_too() -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("in", partitions=3_400)
    reader = kafka.reader(group_id="g" * 200)
    reader.commit(offsets(3_400, "x" * 298))
    assert reader.committed(offsets(3_400, "")) == offsets(3_400, "x" * 298)
