from __future__ import annotations

import pytest

from airflow_kstreams.streams import KStreamBuilder, SlidingWindow, serdes
from airflow_kstreams.streams.topology.topology import Topology
from tests.support.topology.bound_topology import BoundTopology, Output
from tests.support.topology.restarts import RestartingTopology


def _topology(left: SlidingWindow, right: SlidingWindow) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    one, other = builder.stream("left"), builder.stream("right")
    one.with_window(left).outer_join(other.with_window(right), lambda a, b: [a, b], name="j").send_to("out")
    return builder.build()


#: A left element is open for 10 + 5 + 10 = 25 ms, a right one for 5 + 10 + 20 = 35 ms.
LEFT = SlidingWindow(size_ms=10, grace_ms=20)
RIGHT = SlidingWindow(size_ms=5, grace_ms=10)


@pytest.mark.parametrize(
    ("side", "last_ms", "value"), [("left", 125, ["x", None]), ("right", 135, [None, "x"])]
)
def test_element_of_either_side_is_joined_with_none_when_no_partner_can_come(
    side: str, last_ms: int, value: list[str | None]
) -> None:
    bound = BoundTopology(_topology(LEFT, RIGHT))
    bound.pipe(side, "a", "x", timestamp_ms=100)
    bound.pipe("left", "z", 0, timestamp_ms=last_ms)
    assert bound.read("out") == []
    bound.pipe("left", "z", 0, timestamp_ms=last_ms + 1)
    assert bound.read("out") == [Output("a", value, 100)]


@pytest.mark.parametrize(("side", "value"), [("left", ["x", None]), ("right", [None, "x"])])
def test_element_of_either_side_is_joined_with_none_at_once_when_it_has_no_key(
    side: str, value: list[str | None]
) -> None:
    bound = BoundTopology(_topology(LEFT, RIGHT))
    bound.pipe(side, None, "x", timestamp_ms=100)
    assert bound.read("out") == [Output(None, value, 100)]
    assert bound.dropped == 0


@pytest.mark.promise("partners-are-found-once")
def test_elements_are_joined_once_and_not_alone_when_they_meet() -> None:
    bound = BoundTopology(_topology(LEFT, RIGHT))
    bound.pipe("left", "a", 1, timestamp_ms=100)
    bound.pipe("right", "a", 2, timestamp_ms=100)
    bound.pipe("right", "b", 3, timestamp_ms=100)
    bound.pipe("left", "b", 4, timestamp_ms=100)
    # Stream time far ahead closes every window but the last one's own.
    bound.pipe("left", "z", 0, timestamp_ms=10_000)
    assert bound.read("out") == [Output("a", [1, 2], 100), Output("b", [4, 3], 100)]


def test_results_come_in_the_order_in_which_windows_close_when_several_do_together() -> None:
    bound = BoundTopology(_topology(LEFT, RIGHT))
    bound.pipe("right", "r1", 1, timestamp_ms=91)  # closes after 126
    bound.pipe("right", "r2", 2, timestamp_ms=90)  # closes after 125
    bound.pipe("left", "l1", 3, timestamp_ms=100)  # closes after 125, and left ones come first
    bound.pipe("left", "l2", 4, timestamp_ms=99)  # closes after 124
    bound.pipe("right", "r3", 5, timestamp_ms=88)  # closes after 123
    bound.pipe("left", "z", 0, timestamp_ms=1_000)
    assert bound.read("out") == [
        Output("r3", [None, 5], 88),
        Output("l2", [4, None], 99),
        Output("l1", [3, None], 100),
        Output("r2", [None, 2], 90),
        Output("r1", [None, 1], 91),
    ]


@pytest.mark.promise("joins-hold-or-flush")
def test_only_the_side_that_flushes_emits_when_a_run_ends() -> None:
    flushing = SlidingWindow(size_ms=5, grace_ms=10, at_run_end="flush")
    task = RestartingTopology(_topology(LEFT, flushing))
    task.bound.pipe("left", "a", 1, timestamp_ms=100)
    task.bound.pipe("right", "b", 2, timestamp_ms=100)
    task.end_run()
    assert task.written("out") == [Output("b", [None, 2], 100)]
    task.bound.pipe("left", "z", 0, timestamp_ms=1_000)
    task.end_run()
    assert task.written("out")[1:] == [Output("a", [1, None], 100)]


def test_element_meets_itself_and_is_not_alone_when_a_stream_joins_itself() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    stream = builder.stream("in").with_window(SlidingWindow(size_ms=5, grace_ms=0))
    stream.outer_join(stream, lambda a, b: [a, b]).send_to("out")
    bound = BoundTopology(builder.build())
    bound.pipe("in", "a", 1, timestamp_ms=100)
    bound.pipe("in", "z", 2, timestamp_ms=1_000)
    assert bound.read("out") == [Output("a", [1, 1], 100), Output("z", [2, 2], 1_000)]
