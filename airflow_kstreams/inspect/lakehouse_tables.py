"""Makes tables of what was read of an application's Iceberg and Delta tables, for terminals and notebooks."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_kstreams.batch.inspect.tables.listed_files import waiting_text
from airflow_kstreams.batch.inspect.tables.orphans import Orphans
from airflow_kstreams.batch.inspect.tables.seen_tables import SeenTables
from airflow_kstreams.batch.inspect.tables.table_check import TablesCheck
from airflow_kstreams.explore.tables import Table
from airflow_kstreams.inspect.tables_of import number_text
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.figures.time_texts import duration_text, time_text

#: Files and differences that are shown one by one.
_MOST = 50


def shown_tables(found: SeenTables) -> Iterator[Table]:
    """Yield the tables of a topology, and the application's last commit to each."""
    if not found.tables:
        return
    yield Table(
        title=f"Tables of {found.application_id}",
        columns=("table", "format", "location", "next begin"),
        rows=[(each.name, each.format, each.location, each.state) for each in found.tables],
    )
    yield Table(
        title="Last commits",
        columns=("table", "run", "snapshot", "mark", "ledger", "rows", "files"),
        rows=[
            (
                each.name,
                each.run_id or "-",
                each.last_snapshot or "-",
                *map(number_text, (each.mark, each.sequence, each.rows, each.files)),
            )
            for each in found.tables
        ],
        numbers=4,
    )


def notes_of_tables(found: SeenTables) -> Iterator[str]:
    """Yield what a begin would refuse, and what the run under way has listed."""
    if not found.tables:
        yield "The topology writes to no table."
    for each in found.tables:
        if each.refused is not None:
            yield each.refused.in_one_line
            if each.refused.remedy:
                yield f"What to do: {each.refused.remedy}"
    if found.waiting is None:
        yield "Not looked at: the list of files, which this user may not read"
    yield from (f"Not looked at: {text}" for text in found.not_seen)
    yield from (f"Listed, not landed: {waiting_text(each)}" for each in found.waiting or ())


def shown_orphans(found: Orphans) -> Iterator[Table]:
    """Yield the orphans, the oldest first."""
    if found.files:
        yield Table(
            title=f"Files that nothing needs: {len(found.files):,} of {found.looked_at:,}",
            columns=("table", "file", "changed (UTC)", "", "bytes"),
            rows=[
                (
                    each.table,
                    each.path,
                    time_text(each.changed_ms),
                    "deleted" if each.deleted else "",
                    number_text(each.bytes),
                )
                for each in found.files[:_MOST]
            ],
            numbers=1,
            more=max(0, len(found.files) - _MOST),
        )


def notes_of_orphans(found: Orphans) -> Iterator[str]:
    """Yield how many there are, and how many were deleted."""
    deleted = [each for each in found.files if each.deleted]
    size = sum(each.bytes for each in found.files)
    yield (
        f"{counted(len(found.files), 'file')} of {found.application_id}, {counted(size, 'byte')}, that no "
        f"snapshot, open slice or sealed list names; {len(deleted):,} deleted "
        f"(--delete takes those older than {duration_text(found.older_than_ms)})."
    )


def shown_check(found: TablesCheck) -> Iterator[Table]:
    """Yield what was compared, and the differences."""
    if found.tables:
        yield Table(
            title=f"Tables of {found.application_id} beside its ledger",
            columns=("table", "rows by run", "runs compared", "forgotten", "taken back", "rows"),
            rows=[
                (
                    each.name,
                    "counted" if each.counted else "not counted",
                    *map(number_text, (each.runs, each.forgotten, each.taken_back, each.rows)),
                )
                for each in found.tables
            ],
            numbers=4,
        )
    if found.differences:
        yield Table(
            title=f"Differences: {len(found.differences):,}",
            columns=("table", "run", "snapshot", "found", "ledger", "table has"),
            rows=[
                (
                    each.table,
                    each.run_id or "-",
                    each.snapshot or "-",
                    each.text,
                    number_text(each.ledger),
                    number_text(each.found),
                )
                for each in found.differences[:_MOST]
            ],
            numbers=2,
            more=max(0, len(found.differences) - _MOST),
        )


def notes_of_check(found: TablesCheck) -> Iterator[str]:
    """Yield the result in one sentence, after what was accepted."""
    for each in found.tables:
        if each.taken_back:
            yield f"{each.name}: {counted(each.taken_back, 'run')} taken back by an accepted rollback."
    if not found.tables:
        yield "The topology writes to no table."
    elif found.differences:
        yield f"{counted(len(found.differences), 'difference')} between tables and ledger."
    else:
        yield "Tables and ledger agree."
