"""Writes the rows of a task for a table in memory, without Parquet."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from airflow_kstreams.batch.protocol.slice.slice import FrozenTarget, Slice
from airflow_kstreams.batch.run.tables.merge_plan import MakeMerges, Merge
from airflow_kstreams.batch.task.work import OpenRows
from airflow_kstreams.streams.errors import TableUnavailableError
from airflow_kstreams.streams.table_plan import TablePlan
from airflow_kstreams.streams.tables.table_port import FileFacts, TableFiles, TablePort, TablesPort
from airflow_kstreams.streams.tables.table_rows import Row, RowsWriter

_numbers = itertools.count(1)


class PackedRows:
    """The port ``TableRows``: one file for all rows of a partition between two commits.

    :param files: storage of the table's files.
    :param label: beginning of the files' names.
    :param partition_by: places of the columns that the table is partitioned by.
    :param numbers: make the names different.
    """

    def __init__(
        self, files: TableFiles, label: str, partition_by: Sequence[int], numbers: Iterator[int] = _numbers
    ) -> None:
        self._files, self._label, self._partition_by = files, label, partition_by
        self._numbers = numbers
        self._rows: dict[tuple[Any, ...], list[Row]] = {}

    def add(self, row: Row) -> None:
        """Take a row."""
        self._rows.setdefault(tuple(row[place] for place in self._partition_by), []).append(row)

    def take(self) -> list[FileFacts]:
        """Write the rows to files, and see that they are there."""
        taken = [self._written(partition, rows) for partition, rows in self._rows.items()]
        if self._files.sizes([file.path for file in taken]) != {file.path: file.size for file in taken}:
            raise TableUnavailableError("files are not there as they were written")
        self._rows = {}
        return taken

    def _written(self, partition: tuple[Any, ...], rows: list[Row]) -> FileFacts:
        path, data = self._files.path(f"{self._label}-{next(self._numbers)}"), msgspec.msgpack.encode(rows)
        with self._files.create(path) as file:
            file.write(data)
        return FileFacts(path=path, size=len(data), rows=len(rows), partition=partition)

    def abandon(self, taken: Collection[FileFacts]) -> None:
        """Delete files that no list names."""
        self._rows = {}
        self._files.delete([file.path for file in taken])


def packing(tables: TablesPort, numbers: Iterator[int] = _numbers) -> OpenRows:
    """Return what opens packed rows on tables.

    :param numbers: make the names of files different.
    """

    def open_rows(table: TablePlan, target: FrozenTarget, writer: RowsWriter) -> PackedRows:
        port = tables.table(table)
        look = port.look()
        if look is None:
            raise TableUnavailableError(f"table {table.name!r} is gone")
        names = [column.name for column in table.columns]
        return PackedRows(
            port.files(look), writer.task_id, [names.index(name) for name in table.partition_by], numbers
        )

    return open_rows


def packed_merges(tables: TablesPort) -> MakeMerges:
    """Return what merges files of packed rows."""

    def make_merges(slice_: Slice, merges: Sequence[Merge]) -> list[FileFacts]:
        plans = {table.name: table for table in slice_.plan.topology.tables}
        return [
            _packed_together(tables.table(plans[merge.table]), [*merge.files.values()]) for merge in merges
        ]

    return make_merges


def _packed_together(port: TablePort, small: Sequence[FileFacts]) -> FileFacts:
    look = port.look()
    if look is None:
        raise TableUnavailableError("the table is gone")
    files = port.files(look)
    rows = []
    for file in small:
        with files.read(file.path) as stream:
            rows += msgspec.msgpack.decode(stream.read())
    path, data = files.path(f"merged-{next(_numbers)}"), msgspec.msgpack.encode(rows)
    with files.create(path) as out:
        out.write(data)
    return FileFacts(path=path, size=len(data), rows=len(rows), partition=small[0].partition)


def unpacked(data: bytes) -> Iterable[tuple[Any, ...]]:
    """Return the rows of a file."""
    return map(tuple, msgspec.msgpack.decode(data))
