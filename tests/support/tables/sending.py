"""Ends a stream in a table, in a call of its own: topologies of tests do it at many lines."""

from __future__ import annotations

from typing import Any

from airflow_kstreams.streams import KStream
from airflow_kstreams.streams.tables.specs import DeltaTable, IcebergTable


def send_to_table(stream: KStream[Any, Any], table: DeltaTable | IcebergTable) -> None:
    """Write a row to a table for each record."""
    stream.send_to_table(table)
