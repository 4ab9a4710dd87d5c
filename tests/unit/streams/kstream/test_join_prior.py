from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, SlidingWindow, serdes
from tests.support.topology.bound_topology import BoundTopology, Output


def _bound(*, left_ms: int = 10, right_ms: int = 5) -> BoundTopology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    left = builder.stream("left").with_window(SlidingWindow(size_ms=left_ms, grace_ms=20))
    right = builder.stream("right").with_window(SlidingWindow(size_ms=right_ms, grace_ms=20))
    left.join_prior(right, lambda left, right: [left, right]).send_to("out")
    return BoundTopology(builder.build())


@pytest.mark.parametrize(
    ("first", "second", "time_ms", "matches"),
    [
        ("left", "right", 101, True),
        ("left", "right", 110, True),
        ("left", "right", 111, False),
        ("right", "left", 101, True),
        ("right", "left", 105, True),
        ("right", "left", 106, False),
        # Equal times are not prior, nor is a later one.
        ("left", "right", 100, False),
        ("right", "left", 100, False),
        ("left", "right", 99, False),
        ("right", "left", 99, False),
    ],
)
def test_element_meets_older_ones_only_when_either_side_arrives_last(
    first: str, second: str, time_ms: int, matches: bool
) -> None:
    bound = _bound()
    bound.pipe(first, "a", first, timestamp_ms=100)
    bound.pipe(second, "a", second, timestamp_ms=time_ms)
    assert bound.read("out") == ([Output("a", ["left", "right"], time_ms)] if matches else [])


def test_pair_is_found_in_one_arrival_order_only_when_times_differ() -> None:
    bound = _bound()
    bound.pipe("left", "a", 1, timestamp_ms=103)
    bound.pipe("right", "a", 2, timestamp_ms=100)
    assert bound.read("out") == []
    bound.pipe("left", "a", 3, timestamp_ms=103)
    assert bound.read("out") == [Output("a", [3, 2], 103)]


def test_results_come_by_time_then_arrival_when_an_element_meets_several() -> None:
    bound = _bound()
    for value, time_ms in ((1, 99), (2, 95), (3, 99), (4, 100), (5, 89)):
        bound.pipe("left", "a", value, timestamp_ms=time_ms)
    bound.pipe("right", "a", 0, timestamp_ms=100)
    assert [output.value for output in bound.read("out")] == [[2, 0], [1, 0], [3, 0]]


def test_element_is_dropped_when_it_is_older_than_window_and_grace() -> None:
    bound = _bound()
    bound.pipe("right", "a", 1, timestamp_ms=100)
    bound.pipe("left", "a", 2, timestamp_ms=130)
    bound.pipe("left", "a", 3, timestamp_ms=99)
    bound.pipe("right", "a", 4, timestamp_ms=104)
    assert bound.dropped == 2
    assert bound.read("out") == []


def test_element_does_not_meet_itself_when_a_stream_joins_itself() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    stream = builder.stream("in")
    windowed = stream.with_window(SlidingWindow(size_ms=10))
    joined = windowed.join_prior(windowed, lambda left, right: [left, right])
    joined.send_to("out")
    bound = BoundTopology(builder.build())
    bound.pipe("in", "a", 1, timestamp_ms=100)
    bound.pipe("in", "a", 2, timestamp_ms=105)
    seen: list[Any] = [output.value for output in bound.read("out")]
    assert seen == [[2, 1], [1, 2]]
