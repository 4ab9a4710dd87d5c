"""Defines the operator that writes records to a table.

Rule: each record makes one row, or is left out by the handler of ``production.exception.handler``. Files are
written beside the task's results, and listed in the transaction of their commit
(:mod:`airflow_kstreams.batch.protocol.file_list`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from airflow_kstreams.streams.graph.nodes import OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, NodeContext
from airflow_kstreams.streams.tables.table_rows import TableSpec


@dataclass(frozen=True, slots=True)
class SendToTable:
    """Writes a row for each record.

    :param table: the table.
    """

    table: TableSpec

    @property
    def type(self) -> str:
        """Kind of node."""
        return f"send_to_table({self.table.name})"

    @property
    def traits(self) -> OperatorTraits:
        """The facts that the engine uses."""
        return OperatorTraits(flow="kept", table=self.table)

    def with_table(self, table: TableSpec) -> SendToTable:
        """Return the operator that writes to another table."""
        return replace(self, table=table)

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        add_row, row_of = context.add_row(self.table.name), self.table.row_of(context.run_id)
        record_context = context.record_context

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            add_row(row_of(key, value, record_context))

        return run
