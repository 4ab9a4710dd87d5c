from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.records import record_queue
from airflow_kstreams.streams.records.partition_group import PartitionGroup
from airflow_kstreams.streams.records.record_queue import PartitionTimes, lookahead_minima
from tests.support.topology.records import FakeRecord

pytestmark = pytest.mark.promise("stream-time-follows-the-logs")

A, A1, B = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def records(partition: TopicPartition, *timestamps: int, first: int = 0) -> list[FakeRecord]:
    return [
        FakeRecord(
            at=first + n, timestamp_ms=time_ms, in_topic=partition.topic, in_partition=partition.partition
        )
        for n, time_ms in enumerate(timestamps)
    ]


def drain(group: PartitionGroup, limit: int = 1000) -> list[tuple[TopicPartition, int, int]]:
    """Process everything that may be chosen: (partition, timestamp, stream time of its topic)."""
    order = []
    while (run := group.choose(limit)) is not None:
        group.advance(run.partition, len(run.records))
        order += [
            (run.partition, timestamp_ms, time_ms)
            for timestamp_ms, time_ms in zip(run.timestamps_ms, run.stream_times_ms, strict=True)
        ]
    return order


def test_partition_time_is_the_smallest_of_the_buffer_when_records_come_out_of_order() -> None:
    group = PartitionGroup({A: (0, 5)}, buffered=3, timed=True)
    group.add(A, records(A, 50, 10, 40, 60, 30))
    assert [time_ms for _, _, time_ms in drain(group)] == [10, 10, 30, 30, 30]
    assert group.partition_times()[A] == (30, 60)


def test_a_lone_partition_waits_for_a_full_buffer_when_stream_time_is_asked_for() -> None:
    group = PartitionGroup({A: (0, 9)}, buffered=3, timed=True)
    group.add(A, records(A, 5, 4))
    assert group.choose(10) is None, "a smaller timestamp may still come"
    group.add(A, records(A, 1, 9, first=2))
    assert [time_ms for _, _, time_ms in drain(group)] == [1, 1]


def test_partition_time_does_not_go_back_when_an_earlier_run_was_further() -> None:
    group = PartitionGroup({A: (0, 2)}, buffered=3, timed=True, times={A: PartitionTimes(70, 90, 70)})
    group.add(A, records(A, 50, 80))
    assert [time_ms for _, _, time_ms in drain(group)] == [70, 80]
    assert group.partition_times()[A] == (80, 90)


def test_partition_time_stands_still_when_its_records_lie_ahead_of_another_partition() -> None:
    group = PartitionGroup({A: (0, 2), B: (0, 1)}, buffered=3, timed=True)
    group.add(A, records(A, 10, 20))
    group.add(B, records(B, 5_000))
    run = group.choose(10)
    assert run is not None
    assert (run.partition, list(run.stream_times_ms)) == (A, [10, 20])
    assert group.partition_times()[B] == (-1, -1), "b has not got there yet"


def test_stream_time_is_the_smallest_of_its_partitions_when_a_task_reads_several() -> None:
    group = PartitionGroup({A: (0, 2), A1: (0, 2)}, buffered=5, timed=True)
    group.add(A, records(A, 10, 40))
    group.add(A1, records(A1, 20, 30))
    assert drain(group) == [(A, 10, 10), (A1, 20, 20), (A1, 30, 30), (A, 40, 40)]


def test_finished_partition_holds_time_back_no_longer_when_another_goes_on() -> None:
    group = PartitionGroup({A: (0, 1), A1: (0, 3)}, buffered=5, timed=True)
    group.add(A, records(A, 10))
    group.add(A1, records(A1, 20, 30, 40))
    assert [time_ms for _, _, time_ms in drain(group)] == [10, 20, 30, 40]


def test_choice_ends_earlier_when_user_code_stops_it() -> None:
    group = PartitionGroup({A: (0, 4)}, buffered=2, timed=True)
    group.add(A, records(A, 10, 20, 30, 40))
    assert group.choose(4) is not None
    group.advance(A, 1)
    assert (group.positions()[A], group.partition_times()[A]) == (1, (10, 10))
    assert [timestamp_ms for _, timestamp_ms, _ in drain(group)] == [20, 30, 40]


@pytest.mark.parametrize("last", [1, 2, 7])
def test_partition_is_complete_when_the_record_before_its_stop_arrived(last: int) -> None:
    group = PartitionGroup({A: (0, last + 1)}, buffered=100, timed=True)
    group.add(A, records(A, 5, first=last))
    assert group.unfinished() == []
    assert len(drain(group)) == 1


def test_buffers_are_looked_through_once_when_partitions_alternate_record_by_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[int] = []

    def counting(timestamps: Sequence[int], start: int, count: int, window: int) -> Sequence[int]:
        counted.append(count)
        return lookahead_minima(timestamps, start, count, window)

    monkeypatch.setattr(record_queue, "lookahead_minima", counting)
    group = PartitionGroup({A: (0, 100), B: (0, 100)}, buffered=10, timed=True)
    group.add(A, records(A, *range(0, 200, 2)))
    group.add(B, records(B, *range(1, 201, 2)))
    assert len(drain(group)) == 200
    assert counted == [100, 100], "or each record costs as much as a buffer is long"


def test_nothing_is_left_out_twice_when_a_fetch_begins_at_the_stop_offset() -> None:
    group = PartitionGroup({A: (0, 4)}, buffered=5, timed=True)
    group.keep_only(A, (0, 10))
    group.add(A, records(A, 5, 99))
    group.add(A, records(A, 6, first=4))
    assert [timestamp_ms for _, timestamp_ms, _ in drain(group)] == [5]
    assert group.complete
    assert (group.positions()[A], group.skipped) == (4, 1)


class _Watched(list[int]):
    """Timestamps that note how many were looked at."""

    looked_at = 0

    def __getitem__(self, index: Any) -> Any:
        self.looked_at += 1
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[int]:
        for timestamp_ms in super().__iter__():
            self.looked_at += 1
            yield timestamp_ms


def test_choice_looks_at_no_more_records_when_many_of_the_same_fetch_were_processed() -> None:
    count = 2_000
    group = PartitionGroup({A: (0, count), B: (0, count)}, buffered=1)
    for partition, odd in ((A, 0), (B, 1)):
        group.add(partition, records(partition, *range(odd, 2 * count, 2)))
    queue = group._queues[A]
    queue._timestamps = watched = _Watched(queue._timestamps)
    for _ in range(2 * count - 2):
        run = group.choose(count)
        assert run is not None and len(run.records) == 1
        group.advance(run.partition, 1)
    assert watched.looked_at <= 12 * count
