"""What stages that go by record time must give: brute force over the records in the order of their tasks.

Each oracle takes one task's arrivals and returns its results in order, how many records it drops, and what it
still holds in the end. They say by ``sometimes`` which rare states the records led to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.simulation.given import Given, Result
from tests.simulation.sometimes import sometimes
from tests.simulation.stages import Join, Sessions, TableJoin, Windows
from tests.simulation.task_order import Arrival, RunsOut
from tests.simulation.timed_applications import collected

#: What a task meets.
Met = Sequence[Arrival | RunsOut]
#: Whether the task died between its commits of two records.
DiedBetween = Callable[[Arrival, Arrival], bool]


def windows(stage: Windows, met: Met, died: DiedBetween) -> Given:
    """Collect per window; a window is written once stream time reaches its end and the grace after it."""
    given = Given()
    open_: dict[tuple[int, str], list[Arrival]] = {}
    for one in met:
        if isinstance(one, Arrival):
            _into_windows(stage, one, open_, given, met)
        closed = [at for at in open_ if one.now_ms >= at[0] + stage.size_ms + stage.grace_ms]
        for start, key in sorted(closed):
            rows = open_.pop((start, key))
            seen_closing(rows[0], one, died)
            given.results.append(_result(f"{key}@{start}", rows, one.run))
    given.held = [_values(rows) for rows in open_.values()]
    return given


def _into_windows(
    stage: Windows, one: Arrival, open_: dict[tuple[int, str], list[Arrival]], given: Given, met: Met
) -> None:
    time_ms = one.entry.timestamp_ms
    first_ms = max(0, (time_ms - stage.size_ms) // stage.advance_ms * stage.advance_ms)
    all_of_it = [
        start
        for start in range(first_ms, time_ms + 1, stage.advance_ms)
        if start <= time_ms < start + stage.size_ms
    ]
    starts = [start for start in all_of_it if one.now_ms < start + stage.size_ms + stage.grace_ms]
    for start in starts:
        open_.setdefault((start, one.entry.key), []).append(one)
    if not starts:
        _drop(given, one, met)
    elif len(starts) < len(all_of_it):
        sometimes("a record came late for some windows and in time for others")


def sessions(stage: Sessions, met: Met, died: DiedBetween) -> Given:
    """Collect per session: records of a key no further apart than the gap, as long as none is too old."""
    given = Given()
    open_: list[list[Arrival]] = []
    patience_ms = stage.gap_ms + stage.grace_ms
    for one in met:
        if isinstance(one, Arrival):
            open_ = _into_sessions(stage, one, open_, given, met, died)
        closed = [rows for rows in open_ if _end(rows) + patience_ms < one.now_ms]
        for rows in sorted(closed, key=lambda rows: (_end(rows), _start(rows), rows[0].entry.key)):
            open_.remove(rows)
            seen_closing(rows[0], one, died)
            given.results.append(_result(f"{rows[0].entry.key}@{_start(rows)}-{_end(rows)}", rows, one.run))
    given.held = [_values(rows) for rows in open_]
    return given


def _into_sessions(
    stage: Sessions, one: Arrival, open_: list[list[Arrival]], given: Given, met: Met, died: DiedBetween
) -> list[list[Arrival]]:
    """Return the open sessions with a record among them, unless it is late."""
    time_ms = one.entry.timestamp_ms
    near = [
        rows
        for rows in open_
        if rows[0].entry.key == one.entry.key
        and any(abs(row.entry.timestamp_ms - time_ms) <= stage.gap_ms for row in rows)
    ]
    if not near and time_ms + stage.gap_ms + stage.grace_ms < one.now_ms:
        _drop(given, one, met)
        return open_
    merged = [row for rows in near for row in rows]
    _seen_merging(near, merged, one, died)
    return [*(rows for rows in open_ if rows not in near), [*merged, one]]


def _seen_merging(near: list[list[Arrival]], merged: list[Arrival], one: Arrival, died: DiedBetween) -> None:
    if len(near) > 1:
        sometimes("a session merged two sessions")
    if any(row.run < one.run for row in merged):
        sometimes("a session went on in a later run")
    if any(died(row, one) for row in merged):
        sometimes("a session went on after a crash")


def seen_closing(first: Arrival, one: Arrival | RunsOut, died: DiedBetween) -> None:
    """Take note of how a window closes.

    :param first: its first record.
    :param one: what brings the time at which it closes.
    """
    if first.run < one.run:
        sometimes("a window closed in a later run than its first record")
    if isinstance(one, RunsOut):
        sometimes("the end of a run closed a window")
    elif died(first, one):
        sometimes("a window closed after a crash since its first record")


def _drop(given: Given, one: Arrival, met: Met) -> None:
    given.dropped.append(one.run)
    sometimes("a late record was dropped")
    this_run = [other.now_ms for other in met if other.run == one.run and isinstance(other, Arrival)]
    if one.now_ms == this_run[0]:
        sometimes("stream time of an earlier run made a record late")


def _start(rows: list[Arrival]) -> int:
    return min(row.entry.timestamp_ms for row in rows)


def _end(rows: list[Arrival]) -> int:
    return max(row.entry.timestamp_ms for row in rows)


def _values(rows: list[Arrival]) -> str:
    return collected(*(row.entry.value or "" for row in rows))


def _result(key: str, rows: list[Arrival], run: int) -> Result:
    return Result(key, _values(rows), _end(rows), run)


@dataclass(slots=True, eq=False)
class _Element:
    """An element of one side of a join."""

    arrival: Arrival
    is_left: bool
    waits: bool = False

    @property
    def time_ms(self) -> int:
        """Its time."""
        return self.arrival.entry.timestamp_ms


class _Joining:
    """A join by looking at everything that ever arrived."""

    def __init__(self, stage: Join, died: DiedBetween) -> None:
        self._stage = stage
        self._died = died
        self._elements: list[_Element] = []
        self.given = Given()

    def arrive(self, one: Arrival) -> None:
        """Let go the elements whose time is over, then join an element with those that arrived before it."""
        self.pass_time(one)
        stage, now_ms = self._stage, one.now_ms
        new = _Element(one, one.partition.topic == stage.left[0])
        found = [other for other in self._elements if self._match(new, other)]
        if self._late(new, now_ms):
            self.given.dropped.append(one.run)
            sometimes("a late record was dropped")
            if found:
                sometimes("a partner came too late for a join")
        else:
            for other in sorted(found, key=lambda other: other.time_ms):
                self._pair(new, other)
            self._elements.append(new)
            sides = {"join": (), "left_join": (True,), "outer_join": (True, False)}[stage.kind]
            new.waits = not found and new.is_left in sides
            if new.waits and self._last_chance_ms(new) < now_ms:
                self._alone(new, one.run)

    def pass_time(self, one: Arrival | RunsOut) -> None:
        """Let go the elements whose time is over."""
        now_ms = one.now_ms
        over = [e for e in self._elements if e.waits and self._last_chance_ms(e) < now_ms]
        for element in sorted(over, key=lambda e: (self._last_chance_ms(e), not e.is_left)):
            self._alone(element, one.run)
            if isinstance(one, RunsOut):
                sometimes("the end of a run ended the wait of an element without partner")

    def _window(self, *, is_left: bool) -> tuple[int, int]:
        return (self._stage.left if is_left else self._stage.right)[1:]

    def _late(self, element: _Element, now_ms: int) -> bool:
        size_ms, grace_ms = self._window(is_left=element.is_left)
        return element.time_ms + size_ms + grace_ms < now_ms

    def _match(self, one: _Element, other: _Element) -> bool:
        left, right = (one, other) if one.is_left else (other, one)
        apart_ms = left.time_ms - right.time_ms
        return (
            one.is_left != other.is_left
            and one.arrival.entry.key == other.arrival.entry.key
            and -self._stage.left[1] <= apart_ms <= self._stage.right[1]
        )

    def _last_chance_ms(self, element: _Element) -> int:
        """Return the last stream time at which some partner could arrive and be joined: the latest that
        matches is the last to be late.
        """
        latest_ms = element.time_ms + self._window(is_left=element.is_left)[0]
        return latest_ms + sum(self._window(is_left=not element.is_left))

    def _pair(self, new: _Element, other: _Element) -> None:
        other.waits = False
        left, right = (new, other) if new.is_left else (other, new)
        value = f"{left.arrival.entry.value}+{right.arrival.entry.value}"
        newest_ms = max(new.time_ms, other.time_ms)
        self._give(new, value, newest_ms, new.arrival.run)
        if other.arrival.run < new.arrival.run:
            sometimes("a join matched across runs")
        if self._died(other.arrival, new.arrival):
            sometimes("a join matched across a crash")

    def _alone(self, element: _Element, run: int) -> None:
        element.waits = False
        value = element.arrival.entry.value
        self._give(element, f"{value}+" if element.is_left else f"+{value}", element.time_ms, run)
        if element.arrival.run < run:
            sometimes("an element without partner was joined with nothing in a later run")

    def _give(self, element: _Element, value: str, timestamp_ms: int, run: int) -> None:
        self.given.results.append(Result(element.arrival.entry.key, value, timestamp_ms, run))


def join(stage: Join, met: Met, died: DiedBetween) -> Given:
    """Join every pair that lies near enough, unless the second is late; then what waited in vain."""
    joining = _Joining(stage, died)
    for one in met:
        if isinstance(one, Arrival):
            joining.arrive(one)
        else:
            joining.pass_time(one)
    return joining.given


def table_join(stage: TableJoin, met: Met, died: DiedBetween) -> Given:
    """Join with the newest row that the task has met."""
    given = Given()
    rows: dict[str, Arrival] = {}
    deleted: set[str] = set()
    for one in met:
        if not isinstance(one, Arrival):
            continue
        key, entry = one.entry.key, one.entry
        if one.partition.topic == stage.table:
            if entry.value is None:
                deleted |= {key} & rows.keys()
                rows.pop(key, None)
            else:
                rows[key] = one
            continue
        row = rows.get(key)
        if row is None and key in deleted:
            sometimes("a table's row was deleted and not found")
        if row is not None and row.run < one.run:
            sometimes("a table's row of an earlier run was found")
        found = "" if row is None else row.entry.value
        given.results.append(Result(key, f"{entry.value}+{found}", entry.timestamp_ms, one.run))
    given.held = [row.entry.value or "" for row in rows.values()]
    return given
