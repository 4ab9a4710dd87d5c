"""What stages with sliding windows, versions and tables of tables must give: brute force, as in
``timed_oracles.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_kstreams.streams.ports import TopicPartition
from tests.simulation.given import Given, Result
from tests.simulation.history import Entry, History
from tests.simulation.sometimes import sometimes
from tests.simulation.stages import GlobalJoin, Rows, SlidingWindows, Tables, VersionsJoin
from tests.simulation.task_order import Arrival
from tests.simulation.timed_oracles import DiedBetween, Met, seen_closing
from tests.support.sliding_windows import SlidingWindowsOfJava


def sliding_windows(stage: SlidingWindows, met: Met, died: DiedBetween) -> Given:
    """Collect as Kafka Streams does; a window is written once stream time is past its end and its grace."""
    given, java = Given(), SlidingWindowsOfJava(stage.size_ms, stage.grace_ms)
    begun: dict[tuple[str, int], Arrival] = {}
    written: set[tuple[str, int]] = set()
    for one in met:
        if isinstance(one, Arrival):
            _into_sliding_windows(java, one, begun, given)
        open_ = java.windows.keys() - written
        closed = {at for at in open_ if at[1] + stage.size_ms + stage.grace_ms < one.now_ms}
        for key, start_ms in sorted(closed, key=lambda at: (at[1], at[0])):
            numbers, newest_ms = java.windows[key, start_ms]
            given.results.append(Result(f"{key}@{start_ms}", _text(numbers), newest_ms, one.run))
            seen_closing(begun[key, start_ms], one, died)
        written |= closed
    given.held = [_text(numbers) for at, (numbers, _) in java.windows.items() if at not in written]
    return given


def _into_sliding_windows(
    java: SlidingWindowsOfJava, one: Arrival, begun: dict[tuple[str, int], Arrival], given: Given
) -> None:
    entry = one.entry
    number = int(entry.value or "")
    updates = java.arrive(entry.key, entry.timestamp_ms, number, now_ms=one.now_ms)
    for key, start_ms, _, _ in updates:
        begun.setdefault((key, start_ms), one)
    if not any(number in numbers for _, _, numbers, _ in updates):
        given.dropped.append(one.run)
        sometimes("a late record was dropped")


def _text(numbers: list[int]) -> str:
    return "|".join(map(str, sorted(numbers)))


def versions_join(stage: VersionsJoin, met: Met, died: DiedBetween) -> Given:
    """Join with the version of a record's own time, if it lies in the history or is the latest one."""
    given = Given()
    versions: dict[str, dict[int, Arrival]] = {}
    newest_ms = -1
    for one in met:
        if not isinstance(one, Arrival):
            continue
        key, at_ms = one.entry.key, one.entry.timestamp_ms
        if one.partition.topic == stage.table:
            if at_ms < newest_ms - stage.history_ms:
                given.dropped.append(one.run)
                sometimes("a version came too late for its table's history")
                continue
            versions.setdefault(key, {})[at_ms] = one
            newest_ms = max(newest_ms, at_ms)
            continue
        of_key = versions.get(key, {})
        from_ms = max((ms for ms in of_key if ms <= at_ms), default=None)
        if at_ms < newest_ms - stage.history_ms and from_ms != max(of_key, default=None):
            sometimes("a record came too late for the history of the table that it was joined with")
            from_ms = None
        version = None if from_ms is None else of_key[from_ms]
        if version is not None:
            _seen_version(version, one, of_key, died)
        found = "" if version is None else version.entry.value or ""
        given.results.append(Result(key, f"{one.entry.value}+{found}", at_ms, one.run))
    return given


def _seen_version(version: Arrival, one: Arrival, of_key: Mapping[int, Arrival], died: DiedBetween) -> None:
    if version.entry.timestamp_ms < max(of_key):
        sometimes("a late record met an older version of a row")
        if version.run < one.run:
            sometimes("a late record met an older version of an earlier run")
        if died(version, one):
            sometimes("a late record met an older version after a crash")


def global_join(stage: GlobalJoin, group: int, history: History) -> Given:
    """Join with the rows that there were when the run began, in every partition."""
    given = Given()
    before: Rows = {}
    for run, part in enumerate(history.per_run(TopicPartition(stage.stream, group))):
        rows = _frozen_rows(stage.table, run, history)
        for entry in part:
            name = stage.names(entry.value or "")
            if run and rows.get(name) != before.get(name):
                sometimes("a global table's row was another one than in the run before")
            value = f"{entry.value}+{rows.get(name, '')}"
            given.results.append(Result(entry.key, value, entry.timestamp_ms, run))
        before = rows
    return given


def _frozen_rows(topic: str, run: int, history: History) -> Rows:
    return _table(
        entry
        for number, (start, stop) in enumerate(history.finished[run].global_spans[topic])
        for entry in history.logs.get(TopicPartition(topic, number), ())
        if start <= entry.offset < stop
    )


def rows_after_each_run(stage: Tables, history: History) -> Iterator[tuple[int, Rows, Rows]]:
    """Give the number of each finished run, the rows that the sink of tables must hold after it, and those
    that it holds.
    """
    for run, finished in enumerate(history.finished):
        read = {
            topic: _table(
                entry
                for tp in sorted(history.logs)
                if tp.topic == topic
                for part in history.per_run(tp)[: run + 1]
                for entry in part
            )
            for topic in stage.sources
        }
        written = _table(
            entry
            for log in history.topic(stage.sink).values()
            for entry in log
            if entry.commit <= finished.commit
        )
        yield run, stage.rows(read), written


def _table(entries: Iterator[Entry]) -> Rows:
    rows: dict[str, str] = {}
    for entry in entries:
        if entry.value is None:
            rows.pop(entry.key, None)
        else:
            rows[entry.key] = entry.value
    return rows
