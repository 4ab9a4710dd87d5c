"""The minimum over a window that looks ahead, for any timestamps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_kstreams.streams.records.record_queue import lookahead_minima


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(0, 10), st.integers(0, 30), st.integers(1, 12))
def test_minimum_looks_ahead_as_far_as_the_window_when_timestamps_come_anyhow(
    timestamps: list[int], start: int, count: int, window: int
) -> None:
    count = min(count, max(len(timestamps) - start, 0))
    expected = [min(timestamps[i : i + window]) for i in range(start, start + count)]
    assert list(lookahead_minima(timestamps, start, count, window)) == expected
