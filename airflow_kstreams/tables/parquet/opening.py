"""Opens what writes the files of a table that a run has begun with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from airflow_kstreams.streams.errors import TableRefusedError
from airflow_kstreams.streams.table_plan import TablePlan
from airflow_kstreams.streams.tables.table_port import TARGET_BYTES, TableFiles, TablesPort
from airflow_kstreams.streams.tables.table_rows import RowsWriter, TableRows
from airflow_kstreams.tables.parquet.parquet_files import FileNames, FilePlan, ParquetRows
from airflow_kstreams.tables.parquet.staged_rows import StagedRows, staged_plan


class Target(Protocol):
    """What a run has frozen of a table."""

    @property
    def table_id(self) -> str:
        """Id of the table."""
        ...

    @property
    def column_ids(self) -> Mapping[str, int]:
        """Dotted name of a column or part -> the id that files carry for it."""
        ...

    @property
    def target_bytes(self) -> int:
        """Size of files that the table asks for, bytes; 0 if it does not say."""
        ...

    @property
    def sort_by(self) -> tuple[str, ...]:
        """Columns by which rows of a file are sorted."""
        ...


def rows_opener(
    tables: TablesPort, *, open_files: int = 8
) -> Callable[[TablePlan, Target, RowsWriter], TableRows]:
    """Return what opens the rows of a table for a task.

    :param tables: opens the tables; a task asks where the files of its table belong.
    :param open_files: number of files that a task has open at most, for each table.
    """

    def open_rows(table: TablePlan, target: Target, writer: RowsWriter) -> TableRows:
        files, plan = opened_target(tables, table, target)
        plan, names = replace(plan, open_files=open_files), FileNames(writer)
        if table.mode == "upsert":
            return StagedRows(ParquetRows(files, staged_plan(plan, table.listed_by), names), table.columns)
        return ParquetRows(files, plan, names)

    return open_rows


def opened_target(tables: TablesPort, table: TablePlan, target: Target) -> tuple[TableFiles, FilePlan]:
    """Look at a table that a run began with, and return the storage of its files and what files are like.

    :raises TableRefusedError: another table stands under its name, or none.
    :raises TableUnavailableError: the catalogue did not answer.
    """
    port = tables.table(table)
    look = port.look()
    if look is None or look.table_id != target.table_id:
        found = "it is gone" if look is None else f"it is table {look.table_id}"
        raise TableRefusedError(
            f"the run began with table {table.name!r} of id {target.table_id}, and {found}",
            fix="restore the table as it was, then retry the run",
        )
    plan = FilePlan(
        columns=table.columns,
        partition_by=table.partition_by,
        sort_by=target.sort_by,
        ids=target.column_ids,
        # Delta has the values of its partitions in the log and in names of folders alone.
        left_out=frozenset(table.partition_by) if table.format == "delta" else frozenset(),
        target_bytes=target.target_bytes or TARGET_BYTES,
    )
    return port.files(look), plan
