"""Tables at which a begin is rehearsed: they are read, and nothing is changed.

Rule: a table that the begin would create, and columns that it would add or widen, exist from then on for the
rehearsal alone. So the begin's own checks run to their end, and say what a begin would refuse.

Where it is not known where tables are, each is taken to be as the ledger has it: the rest of a begin can be
rehearsed, and whoever shows it says that tables were not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from airflow_kstreams.batch.ledger.facts import LandedTable
from airflow_kstreams.streams.table_plan import Column, TablePlan
from airflow_kstreams.streams.tables.table_port import TableLook, TablePort, TablesPort

#: What a begin would do to a table before it writes.
Preparation = Literal["create", "change columns"]


@dataclass(slots=True, kw_only=True)
class RehearsedTables:
    """A ``TablesPort`` that changes nothing.

    :param tables: the tables that are read; None where it is not known where they are.
    :param ledger: name of a table's sink -> the application's last commit to it.
    :ivar prepared: name of a table's sink -> what the begin would do to it.
    """

    tables: TablesPort | None
    ledger: Mapping[str, LandedTable] = field(default_factory=dict)
    prepared: dict[str, Preparation] = field(default_factory=dict)

    def table(self, spec: TablePlan) -> TablePort:
        """Return the port to a table, with the calls that a begin makes."""
        if self.tables is None:
            return cast("TablePort", _UnseenTable(spec, self.ledger.get(spec.name)))
        return cast("TablePort", _RehearsedTable(self.tables.table(spec), spec.name, self.prepared))


class _RehearsedTable:
    def __init__(self, port: TablePort, name: str, prepared: dict[str, Preparation]) -> None:
        self._port, self._name, self._prepared = port, name, prepared
        self._made: TableLook | None = None

    def look(self, application_id: str = "") -> TableLook | None:
        return self._made or self._port.look(application_id)

    def create(self, columns: tuple[Column, ...], partition_by: tuple[str, ...]) -> None:
        self._prepared[self._name] = "create"
        self._made = TableLook(table_id="", columns=columns, partition_by=partition_by)

    def widen(self, look: TableLook, *, added: tuple[Column, ...], widened: tuple[Column, ...]) -> None:
        self._prepared[self._name] = "change columns"
        wider = {column.name: column for column in widened}
        columns = (*(wider.get(column.name, column) for column in look.columns), *added)
        self._made = replace(look, columns=columns)

    def holds(self, look: TableLook, snapshot: str) -> bool | None:
        return self._port.holds(look, snapshot)


class _UnseenTable:
    """A table as the ledger has it."""

    def __init__(self, spec: TablePlan, known: LandedTable | None) -> None:
        self._spec, self._known = spec, known

    def look(self, application_id: str = "") -> TableLook:
        del application_id
        known = self._known
        return TableLook(
            table_id="" if known is None else known.table_id,
            columns=self._spec.columns,
            partition_by=self._spec.partition_by,
            snapshot="" if known is None else known.snapshot,
            marks={} if known is None else {self._spec.name: known.sequence},
        )

    def holds(self, look: TableLook, snapshot: str) -> None:
        """Say that it is not known."""
