"""Lets a table's rows go to another table: the setting ``output.topics`` with ``table:<name>``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.table_plan import TableMode, TablePlan
from airflow_kstreams.streams.tables.table_rows import RowOf, TableSpec


@dataclass(frozen=True, slots=True)
class TableElsewhere:
    """A table of a topology whose rows are written to another one: see ``TableSpec``.

    :param described: the table, as the application file describes it.
    :param location: the other table's identifier in its catalogue, or its URI.
    """

    described: TableSpec
    location: str

    @property
    def name(self) -> str:
        """Name of the sink, which stays."""
        return self.described.name

    @property
    def mode(self) -> TableMode:
        """What happens to rows of a key."""
        return self.described.mode

    @property
    def plan(self) -> TablePlan:
        """The table as plain data."""
        return msgspec.structs.replace(self.described.plan, location=self.location)

    def with_keys(self, serde: Serde[Any]) -> TableElsewhere:
        """Return the table for a stream whose keys have a serde."""
        return replace(self, described=self.described.with_keys(serde))

    def row_of(self, run_id: str = "") -> RowOf:
        """Return the function that makes rows."""
        return self.described.row_of(run_id)
