"""What must hold of the tables after every round, judged from what lies in the storage and in Kafka.

Each check takes the evidence, the runs that Kafka's records tell of, and a table, and yields what is wrong.
None knows how the engine works: they know the input, what the application means, and what the documentation
says of snapshots: their ``kstreams.`` properties, and the mark.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dev.chaos_rounds import checks
from dev.chaos_rounds.evidence import Evidence, Payment, Run, runs_of
from dev.chaos_rounds.tables.lake import FoundTable
from dev.chaos_rounds.tables.names import KEY_COLUMN, OTHER, TABLE_FILES
from dev.chaos_rounds.topics import METADATA, PARTITIONS, PAYMENTS

TableCheck = Callable[[Evidence, Sequence[Run], FoundTable], Iterator[str]]
_SHOWN = 5

#: Of those of topics, what holds here, too.
OF_TOPICS: tuple[checks.Check, ...] = (
    checks.inputs_are_sound,
    checks.runs_are_finished,
    checks.slices_join,
    checks.offsets_are_at_their_stops,
    checks.echo_is_the_input,
    checks.nothing_seen_is_gone,
    checks.nothing_is_left_open,
)


def table_verdict(evidence: Evidence, tables: Sequence[FoundTable]) -> list[str]:
    """Return what is wrong, of each kind the first few; nothing is what it should be."""
    wrong = checks.verdict(evidence, (*OF_TOPICS, upstream_notified))
    runs, _ = runs_of(evidence.logs[METADATA])
    for table in tables:
        for check in CHECKS:
            found = [f"{check.__name__}, {table.name}: {what}" for what in check(evidence, runs, table)]
            wrong += found[:_SHOWN]
            if len(found) > _SHOWN:
                wrong.append(f"{check.__name__}, {table.name}: and {len(found) - _SHOWN} more")
    return wrong


def upstream_notified(evidence: Evidence, runs: Sequence[Run]) -> Iterator[str]:
    """In a run that had records, each input partition's task notified, and the list of files has a stop."""
    tasks = set(range(PARTITIONS[PAYMENTS]))
    for run in runs:
        if not _has_records(run):
            continue
        if (TABLE_FILES, 0) not in run.between:
            yield f"run {run.run_id} finished without a stop of {TABLE_FILES}"
        if silent := tasks - {group for _, group in run.done}:
            yield f"run {run.run_id} finished without the notifications of tasks {sorted(silent)}"


def every_run_landed_once(evidence: Evidence, runs: Sequence[Run], table: FoundTable) -> Iterator[str]:
    """Each run that had records is one snapshot, in the order of runs, and no other snapshot names one."""
    wanted = [run.run_id for run in runs if _has_records(run)]
    landed = [snapshot.run_id for snapshot in table.snapshots if snapshot.run_id]
    for run_id, times in Counter(landed).items():
        if times > 1:
            yield f"run {run_id} has {times} snapshots"
    if missing := [run_id for run_id in wanted if run_id not in landed]:
        yield f"runs without a snapshot: {missing}"
    if set(landed) == set(wanted) and len(landed) == len(wanted) and landed != wanted:
        yield f"snapshots come in the order {landed}, runs in the order {wanted}"
    if strange := sorted(set(landed) - set(wanted)):
        yield f"snapshots of runs that had no records, or never were: {strange}"


def sequences_have_no_gap(evidence: Evidence, runs: Sequence[Run], table: FoundTable) -> Iterator[str]:
    """The sequences of our snapshots count from 1, and the mark is the last one."""
    found = [int(snapshot.summary["kstreams.sequence"]) for snapshot in table.snapshots if snapshot.run_id]
    if found != list(range(1, len(found) + 1)):
        yield f"sequences are {found}"
    if table.mark != len(found):
        yield f"the mark is {table.mark}, there are {len(found)} snapshots of runs"


def snapshots_say_their_slice(evidence: Evidence, runs: Sequence[Run], table: FoundTable) -> Iterator[str]:
    """The offsets in a snapshot's summary are those of its run's markers."""
    spans = {
        run.run_id: {f"{topic}-{number}": list(span) for (topic, number), span in run.spans.items()}
        for run in runs
    }
    for snapshot in table.snapshots:
        if snapshot.run_id:
            said = json.loads(snapshot.summary["kstreams.offsets"])
            if said != spans.get(snapshot.run_id):
                yield f"run {snapshot.run_id} says {said}, its markers {spans.get(snapshot.run_id)}"


def rows_are_the_input(evidence: Evidence, runs: Sequence[Run], table: FoundTable) -> Iterator[str]:
    """Appended: each payment below the stops once. Upserted: each account's last one."""
    ours = [row for row in table.rows if not _is_others(row)]
    if table.name.upsert:
        yield from _last_ones(evidence, runs, ours)
        return
    expected = {
        (row.partition, row.offset): row.json()
        for row in evidence.logs[PAYMENTS]
        if row.offset < checks.last_stops(runs).get((PAYMENTS, row.partition), 0)
    }
    found = Counter((row["_partition"], row["_offset"]) for row in ours)
    if doubled := sorted(place for place, times in found.items() if times > 1):
        yield f"{len(doubled)} payments more than once, such as {doubled[:_SHOWN]}"
    if lost := sorted(expected.keys() - found.keys()):
        yield f"{len(lost)} payments lost, such as {lost[:_SHOWN]}"
    if strange := sorted(found.keys() - expected.keys()):
        yield f"{len(strange)} rows of no payment below the stops, such as {strange[:_SHOWN]}"
    for row in ours:
        wanted = expected.get((row["_partition"], row["_offset"]))
        if wanted is not None and {name: row[name] for name in wanted} != wanted:
            yield f"found {row}, expected {wanted}"


def rows_name_their_run(evidence: Evidence, runs: Sequence[Run], table: FoundTable) -> Iterator[str]:
    """Each appended row names the run whose slice has its record."""
    if table.name.upsert:
        return
    spans = {run.run_id: run.spans for run in runs}
    for row in table.rows:
        if _is_others(row):
            continue
        start, stop = spans.get(row["_run"], {}).get((PAYMENTS, row["_partition"]), (0, 0))
        if not start <= row["_offset"] < stop:
            at = f"{row['_partition']}@{row['_offset']}"
            yield f"payment {at} says run {row['_run']}, whose slice is [{start}, {stop})"


def files_are_of_their_run(evidence: Evidence, runs: Sequence[Run], table: FoundTable) -> Iterator[str]:
    """A snapshot adds no file but those of its own run: none of a dropped attempt, none of another run."""
    for snapshot in table.snapshots:
        for path in snapshot.added:
            found = table.runs_of_files.get(path)
            if snapshot.run_id and found is not None and found != {snapshot.run_id}:
                yield f"the snapshot of run {snapshot.run_id} adds {path}, which has rows of {sorted(found)}"


def no_file_is_missing(evidence: Evidence, runs: Sequence[Run], table: FoundTable) -> Iterator[str]:
    """Every file that a snapshot names is there, at its size."""
    yield from table.missing


def rows_of_others_are_there(evidence: Evidence, runs: Sequence[Run], table: FoundTable) -> Iterator[str]:
    """Each commit of another writer that added a file has its one row."""
    commits = sum(bool(snapshot.added) and not snapshot.run_id for snapshot in table.snapshots)
    rows = sum(map(_is_others, table.rows))
    if commits != rows:
        yield f"others have made {commits} commits of one row, and there are {rows} of their rows"


CHECKS: tuple[TableCheck, ...] = (
    every_run_landed_once,
    sequences_have_no_gap,
    snapshots_say_their_slice,
    rows_are_the_input,
    rows_name_their_run,
    files_are_of_their_run,
    no_file_is_missing,
    rows_of_others_are_there,
)


def _last_ones(evidence: Evidence, runs: Sequence[Run], rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    expected: dict[str, Payment] = {paid.account: paid for paid in evidence.payments(checks.last_stops(runs))}
    found = Counter(row[KEY_COLUMN] for row in rows)
    if doubled := sorted(key for key, times in found.items() if times > 1):
        yield f"more than one row for {doubled[:_SHOWN]}"
    if lost := sorted(expected.keys() - found.keys()):
        yield f"no row for {lost[:_SHOWN]}"
    if strange := sorted(found.keys() - expected.keys()):
        yield f"a row for {strange[:_SHOWN]}, which have no payment below the stops"
    for row in rows:
        wanted = expected.get(row[KEY_COLUMN])
        if wanted is not None and {name: row[name] for name in wanted._fields} != wanted._asdict():
            yield f"found {row}, the last one is {wanted}"


def _has_records(run: Run) -> bool:
    return any(start < stop for start, stop in run.spans.values())


def _is_others(row: dict[str, Any]) -> bool:
    return str(row.get(KEY_COLUMN, row.get("_run"))).startswith(OTHER)
