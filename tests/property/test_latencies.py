"""Histograms of parts add up to the histogram of the whole, and tell its quantiles within their error."""

from __future__ import annotations

import math
from random import Random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from airflow_kstreams.streams.latencies import MOST_BUCKETS, Latencies, LatencyRecorder

#: Seconds, from nothing to hours, over all magnitudes; and how many records share them.
SAMPLES = st.tuples(
    st.one_of(st.just(0.0), st.floats(-9, 4).map(lambda power: 10.0**power)), st.integers(1, 5_000)
)
PARTS = st.lists(st.lists(SAMPLES, max_size=30), max_size=6)


def recorded(samples: list[tuple[float, int]]) -> Latencies:
    recorder = LatencyRecorder()
    for seconds, count in samples:
        recorder.record(seconds, count)
    return recorder.latencies()


@given(PARTS, st.randoms(use_true_random=False))
def test_parts_add_up_to_the_whole_when_they_are_merged_in_any_order_and_grouping(
    parts: list[list[tuple[float, int]]], random: Random
) -> None:
    whole = recorded([sample for part in parts for sample in part])
    heap = [recorded(part) for part in parts] or [Latencies()]
    while len(heap) > 1:
        random.shuffle(heap)
        heap.append(heap.pop() + heap.pop())
    assert heap == [whole]
    assert msgspec.json.decode(msgspec.json.encode(whole), type=Latencies) == whole
    assert len(whole.buckets) <= 2 * MOST_BUCKETS


@given(st.lists(SAMPLES, min_size=1, max_size=40), st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_quantile_is_within_its_error_when_compared_with_the_sorted_values(
    samples: list[tuple[float, int]], share: float
) -> None:
    found = recorded(samples)
    ordered = sorted((round(seconds * 1e9) // count, count) for seconds, count in samples)
    left = math.ceil(share * sum(count for _, count in ordered))
    exact = 0
    for each, count in ordered:
        left, exact = left - count, each
        if left <= 0:
            break
    quantile = found.quantile_ns(share)
    assert quantile is not None
    error = 2 ** (0.5 / 2**found.scale) * (1 + 1e-9)
    if exact == 0:  # shares a bucket with one nanosecond
        assert quantile <= 2 ** (1 / 2**found.scale)
    else:
        assert exact / error <= quantile <= exact * error
    assert found.max_ns == ordered[-1][0]
    assert found.count == sum(count for _, count in ordered)
    assert found.total_ns == sum(round(seconds * 1e9) for seconds, _ in samples)
