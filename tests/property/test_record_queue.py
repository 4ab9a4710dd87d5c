"""What a queue says of its records, for any timestamps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.records.record_queue import PartitionTimes, RecordQueue, lookahead_minima
from airflow_kstreams.streams.records.timestamp_reading import RecordTimestamps
from tests.support.topology.records import FakeRecord

_ALLOWED_MS = 25


@pytest.mark.promise("stream-time-follows-the-logs")
@given(st.lists(st.integers(0, 30), max_size=40), st.integers(0, 10), st.integers(0, 30), st.integers(1, 12))
def test_minimum_looks_ahead_as_far_as_the_window_when_timestamps_come_anyhow(
    timestamps: list[int], start: int, count: int, window: int
) -> None:
    count = min(count, max(len(timestamps) - start, 0))
    expected = [min(timestamps[i : i + window]) for i in range(start, start + count)]
    assert list(lookahead_minima(timestamps, start, count, window)) == expected


def queue_of(
    timestamps: list[int], *, buffered: int, more: int, interval_ms: tuple[int, int] | None
) -> RecordQueue:
    """Return a queue that is given its records.

    :param more: how many records below the stop are not fetched yet.
    """
    queue = RecordQueue(
        TopicPartition("in", 0),
        (0, len(timestamps) + more),
        buffered=buffered,
        times=PartitionTimes(),
        read_timestamps=RecordTimestamps(latest_ms=-1, allowed=lambda: _ALLOWED_MS),
        allowed=lambda: _ALLOWED_MS,
    )
    if interval_ms is not None:
        queue.keep_only(interval_ms)
    queue.add([FakeRecord(at=at, timestamp_ms=time_ms) for at, time_ms in enumerate(timestamps)])
    return queue


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=30),
    st.integers(1, 5),
    st.integers(0, 1),
    st.booleans(),
    st.none() | st.tuples(st.integers(0, 15), st.integers(16, 31)),
)
def test_record_taken_leaves_a_queue_as_one_that_was_advanced(
    timestamps: list[int], buffered: int, more: int, timed: bool, interval_ms: tuple[int, int] | None
) -> None:
    taking, advancing = (
        queue_of(timestamps, buffered=buffered, more=more, interval_ms=interval_ms) for _ in range(2)
    )
    ready = taking.most_ready() if timed else len(taking)
    for queue in (taking, advancing):
        queue.head(max(ready, 0))
        if timed and ready > 0:
            queue.head_times(ready)

    for _ in range(ready):
        taken = taking.take()
        advancing.advance(1)
        assert taken == taking.facts() == advancing.facts()
        assert len(taking) == len(advancing)
        assert taken.last_record == advancing.last_record
