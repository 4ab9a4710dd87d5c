"""Windows in the task of a run: slices cut anywhere, crashes anywhere, stream time as KIP-28 has it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams import (
    HoppingWindow,
    KStreamBuilder,
    SessionWindow,
    Topology,
    TumblingWindow,
    Windowed,
    serdes,
)
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.windows import RunEnd
from tests.support.examples import examples
from tests.support.oracles.window_oracle import Row, contents_of
from tests.support.topology.task_on_logs import TaskOnLogs, log_of

pytestmark = pytest.mark.promise("windows-go-on-from-run-to-run")

Window = TumblingWindow | HoppingWindow | SessionWindow

A = TopicPartition("a", 0)
ROWS: st.SearchStrategy[list[Row]] = st.lists(
    st.tuples(st.sampled_from("xyz"), st.integers(0, 9), st.integers(0, 40)), max_size=25
)
CUTS = st.lists(st.integers(0, 26), max_size=4)
#: Seed of the fetches, commits and crashes; number of crashes; records between two commit points; records
#: that the task looks ahead.
CASES = st.tuples(st.integers(0, 10**6), st.integers(0, 3), st.integers(1, 9), st.integers(1, 6))
#: Closes every window of the records before it.
LAST: Row = ("last", 0, 10_000)


def _topology(window: Window) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    grouped = builder.stream("a").group_by_key().windowed_by(window)
    merger = (lambda key, left, right: left + right) if isinstance(window, SessionWindow) else None
    table = grouped.aggregate(list, lambda key, value, seen: [*seen, value], merger, store="w")
    table.suppress().to_stream().send_to("out")
    return builder.build()


def _slices(window: Window, rows: list[Row], cuts: list[int], case: Any) -> tuple[list[Any], int]:
    """Process all rows, one run up to each cut.

    :return: (key, sorted values, timestamp) of each output, and how many records were dropped.
    """
    seed, crashes, every, buffered = case
    log = [(key.encode(), b"%d" % value, time_ms) for key, value, time_ms in rows]
    task = TaskOnLogs(
        topology=_topology(window),
        logs={A: log_of(A, log)},
        rng=random.Random(seed),
        crashes=crashes,
        settings={"commit.every.records": every, "buffered.records.per.partition": buffered},
    )
    dropped = 0
    for stop in sorted(min(cut, len(rows) - 1) for cut in cuts):
        task.run({A: stop})
        dropped += task.progress.records_dropped
    task.run()
    keys = _keys(window)
    outputs = [
        (
            keys.deserialize(output.key or b""),
            None if output.value is None else sorted(serdes.json().deserialize(output.value)),
            output.timestamp_ms,
        )
        for output in task.outputs
        if output.topic == "out"
    ]
    return outputs, dropped + task.progress.records_dropped


def _keys(window: Window) -> Serde:
    if isinstance(window, SessionWindow):
        return serdes.session_windowed(serdes.string())
    return serdes.time_windowed(serdes.string(), window.size_ms)


def _windows(grace_ms: st.SearchStrategy[int], at_run_end: RunEnd = "hold") -> st.SearchStrategy[Window]:
    shared = {"grace_ms": grace_ms, "at_run_end": st.just(at_run_end)}
    sizes = st.integers(4, 12)
    return (
        st.builds(TumblingWindow, size_ms=sizes, **shared)
        | st.builds(HoppingWindow, size_ms=sizes, advance_ms=st.integers(1, 4), **shared)
        | st.builds(SessionWindow, gap_ms=st.integers(1, 6), **shared)
    )


@settings(max_examples=examples(150), deadline=None)
@given(window=_windows(st.integers(45, 60)), rows=ROWS, cuts=CUTS, case=CASES)
def test_each_window_is_emitted_once_with_all_its_records_when_none_is_late(
    window: Window, rows: list[Row], cuts: list[int], case: Any
) -> None:
    outputs, dropped = _slices(window, [*rows, LAST], cuts, case)
    contents, _ = contents_of(rows, window)
    assert outputs == [
        (content.windowed, content.values, content.newest_ms)
        for content in sorted(contents, key=lambda content: content.order)
    ]
    assert dropped == 0


@settings(max_examples=examples(150), deadline=None)
@given(
    window=_windows(st.integers(0, 8)).filter(lambda window: not isinstance(window, HoppingWindow)),
    rows=ROWS,
    cuts=CUTS,
    case=CASES,
)
def test_each_record_counts_once_or_is_dropped_when_some_are_late(
    window: Window, rows: list[Row], cuts: list[int], case: Any
) -> None:
    outputs, dropped = _slices(window, [*rows, LAST], cuts, case)
    assert len({key for key, _, _ in outputs}) == len(outputs)
    assert sum(len(values) for _, values, _ in outputs) + dropped == len(rows)


@settings(max_examples=examples(150), deadline=None)
@given(window=_windows(st.integers(0, 8), "flush"), rows=ROWS, cuts=CUTS, case=CASES)
def test_readers_end_with_the_same_windows_when_runs_flush_or_hold(
    window: Window, rows: list[Row], cuts: list[int], case: Any
) -> None:
    flushed, _ = _slices(window, [*rows, LAST], cuts, case)
    held, _ = _slices(_holding(window), [*rows, LAST], cuts, case)
    newest: dict[Windowed, Any] = {key: values for key, values, _ in flushed if key.key != "last"}
    assert {key: values for key, values in newest.items() if values is not None} == {
        key: values for key, values, _ in held
    }


def _holding(window: Window) -> Window:
    match window:
        case TumblingWindow():
            return TumblingWindow(size_ms=window.size_ms, grace_ms=window.grace_ms)
        case HoppingWindow():
            return HoppingWindow(
                size_ms=window.size_ms, advance_ms=window.advance_ms, grace_ms=window.grace_ms
            )
    return SessionWindow(gap_ms=window.gap_ms, grace_ms=window.grace_ms)
