"""Stages the rows of a task for a table with one row for each key, without Parquet."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from airflow_kstreams.batch.protocol.slice.slice import FrozenTarget
from airflow_kstreams.batch.task.work import OpenRows
from airflow_kstreams.streams.errors import TableUnavailableError
from airflow_kstreams.streams.table_plan import TablePlan
from airflow_kstreams.streams.tables.table_port import FileFacts, TablesPort
from airflow_kstreams.streams.tables.table_rows import DeletedRow, Row, RowsWriter
from tests.support.tables.packed_rows import PackedRows


class PackedUpserts:
    """The port ``TableRows``: rows as they come, each with a flag at its end.

    :param rows: writes them.
    :param table: the table; all rows are given the first of its buckets.
    """

    def __init__(self, rows: PackedRows, table: TablePlan) -> None:
        self._rows, self._others = rows, (None,) * (len(table.columns) - 1)
        self._partition = (0,) * len(table.listed_by)

    def add(self, row: Row) -> None:
        """Take a row, or what stands for a deleted one."""
        deleted = isinstance(row, DeletedRow)
        self._rows.add((*row, *self._others, True) if deleted else (*row, False))

    def take(self) -> list[FileFacts]:
        """Write the rows to files."""
        return [msgspec.structs.replace(file, partition=self._partition) for file in self._rows.take()]

    def abandon(self, taken: Collection[FileFacts]) -> None:
        """Delete files that no list names."""
        self._rows.abandon(taken)


def packing_upserts(tables: TablesPort) -> OpenRows:
    """Return what opens packed rows of upserts on tables."""

    def open_rows(table: TablePlan, target: FrozenTarget, writer: RowsWriter) -> PackedUpserts:
        port = tables.table(table)
        look = port.look()
        if look is None:
            raise TableUnavailableError(f"table {table.name!r} is gone")
        return PackedUpserts(PackedRows(port.files(look), writer.task_id, []), table)

    return open_rows
