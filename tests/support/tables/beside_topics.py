"""A topology that writes the same records to a topic and to a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.tables.specs import IcebergTable

TABLE = "lake.lines"


@dataclass
class Line:
    text: str
    count: int = 0


def topology(table: str = TABLE, **options: Any) -> Topology:
    """``in`` -> ``out``, and ``in`` -> a table."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json(Line))
    lines = builder.stream("in", name="lines")
    lines.send_to("out", name="to-topic")
    lines.send_to_table(IcebergTable(table, row=Line, **options), name="to-table")
    return builder.build()
