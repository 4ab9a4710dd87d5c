"""A run with many files: its finish, and what the format's library needs for the bare commit of such files.

Each input record lies in a partition of its own, so that a task writes a file for each. The bare commit adds
the same files to an empty table, described as the finish describes them, in one commit: the descriptions are
made before its time begins.
"""

from __future__ import annotations

import gc
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from airflow_kstreams.batch.protocol.file_list import packed_file, unpacked_file
from airflow_kstreams.batch.protocol.slice.slice import FrozenTarget
from airflow_kstreams.batch.task.work import OpenRows
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.ports import ClusterPort
from airflow_kstreams.streams.table_plan import TablePlan
from airflow_kstreams.streams.tables.table_port import FileFacts
from airflow_kstreams.streams.tables.table_rows import RowsWriter, TableRows
from airflow_kstreams.tables.parquet.opening import rows_opener
from dev.benchmarks import memory
from dev.benchmarks.tables.places import Format, Place, described
from tests.support.kafka.in_process import Application

if TYPE_CHECKING:
    from deltalake.transaction import AddAction, RemoveAction

RUN = "bench"


class Piece(msgspec.Struct):
    """A row, which has a partition to itself."""

    part: int
    text: str


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One run.

    :param source: input topic.
    :param files: number of files, which is that of the records.
    """

    bootstrap: str
    application_id: str
    source: str
    files: int
    place: Place


def record_of(number: int) -> bytes:
    """Return the value of an input record."""
    return b'{"part":%d,"text":"lorem ipsum dolor sit"}' % number


def topology_of(work: Work) -> Topology:
    """Return the topology of a run. A finish without Spark merges no files, and each of these is alone in its
    partition.
    """
    builder = KStreamBuilder(default_key_serde=serdes.string())
    pieces = builder.stream(work.source, value_serde=serdes.json(Piece))
    pieces.send_to_table(described(work.place, Piece, partition_by=["part"]))
    return builder.build()


def application_of(work: Work, on: ClusterPort | None = None) -> Application:
    """Return the application.

    :param on: another cluster than the broker.
    """
    tables = work.place.opened()
    return Application(
        application_id=work.application_id,
        topology=topology_of(work),
        bootstrap=work.bootstrap,
        on=on,
        tables=tables,
        open_rows=rows_opener(tables),
    )


def write(work: Work, on: ClusterPort | None = None) -> Mapping[str, float]:
    """Begin a run and let its tasks write and list their files; the facts of these go to a file."""
    app = application_of(work, on)
    taken: list[FileFacts] = []
    app.open_rows = partial(_noting, rows_opener(work.place.opened()), taken)
    started = time.monotonic()
    app.tasks(app.begin(RUN))
    if len(taken) != work.files:
        raise SystemExit(f"{len(taken):,} files, not {work.files:,}")
    _facts_file(work).write_bytes(msgspec.msgpack.encode([packed_file(file) for file in taken]))
    return {"seconds": time.monotonic() - started}


def finish(work: Work, on: ClusterPort | None = None) -> Mapping[str, float]:
    """Finish the run: read the list, seal it, look at the table, commit, write the marker.

    :return: ``seconds``, and the highest memory of this process meanwhile.
    """
    app = application_of(work, on)
    # In the bare commit's process, too, modules are imported and the catalogue was asked before.
    (plan,) = app.topology.plan(work.application_id).tables
    work.place.opened().table(plan).look()
    gc.collect()
    memory.forget_peak()
    started = time.monotonic()
    (landed,) = app.finish(RUN).tables.values()
    seconds = time.monotonic() - started
    if landed.files != work.files:
        raise SystemExit(f"{landed.files:,} files have landed, not {work.files:,}")
    return {"seconds": seconds, "process_peak_mb": memory.peak_megabytes()}


def commit_bare(work: Work) -> Mapping[str, float]:
    """Commit the files of a run, which is not finished, to an empty table by the library alone.

    :return: as for :func:`finish`.
    """
    (plan,) = topology_of(work).plan(work.application_id).tables
    packed = msgspec.msgpack.decode(_facts_file(work).read_bytes(), type=list[bytes])
    commit = _BARE[work.place.format](work.place, plan, [unpacked_file(each, plan) for each in packed])
    gc.collect()
    memory.forget_peak()
    started = time.monotonic()
    found = commit()
    seconds = time.monotonic() - started
    if found() != work.files:
        raise SystemExit(f"the bare commit has {found():,} files, not {work.files:,}")
    return {"seconds": seconds, "process_peak_mb": memory.peak_megabytes()}


#: Commits, and returns what counts the files of the table.
Commit = Callable[[], Callable[[], int]]


def _by_pyiceberg(place: Place, plan: TablePlan, files: Collection[FileFacts]) -> Commit:
    """Return the commit of files to another table of the same catalogue."""
    from airflow_kstreams.tables.iceberg_files import DataFileMaker

    other = msgspec.structs.replace(place, name=f"{place.name}-bare")
    twin = described(other, Piece, partition_by=["part"]).plan
    other.opened().table(twin).create(twin.columns, twin.partition_by)
    table = other.by_pyiceberg()
    maker = DataFileMaker(table.schema(), table.spec())
    made = [maker.made(file) for file in files]

    def found() -> int:
        head = other.by_pyiceberg().current_snapshot()
        return int(head.summary["total-data-files"] or 0) if head and head.summary else 0

    def commit() -> Callable[[], int]:
        transaction = other.by_pyiceberg().transaction()
        producer = transaction.update_snapshot().merge_append()
        for file in made:
            producer.append_data_file(file)
        producer.commit()
        transaction.commit_transaction()
        return found

    return commit


def _by_deltalake(place: Place, plan: TablePlan, files: Collection[FileFacts]) -> Commit:
    """Return the commit of files to a copy of the table, which is empty, in which they lie, too."""
    from deltalake import DeltaTable

    from airflow_kstreams.tables.delta_files import add_action

    copied, fields = f"{place.location}-bare", list(plan.partition_by)
    shutil.copytree(place.location, copied)
    made: list[AddAction | RemoveAction] = [
        add_action(place.location, fields, file, time.time_ns() // 1_000_000) for file in files
    ]

    def commit() -> Callable[[], int]:
        table = DeltaTable(copied)
        table.create_write_transaction(made, "append", table.schema(), partition_by=fields)
        return lambda: len(DeltaTable(copied).file_uris())

    return commit


_BARE: Mapping[Format, Callable[[Place, TablePlan, Collection[FileFacts]], Commit]] = {
    "iceberg": _by_pyiceberg,
    "delta": _by_deltalake,
}


class _Noted:
    """Rows of a task that note the files which they give.

    :param rows: the rows.
    :param files: takes the facts of the files.
    """

    def __init__(self, rows: TableRows, files: list[FileFacts]) -> None:
        self._rows, self._files = rows, files
        self.add, self.abandon = rows.add, rows.abandon

    def take(self) -> list[FileFacts]:
        """Close all files, and return them."""
        taken = self._rows.take()
        self._files += taken
        return taken


def _noting(
    open_rows: OpenRows, files: list[FileFacts], table: TablePlan, target: FrozenTarget, writer: RowsWriter
) -> TableRows:
    return _Noted(open_rows(table, target, writer), files)


def _facts_file(work: Work) -> Path:
    return Path(work.place.folder) / f"{work.place.name}.files"
