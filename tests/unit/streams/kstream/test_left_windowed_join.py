from __future__ import annotations

from typing import Literal

import pytest

from airflow_kstreams.streams import KStreamBuilder, SlidingWindow, serdes
from airflow_kstreams.streams.topology.topology import Topology
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.topology.bound_topology import BoundTopology, Output
from tests.support.topology.restarts import RestartingTopology

pytestmark = pytest.mark.promise("partners-are-found-once", "joins-hold-or-flush")


def _topology(left: SlidingWindow, right: SlidingWindow) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    one, other = builder.stream("left"), builder.stream("right")
    one.with_window(left).left_join(other.with_window(right), lambda a, b: [a, b], name="j").send_to("out")
    return builder.build()


def _windows(at_run_end: Literal["hold", "flush"] = "hold") -> tuple[SlidingWindow, SlidingWindow]:
    """A left element at t is open up to t + 10 + 5 + 30, so for 45 ms."""
    return (
        SlidingWindow(size_ms=10, grace_ms=20, at_run_end=at_run_end),
        SlidingWindow(size_ms=5, grace_ms=30),
    )


def test_left_element_is_joined_at_once_when_it_has_a_partner() -> None:
    bound = BoundTopology(_topology(*_windows()))
    bound.pipe("left", "a", 1, timestamp_ms=100)
    bound.pipe("right", "a", 2, timestamp_ms=105)
    bound.pipe("left", "a", 3, timestamp_ms=106)
    bound.pipe("right", "z", 9, timestamp_ms=10_000)
    assert bound.read("out") == [Output("a", [1, 2], 105), Output("a", [3, 2], 106)]


@pytest.mark.parametrize("side", ["left", "right"])
def test_left_element_is_joined_with_none_when_stream_time_passes_its_window_and_grace(side: str) -> None:
    bound = BoundTopology(_topology(*_windows()))
    bound.pipe("right", "y", 0, timestamp_ms=99)
    bound.pipe("left", "a", 1, timestamp_ms=100)
    bound.pipe(side, "z", 0, timestamp_ms=145)
    assert bound.read("out") == []
    bound.pipe(side, "z", 0, timestamp_ms=146)
    assert bound.read("out") == [Output("a", [1, None], 100)]
    bound.pipe("right", "z", 0, timestamp_ms=146)
    bound.pipe("right", "z", 0, timestamp_ms=10_000)
    assert Output("a", [1, None], 100) not in bound.read("out")


def test_left_element_finds_its_partner_when_that_comes_at_the_last_moment() -> None:
    bound = BoundTopology(_topology(*_windows()))
    bound.pipe("left", "a", 1, timestamp_ms=100)
    bound.pipe("right", "z", 0, timestamp_ms=145)
    bound.pipe("right", "a", 2, timestamp_ms=110)
    bound.pipe("right", "z", 0, timestamp_ms=10_000)
    assert bound.read("out") == [Output("a", [1, 2], 110)]


def test_window_closes_when_the_other_sides_grace_lets_no_partner_in_whatever_its_own_is() -> None:
    left, right = SlidingWindow(size_ms=10, grace_ms=1_000), SlidingWindow(size_ms=5, grace_ms=30)
    bound = BoundTopology(_topology(left, right))
    bound.pipe("left", "a", 1, timestamp_ms=100)
    bound.pipe("left", "z", 0, timestamp_ms=145)
    assert bound.read("out") == []
    bound.pipe("left", "z", 0, timestamp_ms=146)
    assert bound.read("out") == [Output("a", [1, None], 100)]
    # Its own grace is a thousand, but a right element that would match is late.
    bound.pipe("right", "a", 2, timestamp_ms=110)
    assert bound.dropped == 1
    # One that arrives when its window is closed already does not wait; its key is that of its record.
    bound.pipe("left", "b", 3, timestamp_ms=100)
    assert bound.read("out") == [Output("b", [3, None], 100)]


def test_left_element_is_joined_with_none_at_once_when_it_has_no_key() -> None:
    bound = BoundTopology(_topology(*_windows()))
    bound.pipe("left", None, 1, timestamp_ms=100)
    assert bound.read("out") == [Output(None, [1, None], 100)]
    bound.pipe("left", None, None, timestamp_ms=100)
    bound.pipe("right", None, 2, timestamp_ms=100)
    bound.pipe("right", "z", 0, timestamp_ms=10_000)
    bound.pipe("left", None, 3, timestamp_ms=100)
    assert bound.read("out") == []
    assert bound.dropped == 3


def test_left_element_waits_when_it_arrives_at_the_last_moment_of_its_window() -> None:
    left, right = SlidingWindow(size_ms=10, grace_ms=35), SlidingWindow(size_ms=5, grace_ms=30)
    bound = BoundTopology(_topology(left, right))
    bound.pipe("right", "z", 0, timestamp_ms=145)
    bound.pipe("left", "a", 1, timestamp_ms=100)
    bound.pipe("right", "a", 2, timestamp_ms=110)
    bound.pipe("right", "z", 0, timestamp_ms=10_000)
    assert bound.read("out") == [Output("a", [1, 2], 110)]


def test_left_element_is_joined_while_it_is_processed_when_its_window_is_closed_already() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    left, right = builder.stream("left"), builder.stream("right")
    left.with_window(SlidingWindow(size_ms=10)).left_join(
        right.with_window(SlidingWindow(size_ms=5, grace_ms=0)), lambda a, b: [a, b]
    ).send_to("out")
    left.send_to("out")
    bound = BoundTopology(builder.build())
    bound.pipe("right", "z", 0, timestamp_ms=1_000)
    bound.pipe("left", "a", 1, timestamp_ms=100)
    # The join is the first child of the source, the sink the second.
    assert bound.read("out") == [Output("a", [1, None], 100), Output("a", 1, 100)]


def test_left_elements_come_in_the_order_of_their_windows_when_several_close_together() -> None:
    bound = BoundTopology(_topology(*_windows()))
    for value, key, time_ms in ((1, "a", 105), (2, "b", 101), (3, "a", 101), (4, "c", 103)):
        bound.pipe("left", key, value, timestamp_ms=time_ms)
    bound.pipe("right", "c", 5, timestamp_ms=104)
    bound.pipe("right", "z", 0, timestamp_ms=1_000)
    assert bound.read("out") == [
        Output("c", [4, 5], 104),
        Output("b", [2, None], 101),
        Output("a", [3, None], 101),
        Output("a", [1, None], 105),
    ]


def test_task_goes_on_when_stream_time_is_the_largest_there_is() -> None:
    largest_ms = 2**63 - 1
    bound = BoundTopology(_topology(*_windows()))
    bound.pipe("left", "a", 1, timestamp_ms=100)
    bound.pipe("left", "b", 2, timestamp_ms=largest_ms)
    bound.pipe("right", "b", 3, timestamp_ms=largest_ms)
    assert bound.read("out") == [Output("a", [1, None], 100), Output("b", [2, 3], largest_ms)]


def test_right_elements_never_appear_alone_when_they_have_no_partner() -> None:
    bound = BoundTopology(_topology(*_windows("flush")))
    bound.pipe("right", "a", 1, timestamp_ms=100)
    bound.pipe("right", "a", 2, timestamp_ms=10_000)
    bound.close()
    assert bound.read("out") == []


def test_late_element_is_dropped_rather_than_joined_with_none() -> None:
    bound = BoundTopology(_topology(*_windows()))
    bound.pipe("right", "z", 0, timestamp_ms=1_000)
    bound.pipe("left", "a", 1, timestamp_ms=969)
    bound.pipe("right", "z", 0, timestamp_ms=10_000)
    assert bound.dropped == 1
    assert bound.read("out") == []


def test_element_that_waits_stays_over_the_run_when_the_window_holds() -> None:
    task = RestartingTopology(_topology(*_windows("hold")))
    task.bound.pipe("left", "a", 1, timestamp_ms=100)
    task.bound.pipe("left", "b", 2, timestamp_ms=100)
    task.end_run()
    assert task.written("out") == []
    task.bound.pipe("right", "a", 3, timestamp_ms=105)
    task.bound.pipe("right", "z", 0, timestamp_ms=146)
    task.end_run()
    assert task.written("out") == [Output("a", [1, 3], 105), Output("b", [2, None], 100)]


def test_element_that_waits_is_emitted_at_each_runs_end_once_and_replaced_when_the_window_flushes() -> None:
    task = RestartingTopology(_topology(*_windows("flush")))
    task.bound.pipe("left", "b", 1, timestamp_ms=101)
    task.bound.pipe("left", "a", 2, timestamp_ms=100)
    task.end_run()
    assert task.written("out") == [Output("a", [2, None], 100), Output("b", [1, None], 101)]
    task.bound.pipe("left", "c", 3, timestamp_ms=110)
    task.end_run()
    assert task.written("out")[2:] == [Output("c", [3, None], 110)]
    task.bound.pipe("right", "a", 4, timestamp_ms=105)
    task.bound.pipe("right", "z", 0, timestamp_ms=10_000)
    task.end_run()
    assert task.written("out")[3:] == [Output("a", [2, 4], 105)]


def test_next_node_sees_the_last_records_time_when_a_run_ended() -> None:
    bound = BoundTopology(_topology(*_windows("flush")))
    bound.pipe("left", "a", 1, timestamp_ms=110)
    bound.pipe("left", "a", 2, timestamp_ms=105)
    bound.close()
    assert len(bound.read("out")) == 2
    assert bound.context.timestamp_ms == 105


def test_element_is_emitted_once_when_the_task_crashes_before_or_after_its_window_closed() -> None:
    task = RestartingTopology(_topology(*_windows()))
    task.bound.pipe("left", "a", 1, timestamp_ms=100)
    task.commit()
    for _ in range(2):
        task.bound.pipe("right", "z", 0, timestamp_ms=146)
        assert task.bound.read("out") == [Output("a", [1, None], 100)]
        task.restart()
    task.bound.pipe("right", "z", 0, timestamp_ms=146)
    task.commit()
    task.restart()
    task.bound.pipe("right", "z", 0, timestamp_ms=10_000)
    task.commit()
    assert task.written("out") == [Output("a", [1, None], 100)]


def test_partner_counts_when_the_task_crashes_after_the_commit() -> None:
    task = RestartingTopology(_topology(*_windows()))
    task.bound.pipe("left", "a", 1, timestamp_ms=100)
    task.commit()
    task.bound.pipe("right", "a", 2, timestamp_ms=100)
    task.commit()
    task.restart()
    task.bound.pipe("right", "z", 0, timestamp_ms=10_000)
    task.commit()
    assert task.written("out") == [Output("a", [1, 2], 100)]


def test_driver_emits_what_waits_at_its_close_when_the_window_flushes() -> None:
    driver = TopologyTestDriver(_topology(*_windows("flush")), application_id="app")
    driver.pipe_input("left", key="a", value=1, timestamp_ms=100)
    assert driver.read_output("out") == []
    driver.close()
    assert [(r.key, r.value, r.timestamp_ms) for r in driver.read_output("out")] == [("a", [1, None], 100)]


def test_chained_left_join_takes_in_what_found_no_partner_when_its_grace_is_large_enough() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    short, long = SlidingWindow(size_ms=10, grace_ms=0), SlidingWindow(size_ms=10, grace_ms=1_000)
    left, right, third = (builder.stream(topic) for topic in ("left", "right", "third"))
    first = left.with_window(short).left_join(right.with_window(short), lambda a, b: [a, b])
    for name, window in (("short", short), ("long", long)):
        first.with_window(window).left_join(
            third.with_window(window), lambda a, b: [a, b], name=name
        ).send_to(name)
    bound = BoundTopology(builder.build())
    bound.pipe("third", "a", 3, timestamp_ms=95)
    bound.pipe("left", "a", 1, timestamp_ms=100)
    bound.pipe("left", "z", 0, timestamp_ms=121)
    assert bound.read("long") == [Output("a", [[1, None], 3], 100)]
    assert bound.read("short") == []
    assert bound.dropped == 1
