from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams import (
    HoppingWindow,
    KStreamBuilder,
    SessionWindow,
    StoreSpec,
    Topology,
    TumblingWindow,
    Windowed,
    serdes,
)
from airflow_kstreams.streams.windows import RunEnd
from tests.support.examples import examples
from tests.support.oracles.window_oracle import Content, Row, contents_of
from tests.support.topology.bound_topology import BoundTopology, Output
from tests.support.topology.restarts import WindowRuns

Window = TumblingWindow | HoppingWindow | SessionWindow

GRACES = st.integers(0, 8)
TUMBLING = st.builds(TumblingWindow, size_ms=st.integers(1, 12), grace_ms=GRACES)
HOPPING = st.integers(1, 12).flatmap(
    lambda size_ms: st.builds(
        HoppingWindow, size_ms=st.just(size_ms), advance_ms=st.integers(1, size_ms), grace_ms=GRACES
    )
)
SESSIONS = st.builds(SessionWindow, gap_ms=st.integers(1, 6), grace_ms=GRACES)
WINDOWS = TUMBLING | HOPPING | SESSIONS
ROWS: st.SearchStrategy[Row] = st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 40))
#: What happens to a task between two records.
EVENTS = st.sampled_from(["commit", "commit", "crash", "crash closing", "end run"])
STEPS = st.lists(ROWS | EVENTS, max_size=40)


def _topology(window: Window, *, suppress: bool, cached: bool) -> Topology:
    """A table of the sorted values of each window."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    grouped = builder.stream("in").group_by_key().windowed_by(window)
    store = StoreSpec(name="w", key_serde=serdes.string(), value_serde=serdes.json(), cached=cached)
    merger = (lambda key, left, right: sorted(left + right)) if isinstance(window, SessionWindow) else None
    table = grouped.aggregate(list, lambda key, value, seen: sorted([*seen, value]), merger, store=store)
    (table.suppress() if suppress else table).to_stream().send_to("out")
    return builder.build()


def _replay(runs: WindowRuns, steps: list[Any]) -> None:
    for step in steps:
        match step:
            case "commit":
                runs.commit()
            case "crash" | "crash closing":
                runs.crash(closing=step == "crash closing")
            case "end run":
                runs.end_run()
            case _:
                runs.pipe(*step)
    runs.end_run()


def _output(content: Content) -> Output:
    return Output(content.windowed, content.values, content.newest_ms)


def _rows(steps: list[Any]) -> list[Row]:
    return [step for step in steps if isinstance(step, tuple)]


def _closed(contents: list[Content]) -> list[tuple[int, Content]]:
    return [(content.closed_at, content) for content in contents if content.closed_at is not None]


@pytest.mark.promise("held-windows-give-one-result")
@settings(max_examples=examples(300))
@given(WINDOWS, STEPS, st.booleans(), st.booleans())
def test_suppress_emits_each_closed_window_once_when_runs_end_and_crash_anywhere(
    window: Window, steps: list[Any], cached: bool, compacted: bool
) -> None:
    runs = WindowRuns(_topology(window, suppress=True, cached=cached), compacted=compacted)
    _replay(runs, steps)
    contents, late = contents_of(_rows(steps), window)
    closed = sorted(_closed(contents), key=lambda pair: (pair[0], *pair[1].order))
    assert runs.outputs == [_output(content) for _, content in closed]
    assert runs.dropped == late


@settings(max_examples=examples(300))
@given(WINDOWS, STEPS, st.booleans(), st.booleans())
def test_store_holds_the_open_windows_when_a_run_has_ended(
    window: Window, steps: list[Any], suppress: bool, compacted: bool
) -> None:
    runs = WindowRuns(_topology(window, suppress=suppress, cached=True), compacted=compacted)
    _replay(runs, steps)
    contents, _ = contents_of(_rows(steps), window)
    store: Any = runs.bound.stores["w"]
    found = {
        (id_[-1].decode(), id_[-2] if len(id_) == 3 else id_[0]): entry for id_, entry in store.entries()
    }
    assert found == {
        (content.windowed.key, content.windowed.start_ms): (content.values, content.newest_ms)
        for content in contents
        if content.closed_at is None
    }


@settings(max_examples=examples(300))
@given(WINDOWS, STEPS, st.booleans(), st.booleans())
def test_updates_end_at_the_direct_result_when_runs_end_and_crash_anywhere(
    window: Window, steps: list[Any], cached: bool, compacted: bool
) -> None:
    runs = WindowRuns(_topology(window, suppress=False, cached=cached), compacted=compacted)
    _replay(runs, steps)
    contents, late = contents_of(_rows(steps), window)
    assert _table(runs.outputs) == {content.windowed: content.values for content in contents}
    assert runs.dropped == late


@given(TUMBLING | HOPPING, st.lists(ROWS, max_size=30))
def test_uncached_table_emits_every_change_when_records_arrive(window: Window, rows: list[Row]) -> None:
    bound = BoundTopology(_topology(window, suppress=False, cached=False))
    for row in rows:
        bound.pipe("in", row[0], row[1], timestamp_ms=row[2])
    contents, _ = contents_of(rows, window)
    expected = [
        (number, content.windowed.start_ms, content.windowed, sorted(values))
        for content in contents
        for index, number in enumerate(content.changed_at)
        if (values := [value for _, value, _ in content.rows[: index + 1]])
    ]
    expected.sort(key=lambda change: change[:2])
    assert [(output.key, output.value) for output in bound.read("out")] == [
        (windowed, values) for _, _, windowed, values in expected
    ]


def _flushing(window: Window) -> Window:
    fields = {"gap_ms": 0, "size_ms": 0, "advance_ms": 0, "grace_ms": 0}
    flush: RunEnd = "flush"
    given_ = {name: getattr(window, name) for name in fields if hasattr(window, name)}
    return type(window)(**given_, at_run_end=flush)


@pytest.mark.promise("flushed-windows-are-replaced")
@settings(max_examples=examples(300))
@given(TUMBLING | HOPPING, STEPS, st.booleans(), st.booleans())
def test_flush_emits_what_changed_since_its_last_emission_when_a_run_ends(
    window: Window, steps: list[Any], cached: bool, compacted: bool
) -> None:
    runs = WindowRuns(_topology(_flushing(window), suppress=True, cached=cached), compacted=compacted)
    _replay(runs, steps)
    assert runs.outputs == _flushed(window, [*steps, "end run"])


def _flushed(window: Window, steps: list[Any]) -> list[Output]:
    """Compute what flush emits: per window and emission, what it holds then, unless it held it before."""
    expected: list[Output] = []
    emitted: dict[Windowed, int] = {}
    seen: list[Row] = []

    def emit(contents: list[Content]) -> None:
        for content in sorted(contents, key=lambda content: content.order):
            if emitted.get(content.windowed) != len(content.rows):
                emitted[content.windowed] = len(content.rows)
                expected.append(_output(content))

    for step in steps:
        if isinstance(step, tuple):
            seen.append(step)
            contents, _ = contents_of(seen, window)
            emit([content for number, content in _closed(contents) if number == len(seen) - 1])
        elif step == "end run":
            contents, _ = contents_of(seen, window)
            emit([content for content in contents if content.closed_at is None])
    return expected


@settings(max_examples=examples(300))
@given(SESSIONS, STEPS, st.booleans(), st.booleans())
def test_readers_see_every_session_as_it_is_when_flushed_at_run_ends(
    window: Window, steps: list[Any], cached: bool, compacted: bool
) -> None:
    runs = WindowRuns(_topology(_flushing(window), suppress=True, cached=cached), compacted=compacted)
    _replay(runs, steps)
    contents, _ = contents_of(_rows(steps), window)
    assert _table(runs.outputs) == {content.windowed: content.values for content in contents}
    written = [(output.key, output.value) for output in runs.outputs]
    assert all(
        before != after
        for key in {key for key, _ in written}
        for before, after in pairwise([value for other, value in written if other == key])
    )


def _table(outputs: list[Output]) -> dict[Windowed, Any]:
    """Fold a table's changes."""
    newest = {output.key: output.value for output in outputs}
    return {key: value for key, value in newest.items() if value is not None}
