"""Every windowed join equals a search of all elements that arrived, written from the rule alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams import KStreamBuilder, SlidingWindow, serdes
from airflow_kstreams.streams.topology.topology import Topology
from tests.support.examples import examples
from tests.support.topology.restarts import RestartingTopology

pytestmark = pytest.mark.promise("partners-are-found-once", "joins-hold-or-flush")

Side = Literal["left", "right"]

#: (side, key, how far time goes on, how much older than that the record is); its number is its value.
RECORDS = st.tuples(
    st.sampled_from(["left", "right"]),
    st.sampled_from(["a"] * 6 + ["b", None]),
    st.sampled_from([0, 0, 1, 2, 3, 20]),
    st.sampled_from([0, 0, 0, 1, 2, 3, 5, 8, 13, 21]),
)
STEPS = st.lists(
    st.one_of(RECORDS, RECORDS, RECORDS, st.sampled_from(["commit", "crash", "compact", "end"])), max_size=40
).map(lambda steps: _timed(steps))
WINDOWS = st.builds(
    SlidingWindow,
    size_ms=st.integers(0, 8),
    grace_ms=st.integers(0, 15),
    at_run_end=st.sampled_from(["hold", "flush"]),
)
KINDS = st.sampled_from(["join", "join_prior", "left_join", "outer_join"])


def _timed(steps: list[Any]) -> list[Any]:
    """Give records their times: (side, key, time); at the end, a restarted task sees every window closed."""
    now = 0
    timed: list[Any] = []
    for step in steps:
        if isinstance(step, str):
            timed.append(step)
        else:
            side, key, further, older = step
            now += further
            timed.append((side, key, max(0, now - older)))
    return [*timed, "commit", "crash", ("left", "z", now + 100)]


@dataclass(slots=True)
class Element:
    number: int
    side: Side
    key: str
    time: int
    waits: bool = False
    last_chance: int = -1


class Search:
    """The join by brute force: nothing is forgotten, everything is looked at."""

    def __init__(self, kind: str, left: SlidingWindow, right: SlidingWindow) -> None:
        self.kind = kind
        self.windows: dict[Side, SlidingWindow] = {"left": left, "right": right}
        self.now = -1
        self.dropped = 0
        self.elements: list[Element] = []
        self.results: list[tuple[Any, ...]] = []

    def late(self, side: Side, time: int, now: int) -> bool:
        window = self.windows[side]
        return time + window.size_ms + window.grace_ms < now

    def match(self, one: Element, other: Element) -> bool:
        left, right = (one, other) if one.side == "left" else (other, one)
        apart = left.time - right.time
        return (
            one.side != other.side
            and one.key == other.key
            and -self.windows["left"].size_ms <= apart <= self.windows["right"].size_ms
        )

    def find_last_chance(self, element: Element) -> int:
        """Return the last stream time at which some partner could arrive and not be late."""
        other: Side = "right" if element.side == "left" else "left"
        partners = range(element.time - 10, element.time + 10)
        return max(
            now
            for partner in partners
            if self.match(element, Element(-1, other, element.key, partner))
            for now in range(element.time - 10, element.time + 50)
            if not self.late(other, partner, now)
        )

    def arrive(self, number: int, side: Side, key: str | None, time: int) -> None:
        self.now = max(self.now, time)
        sides = {"left_join": ["left"], "outer_join": ["left", "right"]}.get(self.kind, [])
        if (key is None and side not in sides) or self.late(side, time, self.now):
            self.dropped += 1
            return
        if key is None:
            self.results.append((None, [number, None] if side == "left" else [None, number], time))
            return
        new = Element(number, side, key, time)
        partners = [
            other
            for other in self.elements
            if self.match(new, other) and (self.kind != "join_prior" or other.time < time)
        ]
        for other in sorted(partners, key=lambda other: (other.time, other.number)):
            other.waits = False
            values = {side: number, other.side: other.number}
            self.results.append((key, [values["left"], values["right"]], max(time, other.time)))
        self.elements.append(new)
        new.waits = not partners and side in sides
        new.last_chance = self.find_last_chance(new)
        if new.waits and new.last_chance < self.now:
            self.alone([new])

    def close(self, time: int) -> None:
        """Let time pass ahead of a record."""
        self.now = max(self.now, time)
        self.alone([e for e in self.elements if e.waits and e.last_chance < self.now])

    def end(self) -> None:
        self.alone([e for e in self.elements if e.waits and self.windows[e.side].at_run_end == "flush"])

    def alone(self, elements: list[Element]) -> None:
        for one in sorted(elements, key=lambda e: (e.last_chance, e.side, e.number)):
            one.waits = False
            value = [one.number, None] if one.side == "left" else [None, one.number]
            self.results.append((one.key, value, one.time))


def _topology(kind: str, left: SlidingWindow, right: SlidingWindow, scale: int) -> Topology:
    def scaled(window: SlidingWindow) -> SlidingWindow:
        return SlidingWindow(
            size_ms=window.size_ms * scale, grace_ms=window.grace_ms * scale, at_run_end=window.at_run_end
        )

    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    one = builder.stream("left").with_window(scaled(left))
    other = builder.stream("right").with_window(scaled(right))
    getattr(one, kind)(other, lambda a, b: [a, b], name="j").send_to("out")
    return builder.build()


def _run(task: RestartingTopology, steps: list[Any], scale: int) -> None:
    """Take every step; a crash goes back to the record after the last commit, once."""
    at = committed = 0
    crashed: set[int] = set()
    while at < len(steps):
        step = steps[at]
        at += 1
        if step == "crash":
            if at not in crashed:
                crashed.add(at)
                task.restart()
                at = committed
            continue
        if step == "end":
            task.end_run()
        elif step == "compact":
            task.compact()
        elif step == "commit":
            task.commit()
        else:
            side, key, time = step
            task.bound.pipe(side, key, at - 1, timestamp_ms=time * scale)
            continue
        committed = committed if step == "compact" else at


@settings(max_examples=examples(300), deadline=None)
@given(STEPS, KINDS, WINDOWS, WINDOWS, st.sampled_from([1, 700]))
def test_join_equals_a_search_of_all_arrivals_when_tasks_crash_and_runs_end(
    steps: list[Any], kind: str, left: SlidingWindow, right: SlidingWindow, scale: int
) -> None:
    search = Search(kind, left, right)
    for number, step in enumerate(steps):
        if step == "end":
            search.end()
        elif not isinstance(step, str):
            search.close(step[-1])
            search.arrive(number, *step)
    task = RestartingTopology(_topology(kind, left, right, scale))
    _run(task, steps, scale)
    task.commit()
    assert task.written("out") == [(key, value, time * scale) for key, value, time in search.results]
    assert task.dropped == search.dropped


@given(STEPS, KINDS, WINDOWS, WINDOWS, st.sampled_from([1, 700]))
def test_stores_equal_the_fold_of_their_changelogs_when_a_commit_has_passed(
    steps: list[Any], kind: str, left: SlidingWindow, right: SlidingWindow, scale: int
) -> None:
    task = RestartingTopology(_topology(kind, left, right, scale))
    _run(task, steps, scale)
    task.commit()
    held = {name: (list(store.all()), store.approximate_count()) for name, store in task.bound.stores.items()}
    task.restart()
    assert held == {
        name: (list(store.all()), store.approximate_count()) for name, store in task.bound.stores.items()
    }
    task.compact()
    task.restart()
    assert held == {
        name: (list(store.all()), store.approximate_count()) for name, store in task.bound.stores.items()
    }
    task.commit()
    assert not any(list(store.drain_changes()) for store in task.bound.stores.values())
