"""What each stage gives in each task, worked out once per history."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from airflow_kstreams.streams.ports import TopicPartition
from tests.simulation.expectations import Expectations
from tests.simulation.given import Given, Result
from tests.simulation.history import Entry, History
from tests.simulation.sometimes import sometimes
from tests.simulation.stages import (
    Copy,
    Fold,
    FoldsAtOnce,
    GlobalJoin,
    Join,
    Sessions,
    SlidingWindows,
    Stage,
    TableJoin,
    Tables,
    TableSink,
    VersionsJoin,
    Windows,
)
from tests.simulation.table_oracles import global_join, sliding_windows, versions_join
from tests.simulation.task_order import Arrival, arrivals
from tests.simulation.timed_oracles import join, sessions, table_join, windows

#: Characters of a value that few are as long as.
_LARGE = 900_000
_TIMED: dict[type, Callable[..., Given]] = {
    Windows: windows,
    SlidingWindows: sliding_windows,
    Sessions: sessions,
    Join: join,
    TableJoin: table_join,
    VersionsJoin: versions_join,
}


def subtopology_of(stage: Stage, expected: Expectations) -> int:
    """Return the number of the subtopology that a stage belongs to."""
    return next(
        number
        for number, (sources, _) in enumerate(expected.application.subtopologies)
        if set(sources) == set(stage.sources)
    )


def groups_of(stage: Stage, expected: Expectations) -> range:
    """Return the groups of the tasks that a stage runs in."""
    return range(max(expected.partitions[topic] for topic in stage.sources))


def given_by(stage: Stage, group: int, history: History, expected: Expectations) -> Given:
    """Return what a stage gives in the task of a group, over all finished runs; of tables of tables nothing
    is known.
    """
    known = (id(stage), group)
    if known not in history.given:
        history.given[known] = _given(stage, group, history, expected)
    given: Given = history.given[known]
    return given


def _given(stage: Stage, group: int, history: History, expected: Expectations) -> Given:
    if isinstance(stage, TableSink):
        return given_by(stage.of, group, history, expected)
    if isinstance(stage, Copy):
        return _copied(stage, group, history, expected)
    if isinstance(stage, FoldsAtOnce):
        return _folded_at_once(stage, group, history, expected)
    if isinstance(stage, Fold):
        return _folded(stage, group, history, expected)
    if isinstance(stage, GlobalJoin):
        return global_join(stage, group, history)
    if isinstance(stage, Tables):
        return Given()
    moments = expected.moments([run.run_id for run in history.finished])
    met = arrivals(history, stage.sources, group, expected.buffered, moments)
    records = [one for one in met if isinstance(one, Arrival)]
    if len({(one.partition, one.entry.timestamp_ms) for one in records}) < len(records):
        sometimes("two records of one task had the same time")
    task = f"{subtopology_of(stage, expected)}_{group}"
    deaths = [at_ms for at_ms, name in history.deaths if name.startswith(f"task {task} ")]
    return _TIMED[type(stage)](stage, met, partial(_died_between, history, deaths))


def _died_between(history: History, deaths: list[int], one: Arrival, other: Arrival) -> bool:
    """Whether the task died after its commit of one record and before that of a later one."""
    if not deaths:
        return False
    first, second = (history.committed_ms(met.partition, met.entry.offset) for met in (one, other))
    return any(first <= at_ms <= second for at_ms in deaths)


def refused(stage: Copy, place: str, entry: Entry, expected: Expectations) -> bool:
    """Whether a record becomes a dead letter.

    :param place: where it lies.
    """
    value = entry.value or ""
    if stage.fails(value):
        return True
    return bool(stage.results(entry.key, value)) and expected.given_up(stage.step, place)


def _copied(stage: Copy, group: int, history: History, expected: Expectations) -> Given:
    given = Given()
    if stage.sink == "out" and any(
        len(entry.value or "") > _LARGE
        for topic in stage.sources
        for entry in history.logs.get(TopicPartition(topic, group), ())
    ):
        sometimes("a record took nearly all that a topic takes")
    for topic in stage.sources:
        for run, part in enumerate(history.per_run(TopicPartition(topic, group))):
            for entry in part:
                value = entry.value or ""
                if refused(stage, f"{topic}-{group}@{entry.offset}", entry, expected):
                    given.failed.append((value, run))
                    sometimes("a dead letter was written")
                    continue
                given.results += [
                    Result(key, written, entry.timestamp_ms, run)
                    for key, written in stage.results(entry.key, value)
                ]
    return given


def _folded_at_once(stage: FoldsAtOnce, group: int, history: History, expected: Expectations) -> Given:
    given = Given()
    state: dict[str, str] = {}
    second: dict[str, str] = {}
    above, between, below = stage.steps
    source = TopicPartition(stage.source, group)
    for run, part in enumerate(history.per_run(source)):
        for entry in part:
            key, value, place = entry.key, entry.value or "", f"{source}@{entry.offset}"
            given_up = expected.given_up(above, place)
            if not given_up:
                state[key] = f"{state[key]}|{value}" if key in state else value
                given_up = expected.given_up(between, place)
            if not given_up:
                second[key] = f"{second[key]}&{state[key]}" if key in second else state[key]
                given_up = expected.given_up(below, place)
            if given_up:
                given.failed.append((value, run))
                sometimes("a dead letter was written")
            else:
                given.results.append(Result(key, second[key], None, run))
    given.held, given.held_again = state, second
    return given


def _folded(stage: Fold, group: int, history: History, expected: Expectations) -> Given:
    given, every = Given(), expected.commit_every
    state: dict[str, str] = {}
    second: dict[str, str] = {}
    met = [
        one for one in arrivals(history, stage.sources, group, expected.buffered) if isinstance(one, Arrival)
    ]
    for run in range(len(history.finished)):
        changed: dict[str, None] = {}
        part = [one for one in met if one.run == run]
        for count, one in enumerate(part, start=1):
            key, value = one.entry.key, one.entry.value or ""
            if stage.window_ms:
                key = f"{key}@{one.entry.timestamp_ms // stage.window_ms * stage.window_ms}"
            if one.partition.topic == stage.beside:
                value += "r"
            state[key] = f"{state[key]}|{value}" if state.get(key) else value
            changed[key] = None
            if count == len(part) or (every and count % every == 0):
                if stage.again:
                    for key in changed:
                        second[key] = f"{second[key]}&{state[key]}" if key in second else state[key]
                written = second if stage.again else state
                given.results += [Result(key, written[key] + stage.mark, None, run) for key in changed]
                changed.clear()
    given.held = list(state.values()) if stage.window_ms else state
    given.held_again = second
    return given


def values_of(given: Given) -> Any:
    """Return what a store holds, so that it can be compared whatever its keys."""
    return sorted(given.held) if isinstance(given.held, list) else given.held
