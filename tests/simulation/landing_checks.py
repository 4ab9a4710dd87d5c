"""Whether each finished run is in its tables once, with the rows that its oracle says."""

from __future__ import annotations

from collections import Counter

from tests.simulation.expectations import Expectations, ViolationError
from tests.simulation.history import History, MadeSnapshot, Row
from tests.simulation.sometimes import sometimes
from tests.simulation.stage_oracles import given_by, groups_of
from tests.simulation.stages import TableSink


def runs_are_in_their_tables_once(history: History, expected: Expectations) -> None:
    """Every finished run that had anything to read made one snapshot of each of its tables, in the order of
    runs and of sequences, with the mark, between its begin and its finished marker; no other run made one.
    """
    for stage in _sinks(expected):
        made = [each for each in history.snapshots if each.table == stage.table]
        landed = [run for run in history.finished if not history.is_empty(run)]
        found = [each.summary["kstreams.run-id"] for each in made]
        if found != [run.run_id for run in landed]:
            raise ViolationError(
                f"{stage.table} has snapshots of {found}, finished were {[run.run_id for run in landed]}"
            )
        for sequence, (run, snapshot) in enumerate(zip(landed, made, strict=True), start=1):
            told = int(snapshot.summary["kstreams.sequence"]), snapshot.mark
            if told != (sequence, sequence):
                raise ViolationError(
                    f"run {run.run_id} is number {sequence} in {stage.table}, with sequence and mark {told}"
                )
            if not history.begun[run.run_id] < snapshot.commits <= run.commit:
                raise ViolationError(f"run {run.run_id} came into {stage.table} at another time")
            if snapshot.harmed:
                raise ViolationError(f"run {run.run_id} landed in {stage.table}, which was harmed")
    _say_who_landed(history)


def tables_hold_what_runs_read(history: History, expected: Expectations) -> None:
    """A run adds to each table the rows that its oracle says, and takes away none of those before it,
    whatever others do to the table.
    """
    for stage in _sinks(expected):
        made = _by_run(stage, history)
        so_far: Counter[Row] = Counter()
        for number, run in enumerate(history.finished):
            wanted = _wanted(stage, number, history, expected)
            so_far += wanted
            snapshot = made.get(run.run_id)
            if snapshot is None:
                if wanted:
                    raise ViolationError(f"run {run.run_id} is not in {stage.table}: {_some(wanted)}")
                continue
            _compare(f"run {run.run_id} in {stage.table}", snapshot.added, wanted)
            _compare(f"{stage.table} after run {run.run_id}", snapshot.rows, so_far)
            if not wanted:
                sometimes("a run that had no rows made an empty snapshot")
        _compare(f"{stage.table} in the end", history.table_rows.get(stage.table, Counter()), so_far)


def ledger_tells_what_landed(history: History, expected: Expectations) -> None:
    """Each entry of the ledger names the last commit to each table: sequence, snapshot, rows and files. The
    snapshot may be unknown where it was forgotten before anybody knew that it was made.
    """
    for stage in _sinks(expected):
        made = _by_run(stage, history)
        last: MadeSnapshot | None = None
        for run in history.finished:
            last = made.get(run.run_id, last)
            told = run.tables.get(stage.table)
            if (told is None) != (last is None):
                raise ViolationError(f"run {run.run_id} tells {told} of {stage.table}, there is {last}")
            if told is None or last is None:
                continue
            there = {
                "sequence": int(last.summary["kstreams.sequence"]),
                "rows": last.added.total(),
                "files": last.files,
                "run_id": last.summary["kstreams.run-id"],
                "snapshot": last.snapshot,
            }
            told = {"snapshot": "", "rows": 0, "files": 0, **told}
            wrong = {name: told[name] for name, value in there.items() if told[name] != value}
            if wrong and wrong != {"snapshot": ""}:
                raise ViolationError(f"run {run.run_id} tells {wrong} of {stage.table}, there is {there}")


def _by_run(stage: TableSink, history: History) -> dict[str, MadeSnapshot]:
    made = (each for each in history.snapshots if each.table == stage.table)
    return {each.summary["kstreams.run-id"]: each for each in made}


def _say_who_landed(history: History) -> None:
    by: dict[str, set[str]] = {}
    for each in history.snapshots:
        by.setdefault(each.summary["kstreams.run-id"], set()).add(each.by)
    if any(len(names) > 1 for names in by.values()):
        sometimes("two processes brought a run into its tables")


def _sinks(expected: Expectations) -> list[TableSink]:
    return [stage for stage in expected.application.stages if isinstance(stage, TableSink)]


def _wanted(stage: TableSink, number: int, history: History, expected: Expectations) -> Counter[Row]:
    return Counter(
        stage.row(result)
        for group in groups_of(stage, expected)
        for result in given_by(stage, group, history, expected).results
        if result.run == number
    )


def _compare(what: str, found: Counter[Row], wanted: Counter[Row]) -> None:
    if found != wanted:
        raise ViolationError(f"{what}: lost {_some(wanted - found)}, has too often {_some(found - wanted)}")


def _some(rows: Counter[Row], most: int = 4) -> str:
    named = ", ".join(str(row) for row in sorted(rows, key=str)[:most])
    return f"{rows.total()} ({named})" if rows else "none"
