from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

import pytest

from airflow_kstreams.streams.bounded_read import BoundedRead, Patience
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError
from airflow_kstreams.streams.ports import Fetched, ReaderPort, TopicPartition
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


def test_the_silent_partitions_are_named_when_nothing_comes_for_too_long() -> None:
    script = Script(({A0: [0]}, {}))
    with pytest.raises(KafkaClientError, match="A-0, A-1: nothing could be read for 36 s"):
        offsets_of(bounded(script, {A0: (0, 9), A1: (0, 9)}))
    assert script.seconds == 37


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
