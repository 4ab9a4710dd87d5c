from __future__ import annotations

import itertools

import msgspec
import pytest

from airflow_kstreams.streams.figures.call_figures import (
    UNKNOWN,
    CallFigures,
    LatencyRecorder,
    NodeCalls,
    ThreadFigures,
    added_calls,
)
from airflow_kstreams.streams.figures.record_counts import OTHER_NODES

pytestmark = pytest.mark.promise("calls-are-measured")


def calls(node: str, number: int = 1) -> NodeCalls:
    recorder = LatencyRecorder()
    recorder.record_each([0.01] * number)
    return NodeCalls(node, recorder.latencies(), 1, 1, 1, number, 5)


def totals(figures: CallFigures) -> dict[str, int]:
    return {each.node: each.latency.count for each in figures.nodes}


def test_latencies_taken_together_are_those_taken_one_by_one() -> None:
    seconds = [0.0, 1e-9, 0.0004, 0.01, 0.02, 3.0]
    one_by_one, together = LatencyRecorder(), LatencyRecorder()
    for value in seconds:
        one_by_one.record(value)
    together.record_each(seconds)
    together.record_each([])
    assert together.latencies() == one_by_one.latencies()


def test_sums_and_maxima_add_up_in_any_order() -> None:
    parts = [
        CallFigures((calls("a", 2), calls("b", 3)), True, 10, 20, 4, ThreadFigures(1, 2, 0, 1, 5, 4, 3, 2)),
        CallFigures((calls("a", 5),), True, 1, 2, 9, ThreadFigures(idle=1)),
        CallFigures((calls("b", 1), calls("c", 1)), True, 7, 0, 0),
    ]
    for one, two, three in itertools.permutations(parts):
        whole = one + two + three
        assert totals(whole) == {"a": 7, "b": 4, "c": 1}
        assert {each.node: each.most_in_flight for each in whole.nodes} == {"a": 5, "b": 3, "c": 1}
        assert (whole.open_ns, whole.waiting_ns, whole.most_waiting) == (18, 22, 9)
        assert (whole.threads.idle, whole.threads.busy_ns) == (3, 4)
        assert sum(each.failed for each in whole.nodes) == 5


def test_no_figure_by_name_lacks_a_part_when_one_part_had_no_room_for_it() -> None:
    cut = CallFigures(tuple(calls(name) for name in "abcd")).first(2)
    assert totals(cut) == {"a": 1, "b": 1, OTHER_NODES: 2}
    for whole in (cut + CallFigures(tuple(calls(n) for n in "abcd")), CallFigures((calls("d"),)) + cut):
        assert OTHER_NODES in totals(whole)
        assert not {"c", "d"} & {*totals(whole)}
    assert totals(cut + CallFigures(tuple(calls(n) for n in "abcd"))) == {"a": 2, "b": 2, OTHER_NODES: 4}


def test_figures_become_shorter_until_they_are_unknown() -> None:
    figures = CallFigures(tuple(calls(name) for name in "abcde"))
    seen = []
    shorter: CallFigures | None = figures
    while shorter is not None:
        seen.append(totals(shorter))
        last, shorter = shorter, shorter.shorter()
    assert seen == [
        dict.fromkeys("abcde", 1),
        {"a": 1, "b": 1, OTHER_NODES: 3},
        {"a": 1, OTHER_NODES: 4},
        {OTHER_NODES: 5},
        {},
    ]
    assert last is UNKNOWN


def test_whole_is_unknown_when_a_part_is() -> None:
    known = CallFigures((calls("a"),))
    assert added_calls(known, UNKNOWN) == added_calls(UNKNOWN, known) == UNKNOWN


def test_task_without_calls_adds_nothing() -> None:
    known = CallFigures((calls("a"),))
    assert added_calls(known, None) == added_calls(None, known) == known
    assert added_calls(None, None) is None


def test_threads_of_an_earlier_attempt_are_gone() -> None:
    before = CallFigures((calls("a"),), threads=ThreadFigures(3, 2, 1, 4, 10, 5))
    assert before.of_earlier_attempt() == msgspec.structs.replace(
        before, threads=ThreadFigures(0, 0, 0, 4, 10, 5)
    )
