"""Keeps the rows of tables for tests of topologies."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from airflow_kstreams.streams.tables.table_port import FileFacts
from airflow_kstreams.streams.tables.table_rows import DeletedRow, Row


class CollectedRows:
    """The port ``TableRows`` without files.

    :ivar rows: the rows that were taken, in order.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def last_of_keys(self) -> list[Row]:
        """Return the last row of each key, those that were written last at the end; none of deleted keys."""
        last: dict[Any, Row] = {}
        for row in self.rows:
            last.pop(row[0], None)
            if not isinstance(row, DeletedRow):
                last[row[0]] = row
        return list(last.values())

    def add(self, row: Row) -> None:
        """Keep a row."""
        self.rows.append(row)

    def take(self) -> list[FileFacts]:
        """Return no file."""
        return []

    def abandon(self, taken: Collection[FileFacts]) -> None:
        """Delete no file."""
