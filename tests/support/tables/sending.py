"""Ends a stream in a table, before the builder has a method for it."""

from __future__ import annotations

from typing import Any

from airflow_kstreams.streams import KStream
from airflow_kstreams.streams.kstream.operators.send_to_table import SendToTable
from airflow_kstreams.streams.tables.table_rows import TableSpec


def send_to_table(stream: KStream[Any, Any], table: TableSpec) -> None:
    """Write a row to a table for each record."""
    keys = stream._known.serdes.known("key")
    stream._known.behind("KSTREAM-TABLE", SendToTable(table if keys is None else table.with_keys(keys)))
