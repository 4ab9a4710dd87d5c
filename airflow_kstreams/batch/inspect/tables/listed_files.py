"""Reads the files that the run under way has listed for its tables, and the snapshots that runs have made.

A look takes what is committed at its moment: files of open transactions are not among them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing

import msgspec

from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.checked_reading import UnreadableError
from airflow_kstreams.batch.protocol.file_list import FileListReading, MergedFile
from airflow_kstreams.batch.protocol.slice.metadata_records import PARTITION
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import slice_starts
from airflow_kstreams.streams.bounded_read import BoundedRead
from airflow_kstreams.streams.errors import AccessDeniedError, RunError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, Record, TopicPartition
from airflow_kstreams.streams.tables.table_port import FileFacts


class LandedRows(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshot that a run has made of a table.

    :param table: name of the table's sink.
    :param sequence: number of the application's commit to it.
    :param snapshot: id of the snapshot, or the version; empty where it was not known any more.
    :param rows: number of rows that it added.
    :param files: number of files that it added.
    :param rewritten_bytes: bytes of the table's files that an upsert has rewritten; null where it is not
        known.
    """

    table: str
    sequence: int
    snapshot: str
    rows: int
    files: int
    rewritten_bytes: int | None = 0


class WaitingRows(msgspec.Struct, frozen=True, kw_only=True):
    """What the tasks of a run have listed for a table, and what is in no snapshot yet.

    :param table: name of the table's sink.
    :param rows: number of rows in the files.
    :param files: number of files.
    """

    table: str
    rows: int
    files: int


def landed_by(run: RunSummary) -> tuple[LandedRows, ...]:
    """Return the snapshots that a finished run has made. Its entry names earlier ones, too."""
    return tuple(
        LandedRows(
            table=name,
            sequence=each.sequence,
            snapshot=each.snapshot,
            rows=each.rows,
            files=each.files,
            rewritten_bytes=each.rewritten_bytes,
        )
        for name, each in sorted(run.tables.items())
        if each.run_id == run.run_id
    )


class SeenList(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of the list of files of the run under way.

    :param waiting: what it lists and what is in no snapshot yet, by table; None where this user may not read
        it.
    :param not_seen: what in it could not be read, and why.
    """

    waiting: tuple[WaitingRows, ...] | None = ()
    not_seen: tuple[str, ...] = ()


def waiting_of(cluster: ClusterPort, facts: RunFacts, clock: Clock) -> SeenList:
    """Return what the run under way has listed and not landed; nothing without such a run or tables."""
    slice_, foreign = facts.under_way, list[str]()
    if slice_ is None or not slice_.plan.targets:
        return SeenList()
    try:
        with closing(cluster.admin()) as admin:
            listed = listed_files(
                cluster, admin, slice_, clock=clock, tasks_own=True, pass_over=foreign.append
            )
    except AccessDeniedError:
        return SeenList(waiting=None)
    waiting = tuple(
        WaitingRows(table=name, rows=sum(file.rows for file in files), files=len(files))
        for name, files in sorted(listed.items())
    )
    return SeenList(waiting=waiting, not_seen=tuple(_foreign_texts(slice_, foreign)))


def _foreign_texts(slice_: Slice, foreign: Sequence[str]) -> Iterator[str]:
    """Yield a text on what no task has written; the run cannot land with it."""
    if foreign:
        more = f", and {counted(len(foreign) - 1, 'more record')}" if foreign[1:] else ""
        yield (
            f"a part of the list of files of run {slice_.run_id!r}: {foreign[0]}{more}. No task of the "
            "application has written that, and the run cannot land with it"
        )


def waiting_lines(waiting: Sequence[WaitingRows] | None) -> Iterator[tuple[str, str]]:
    """Yield a heading and a text for each table that rows wait for.

    :param waiting: None where it is not known.
    """
    if waiting is None:
        yield "listed for tables", "unknown: this user may not read the list of files"
    for each in waiting or ():
        yield "listed, not landed", waiting_text(each)


def waiting_text(each: WaitingRows) -> str:
    """Return e.g. ``lake.lines: 3 rows in 1 file``."""
    return f"{each.table}: {counted(each.rows, 'row')} in {counted(each.files, 'file')}"


def listed_files(
    cluster: ClusterPort,
    admin: AdminPort,
    slice_: Slice,
    *,
    clock: Clock,
    tasks_own: bool = False,
    pass_over: Callable[[str], None] | None = None,
) -> Mapping[str, list[FileFacts]]:
    """Return the files that a run has listed so far: name of a table's sink -> its files.

    :param slice_: the slice of a run that is not finished.
    :param tasks_own: leave out the files into which those of tasks were merged: they have the same rows.
    :param pass_over: gets a text on each record that no task has written; without it, such a one is an error.
    :raises RunError: the list holds what no task has written.
    """
    plan, found = slice_.plan.topology, defaultdict[str, list[FileFacts]](list)
    partition = TopicPartition(ProtocolTopics(plan.application_id).table_files, PARTITION)
    if not slice_.plan.targets or not admin.describe_topics([partition.topic]):
        return found
    start = slice_starts(slice_).get(partition, 0)
    end = admin.end_offsets([partition], isolation="read_committed")[partition]
    reading = FileListReading(plan.tables)
    with closing(cluster.reader(group_id=plan.application_id)) as reader:
        for record in _records(BoundedRead(reader, {partition: (start, max(start, end))}, clock=clock)):
            try:
                name, listed = reading.read(record, run_id=slice_.run_id)
            except UnreadableError as error:
                if pass_over is not None:
                    pass_over(f"in {partition}, {error}")
                    continue
                raise RunError(
                    f"the list of files of run {slice_.run_id!r} cannot be read: in {partition}, {error}; no "
                    "task of the application has written that",
                    run_id=slice_.run_id,
                ) from error
            if tasks_own and isinstance(listed, MergedFile):
                continue
            found[name].append(listed.file)
    return found


def _records(read: BoundedRead) -> Iterator[Record]:
    return (each for fetch in read for records in fetch.values() for each in records)
