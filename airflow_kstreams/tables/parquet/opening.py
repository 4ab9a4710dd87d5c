"""Opens what writes the rows of a task for a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from airflow_kstreams.streams.errors import TableRefusedError
from airflow_kstreams.streams.table_plan import TablePlan
from airflow_kstreams.streams.tables.table_port import TablesPort
from airflow_kstreams.streams.tables.table_rows import RowsWriter
from airflow_kstreams.tables.parquet.parquet_files import FileNames, FilePlan, ParquetRows

_TARGET_BYTES = 128 * 1024 * 1024


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


def rows_opener(tables: TablesPort) -> Callable[[TablePlan, Target, RowsWriter], ParquetRows]:
    """Return what opens the rows of a table for a task.

    :param tables: opens the tables; a task asks where the files of its table belong.
    """

    def open_rows(table: TablePlan, target: Target, writer: RowsWriter) -> ParquetRows:
        port = tables.table(table)
        look = port.look()
        if look is None or look.table_id != target.table_id:
            found = "it is gone" if look is None else f"it is table {look.table_id}"
            raise TableRefusedError(
                f"the run began with table {table.name!r} of id {target.table_id}, and {found}",
                fix="restore the table as it was, then retry the run",
            )
        # Delta has the values of its partitions in the log and in names of folders alone.
        left_out = frozenset(table.partition_by) if table.format == "delta" else frozenset()
        plan = FilePlan(
            columns=table.columns,
            partition_by=table.partition_by,
            sort_by=target.sort_by,
            ids=target.column_ids,
            left_out=left_out,
            target_bytes=target.target_bytes or _TARGET_BYTES,
        )
        return ParquetRows(port.files(look), plan, FileNames(writer))

    return open_rows
