"""Keeps the rows of tables for tests of topologies."""

from __future__ import annotations

from collections.abc import Collection

from airflow_kstreams.streams.tables.table_port import FileFacts
from airflow_kstreams.streams.tables.table_rows import Row


class CollectedRows:
    """The port ``TableRows`` without files.

    :ivar rows: the rows that were taken, in order.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(self, row: Row) -> None:
        """Keep a row."""
        self.rows.append(row)

    def take(self) -> list[FileFacts]:
        """Return no file."""
        return []

    def abandon(self, taken: Collection[FileFacts]) -> None:
        """Delete no file."""
