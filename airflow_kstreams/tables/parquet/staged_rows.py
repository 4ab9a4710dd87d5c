"""Stages the rows of one task for a table with one row for each key, until the run is landed.

A staged file is a Parquet file in the table's storage that no snapshot ever has: the commit of the run reads
it. Its columns are those of the table, all optional but that of the key, and at the end ``is deleted``, which
says that the row of the key is deleted.

Rule: files of a task are listed in the order in which they were written, and rows stand in a file in the
order of their records. The key is that by which the stream is partitioned, so all rows of a key come from one
task: the last one in the order of the list is the key's last value of the run.

Of rows that are kept in memory together the last one of each key is written alone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import msgspec

from airflow_kstreams.streams.table_plan import DELETED, Column
from airflow_kstreams.streams.tables.table_port import FileFacts
from airflow_kstreams.streams.tables.table_rows import DeletedRow, Row
from airflow_kstreams.tables.parquet.parquet_files import FilePlan, ParquetRows


class StagedRows:
    """The port ``TableRows`` for a table with one row for each key.

    :param rows: writes the rows, by the plan that :func:`staged_plan` gives.
    :param columns: columns of the table's rows, that of the key first.
    """

    def __init__(self, rows: ParquetRows, columns: tuple[Column, ...]) -> None:
        self._rows, self._key = rows, columns[0].name
        self._nothing = (None,) * (len(columns) - 1)

    def add(self, row: Row) -> None:
        """Take a row, or what stands for one that is deleted."""
        if isinstance(row, DeletedRow):
            self._rows.add((row.key, *self._nothing, True))
        else:
            self._rows.add((*row, False))

    def take(self) -> list[FileFacts]:
        """Close all files, see that they are there, and return them, with statistics of the keys alone."""
        return [
            msgspec.structs.replace(
                file, columns={name: facts for name, facts in file.columns.items() if name == self._key}
            )
            for file in self._rows.take()
        ]

    def abandon(self, taken: Collection[FileFacts]) -> None:
        """Delete the files that no list names."""
        self._rows.abandon(taken)


def staged_plan(plan: FilePlan, listed_by: tuple[str, ...]) -> FilePlan:
    """Return what staged files are like.

    :param plan: what files of the table are like.
    :param listed_by: the partitioning of the staged files.
    """
    key, *others = plan.columns
    optional = (Column(column.name, column.type, required=False) for column in others)
    return replace(
        plan,
        columns=(key, *optional, Column(DELETED, "boolean")),
        partition_by=listed_by,
        sort_by=(),
        ids={},
        left_out=frozenset(),
        last_of=key.name,
    )
