"""Histograms of parts add up to the histogram of the whole, and tell its quantiles within their error."""

from __future__ import annotations

import math
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kstreams.streams.figures.call_figures import MOST_BUCKETS, Latencies, LatencyRecorder

pytestmark = pytest.mark.promise("latencies-add-up")

Sample = tuple[float, int]


@st.composite
def parts(draw: st.DrawFn) -> list[Sample]:
    """Draw seconds and how many records share them: around one latency, or over so many powers of ten that
    they need a coarser scale.
    """
    random = Random(draw(st.integers(0, 10_000)))
    lowest, spread = draw(st.floats(-9, 3)), draw(st.sampled_from([0.0, 0.3, 2.0, 8.0]))
    samples = [
        (10 ** random.uniform(lowest, lowest + spread), random.randint(1, 5_000))
        for _ in range(draw(st.integers(0, 80)))
    ]
    return samples + draw(st.lists(st.just((0.0, 1)), max_size=1))


def recorded(samples: list[Sample]) -> Latencies:
    recorder = LatencyRecorder()
    for seconds, count in samples:
        recorder.record(seconds, count)
    return recorder.latencies()


@given(st.lists(parts(), max_size=5), st.randoms(use_true_random=False))
def test_parts_add_up_to_the_whole_when_they_are_merged_in_any_order_and_grouping(
    given_parts: list[list[Sample]], random: Random
) -> None:
    whole = recorded([sample for part in given_parts for sample in part])
    heap = [recorded(part) for part in given_parts] or [Latencies()]
    while len(heap) > 1:
        random.shuffle(heap)
        heap.append(heap.pop() + heap.pop())
    assert heap == [whole]
    assert msgspec.json.decode(msgspec.json.encode(whole), type=Latencies) == whole
    assert len(whole.buckets) <= 2 * MOST_BUCKETS


@given(parts().filter(bool), st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_quantile_is_within_its_error_when_compared_with_the_sorted_values(
    samples: list[Sample], share: float
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
