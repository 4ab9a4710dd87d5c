"""Whether each stage wrote what its oracle says, in order and with the right times, and holds that state."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

from tests.simulation.expectations import Expectations, ViolationError
from tests.simulation.given import Result
from tests.simulation.history import Entry, History
from tests.simulation.sometimes import sometimes
from tests.simulation.stage_oracles import given_by, groups_of, refused, values_of
from tests.simulation.stages import (
    DEAD_LETTERS,
    Copy,
    Fold,
    FoldsAtOnce,
    GlobalJoin,
    Join,
    Rows,
    Stage,
    Tables,
    TableSink,
    VersionsJoin,
)
from tests.simulation.table_oracles import rows_after_each_run

#: (key, value) of a record.
_Pair = tuple[str, str]
#: Partition, offset, time and key of the record that led to another one.
_Origin = tuple[str, int, int, str]


def check_stage(stage: Stage, history: History, expected: Expectations) -> None:
    """Check what a stage wrote, and what it holds.

    :raises ViolationError: it is not what its oracle says.
    """
    if isinstance(stage, TableSink):
        _check_state(stage.of, history, expected)  # its rows: landing_checks.py
        return
    if isinstance(stage, Copy):
        _check_copy(stage, history, expected)
        return
    if isinstance(stage, Tables):
        _check_tables(stage, history, expected)
        return
    if expected.exactly_once:
        _check_results(stage, history, expected)
    elif isinstance(stage, Fold):
        _check_fold_covers(stage, history, expected)
    else:
        _check_covered(stage, history, expected)
    _check_state(stage, history, expected)


def _check_tables(stage: Tables, history: History, expected: Expectations) -> None:
    """After each run the sink holds the table that a person would work out from what the runs have read; in
    at_least_once all of its rows have been written.
    """
    before: Rows = {}
    written = {(entry.key, entry.value) for log in history.topic(stage.sink).values() for entry in log}
    for run, wanted, found in rows_after_each_run(stage, history):
        if found != wanted if expected.exactly_once else wanted.items() - written:
            raise ViolationError(
                f"{stage.sink} holds {dict(found)} after run {history.finished[run].run_id}, expected "
                f"{dict(wanted)}"
            )
        if before.keys() - wanted.keys():
            sometimes("a row of an earlier run was taken back")
        if any(before[key] != value for key, value in wanted.items() if key in before):
            sometimes("a row of an earlier run was changed")
        before = wanted


def _check_copy(stage: Copy, history: History, expected: Expectations) -> None:
    origin: dict[_Pair, _Origin] = {}
    want: Counter[_Pair] = Counter()
    for topic in stage.sources:
        for number, slices in history.read(topic).items():
            for entry in (entry for part in slices for entry in part):
                if refused(stage, f"{topic}-{number}@{entry.offset}", entry, expected):
                    continue
                for result in stage.results(entry.key, entry.value or ""):
                    origin[result] = (f"{topic}-{number}", entry.offset, entry.timestamp_ms, entry.key)
                    want[result] += 1
    written = [
        (number, entry)
        for number, log in history.topic(stage.sink).items()
        for entry in log
        if (stage.sink, entry.value) not in expected.outsiders
    ]
    found = Counter((entry.key, entry.value or "") for _, entry in written)
    lost = want - found
    more = found - want if expected.exactly_once else Counter(found.keys() - want.keys())
    if lost or more:
        raise ViolationError(
            f"{stage.sink}: lost {_some(lost, origin)}, written too often or without cause "
            f"{_some(more, origin)}"
        )
    for number, entry in written:
        source, offset, timestamp_ms, _ = origin[(entry.key, entry.value or "")]
        if entry.timestamp_ms != (timestamp_ms or 1):  # clients cannot send 0
            raise ViolationError(
                f"{stage.sink}-{number}@{entry.offset} is dated {entry.timestamp_ms}, {source}@{offset} "
                f"was {timestamp_ms}"
            )
    if expected.exactly_once:
        parks = any(node.parks and node.name == stage.step for node in expected.calling)
        _check_order(stage.sink, written, origin, by_key=parks)


def _check_order(
    sink: str, written: list[tuple[int, Entry]], origin: dict[_Pair, _Origin], *, by_key: bool
) -> None:
    last: dict[tuple[int, str, str], int] = {}
    for number, entry in written:
        source, offset, _, key = origin[(entry.key, entry.value or "")]
        line = (number, source, key if by_key else "")
        if offset < last.get(line, -1):
            raise ViolationError(f"{sink}-{number}@{entry.offset}: {source}@{offset} comes too late")
        last[line] = offset


def dead_letters_are_exact(history: History, expected: Expectations) -> None:
    """The dead-letter topic holds the records that each stage gave up, as they were, and no others."""
    want = Counter(
        (stage.sources, value)
        for stage in expected.application.stages
        for group in groups_of(stage, expected)
        for value, _ in given_by(stage, group, history, expected).failed
    )
    sources = {topic: stage.sources for stage in expected.application.stages for topic in stage.sources}
    found = Counter(
        (sources.get(entry.headers["__streams.errors.topic"], ()), entry.value or "")
        for log in history.topic(DEAD_LETTERS).values()
        for entry in log
    )
    if want - found or (found - want if expected.exactly_once else found.keys() - want.keys()):
        raise ViolationError(f"{DEAD_LETTERS} holds {found}, expected {want}")


def _check_results(stage: Stage, history: History, expected: Expectations) -> None:
    """Each task's results stand in each partition in their order, and nothing else does."""
    logs = history.topic(stage.sink)
    parks = any(node.parks and not node.topics for node in expected.calling) or (
        isinstance(stage, FoldsAtOnce) and expected.parks
    )
    known: dict[str, int] = {}
    for group in groups_of(stage, expected):
        results = given_by(stage, group, history, expected).results
        known |= {result.key: group for result in results}
        lost = {result.key for result in results}
        for number, log in logs.items():
            keys = {entry.key for entry in log}
            wanted = [result for result in results if result.key in keys]
            mine = {result.key for result in wanted}
            lost -= mine
            found = [
                entry for entry in log if entry.key in mine and not _is_outsiders(stage, entry, expected)
            ]
            # Parked records come later, behind those of other keys.
            lines = [{key} for key in sorted(mine)] if parks else [mine]
            for line in lines:
                _check_line(
                    f"{stage.sink}-{number}: task {group}",
                    [entry for entry in found if entry.key in line],
                    [result for result in wanted if result.key in line],
                    covers=stage if parks and isinstance(stage, Fold) else None,
                )
        if lost:
            raise ViolationError(f"{stage.sink}: nothing of the keys {sorted(lost)} of task {group}")
    for number, log in logs.items():
        for entry in log:
            if entry.key not in known and not _is_outsiders(stage, entry, expected):
                raise ViolationError(f"{stage.sink}-{number}@{entry.offset} is {entry.key}: {entry.value}")


def _check_line(task: str, found: list[Entry], wanted: list[Result], *, covers: Fold | None) -> None:
    """Check what a task wrote of some keys, in order.

    :param covers: the stage, if it may have written more: what it has in between, when it commits while it
        waits for parked records.
    """
    if covers is not None:
        values = [(entry.value or "").removesuffix(covers.mark) for entry in found]
        ends = [result.value.removesuffix(covers.mark) for result in wanted]
        rest = iter(values)
        grow = all(after.startswith(f"{before}|") for before, after in pairwise(values))
        if grow and values[-1] == ends[-1] and all(value in rest for value in ends):
            return
    elif [_written(*pair) for pair in _pairs(found, wanted)] == [_seen(result) for result in wanted]:
        return
    raise ViolationError(
        f"{task} wrote {[(e.key, e.value, e.timestamp_ms) for e in found]}, expected "
        f"{[(r.key, r.value, r.timestamp_ms) for r in wanted]}"
    )


def _pairs(found: list[Entry], wanted: list[Result]) -> list[tuple[Entry, Result | None]]:
    """Pair what was found with what was wanted, whose time may not be known."""
    return [(entry, wanted[at] if at < len(wanted) else None) for at, entry in enumerate(found)]


def _seen(result: Result) -> tuple[str, str, int | None]:
    return result.key, result.value, result.timestamp_ms


def _written(entry: Entry, result: Result | None) -> tuple[str, str, int | None]:
    timed = result is None or result.timestamp_ms is not None
    return entry.key, entry.value or "", entry.timestamp_ms if timed else None


def _is_outsiders(stage: Stage, entry: Entry, expected: Expectations) -> bool:
    return (stage.sink, entry.value) in expected.outsiders


def _check_fold_covers(stage: Fold, history: History, expected: Expectations) -> None:
    """at_least_once: the values of each key hold all it was given. The last value may be an older one that a
    zombie wrote.
    """
    held: dict[str, set[str]] = defaultdict(set)
    for log in history.topic(stage.sink).values():
        for entry in log:
            held[entry.key].update((entry.value or "").removesuffix(stage.mark).replace("&", "|").split("|"))
    for group in groups_of(stage, expected):
        for result in given_by(stage, group, history, expected).results:
            lost = set(result.value.removesuffix(stage.mark).replace("&", "|").split("|")) - held[result.key]
            if lost:
                raise ViolationError(f"{stage.sink}: key {result.key} lost {sorted(lost)}")


def _check_covered(stage: Stage, history: History, expected: Expectations) -> None:
    """at_least_once: every result is there, maybe more than once."""
    found = {
        (entry.key, entry.value or "", None if isinstance(stage, FoldsAtOnce) else entry.timestamp_ms)
        for log in history.topic(stage.sink).values()
        for entry in log
    }
    for group in groups_of(stage, expected):
        lost = {_seen(result) for result in given_by(stage, group, history, expected).results} - found
        if lost:
            raise ViolationError(f"{stage.sink}: task {group} lost {sorted(lost, key=str)}")


def _check_state(stage: Stage, history: History, expected: Expectations) -> None:
    """The changelog folds to the state; of windows only the values are compared, their keys are encoded."""
    if isinstance(stage, Copy | Join | GlobalJoin | Tables | TableSink | VersionsJoin):
        return
    for group in groups_of(stage, expected):
        kept = _folds_to(stage.changelog, group, history)
        given = given_by(stage, group, history, expected)
        found = sorted(kept.values()) if isinstance(given.held, list) else kept
        if found != values_of(given):
            raise ViolationError(f"{stage.changelog}-{group} folds to {kept}, expected {given.held}")
        if isinstance(stage, Fold | FoldsAtOnce) and stage.again:
            again = _folds_to(stage.again, group, history)
            if again != given.held_again:
                raise ViolationError(f"{stage.again}-{group} folds to {again}, expected {given.held_again}")


def _folds_to(changelog: str, group: int, history: History) -> dict[str, str]:
    kept: dict[str, str] = {}
    for entry in history.topic(changelog).get(group, []):
        if entry.value is None:
            kept.pop(entry.key, None)
        else:
            kept[entry.key] = entry.value
    return kept


def _some(counted: Counter[_Pair], origin: dict[_Pair, _Origin], most: int = 4) -> str:
    named = [f"{result} of {origin.get(result, 'nowhere')}" for result in sorted(counted)[:most]]
    return f"{len(counted)} ({'; '.join(named)})" if named else "nothing"
