"""Looks at the tables that a run is to write to, and freezes what its files and its commits are made for.

Rule: a run writes to a table only if the table is as the last run of the application has left it, apart from
what others may do beside us: their snapshots, compaction, expiry, further optional columns. Compared are

- the table's id with the ledger's: another table may stand under the name;
- the mark in the table with the ledger's sequence: a deployment elsewhere under the same application id, or a
  ledger that was lost, would commit a run twice;
- the history with the ledger's snapshot: rows are gone if the table was rolled back past it;
- columns and partitioning with those of the rows.

Optional columns that are missing, and types that have to be wider, are made here, before a file is written,
so that every file has the table's own ids of columns. Everything else is refused.

Crash argument: nothing here depends on being done once. A table that was created, or a column that was added,
is found by the next begin. The sequence is one more than the ledger's, and the ledger changes when the run is
finished.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_kstreams.batch.ledger.facts import LandedTable
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.protocol.slice.slice import FrozenTarget
from airflow_kstreams.batch.run.tables.fresh_looks import on_fresh_look
from airflow_kstreams.batch.run.tables.replacing import ReplacedInterval, digest_of
from airflow_kstreams.streams.errors import (
    ConfigError,
    TableMovedError,
    TableRefusedError,
    TopologyError,
)
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.table_plan import Column, SchemaChanges, TablePlan, changes_for
from airflow_kstreams.streams.tables.table_port import SAY_WHERE_TABLES_ARE, TableLook, TablePort, TablesPort

log = package_log(__name__)
#: The way out where a table is right as it is.
ACCEPT = "or take it as it is: airflow-kstreams tables APP.py accept"


def frozen_targets(
    tables: TablesPort | None,
    plan: TopologyPlan,
    ledger: Ledger,
    *,
    replaces_ms: tuple[int, int] | None = None,
) -> dict[str, FrozenTarget]:
    """Look at every table of a plan, and return what a run freezes of it.

    :param tables: opens the tables; None if it was not said where they are.
    :param replaces_ms: the data interval whose rows the run is to replace, epoch milliseconds.
    :raises ConfigError: it was not said where tables are.
    :raises TableUnavailableError: a catalogue did not answer; nothing was frozen.
    :raises TableRefusedError: a table is not as the ledger says, or has what we cannot write to.
    :raises TopologyError: columns or partitioning do not fit.
    """
    if not plan.tables:
        return {}
    opened = require_tables(tables, plan)
    return {
        table.name: _TableAtBegin(
            opened.table(table), table, plan.application_id, ledger.tables.get(table.name)
        ).target(replaces_ms)
        for table in plan.tables
    }


def refuse_unfit_run(settings: ApplicationSettings, plan: TopologyPlan, *, bounded: bool = True) -> None:
    """Refuse a run that writes to tables, and whose rows could not land once.

    :param bounded: whether the run has an end.
    :raises ConfigError: the run has no end, or its commits are no transactions.
    """
    names = ", ".join(repr(table.name) for table in plan.tables)
    app = f"application {plan.application_id!r} writes to {names}"
    if not bounded:
        raise ConfigError(
            f"{app}, and runs continuously: rows land when a run ends, in one snapshot",
            fix="set autostop.at=eol, and run it again and again",
        )
    if not settings.exactly_once:
        raise ConfigError(
            f"{app}, and has processing.guarantee=at_least_once: rows of failed attempts would land, too",
            fix="set processing.guarantee=exactly_once",
        )


def ids_of(table: TablePlan, look: TableLook) -> dict[str, int]:
    """Return the ids of the columns of rows, and of their parts, by dotted name."""
    columns = {column.name for column in table.columns}
    return {name: id_ for name, id_ in look.column_ids.items() if name.partition(".")[0] in columns}


def require_tables(tables: TablesPort | None, plan: TopologyPlan) -> TablesPort:
    """Return the port to tables.

    :raises ConfigError: it was not said where they are.
    """
    if tables is None:
        names = ", ".join(repr(table.name) for table in plan.tables)
        raise ConfigError(
            f"application {plan.application_id!r} writes to {names}, and it is not said where tables are",
            fix=SAY_WHERE_TABLES_ARE,
        )
    return tables


class _TableAtBegin:
    """The look at one table.

    :param known: the last commit to it, as the ledger has it; None without one.
    """

    def __init__(
        self, port: TablePort, table: TablePlan, application_id: str, known: LandedTable | None
    ) -> None:
        self._port, self._table, self._app, self._known = port, table, application_id, known

    def target(self, replaces_ms: tuple[int, int] | None) -> FrozenTarget:
        part = None if replaces_ms is None else ReplacedInterval.of(self._table, replaces_ms)
        look = self._fitting()
        return FrozenTarget(
            table_id=look.table_id,
            sequence=1 + (0 if self._known is None else self._known.sequence),
            schema_id=look.schema_id,
            spec_id=look.spec_id,
            target_bytes=look.target_bytes,
            sort_by=look.sort_by,
            column_ids=ids_of(self._table, look),
            replaces_ms=replaces_ms,
            replaced="" if part is None else digest_of(part.files(self._port, look)),
        )

    def _fitting(self) -> TableLook:
        return on_fresh_look(self._table.name, self._prepared, fix="retry the run")

    def _prepared(self) -> TableLook:
        """Look at the table, and add or widen columns.

        :raises TableMovedError: others changed the table at the same time.
        """
        look, changes = self._compared()
        if not changes:
            return look
        self._port.widen(look, added=changes.added, widened=changes.widened)
        log.info(
            "table %s gets the columns %s", self._table.name, _columns((*changes.added, *changes.widened))
        )
        look, changes = self._compared()
        if changes:
            raise TableMovedError(f"table {self._table.name!r} has lost the columns that were added")
        return look

    def _compared(self) -> tuple[TableLook, SchemaChanges]:
        """Look at the table; return the look, and the changes of columns that rows need."""
        look = self._look()
        self._refuse_other(look)
        changes = changes_for(self._table.columns, look.columns)
        if changes.refused:
            raise self._unfit(look, changes.refused)
        if look.partition_by != self._table.partition_by:
            raise TopologyError(
                f"table {self._table.name!r} is partitioned by {_listed(look.partition_by)}, and the "
                f"topology says {_listed(self._table.partition_by)}",
                fix="write the table's own partitioning in partition_by, or name another table",
            )
        return look, changes

    def _look(self) -> TableLook:
        look = self._port.look(self._app)
        if look is None and self._table.create and self._known is None:
            self._port.create(self._table.columns, self._table.partition_by)
            log.info("table %s is created", self._table.name)
            look = self._port.look(self._app)
        if look is None:
            raise self._gone()
        return look

    def _gone(self) -> TableRefusedError:
        if self._known is None:
            return TableRefusedError(
                f"table {self._table.name!r} does not exist, and create=False",
                fix="create it, or let begin create it: leave out create=False",
            )
        return TableRefusedError(
            f"table {self._table.name!r} is gone: the ledger has commit {self._known.sequence} to table "
            f"{self._known.table_id}",
            fix=f"restore the table, then retry the run; {ACCEPT}",
        )

    def _refuse_other(self, look: TableLook) -> None:
        known, name = self._known, self._table.name
        if look.refused:
            raise TableRefusedError(
                f"table {name!r} cannot be written to: {'; '.join(look.refused)}",
                fix="change the table, or name another one",
            )
        if known is not None and look.table_id != known.table_id:
            raise TableRefusedError(
                f"table {name!r} is another one than before: id {look.table_id}, and the ledger has commit "
                f"{known.sequence} to table {known.table_id}",
                fix=f"restore the table, then retry the run; {ACCEPT}",
            )
        mark, sequence = look.marks.get(name, 0), 0 if known is None else known.sequence
        if mark != sequence:
            raise TableRefusedError(
                f"table {name!r} has mark {mark} of application {self._app!r}, and the ledger has commit "
                f"{sequence}: another deployment uses this application id, or the ledger or the table was "
                "lost or restored",
                fix="give the other deployment an application id of its own, or restore what was lost, then "
                f"retry the run; {ACCEPT}",
            )
        if known is None or not known.snapshot:
            return
        holds = self._port.holds(look, known.snapshot)
        if holds is None:
            log.info("table %s: its history does not reach back to commit %d", name, known.sequence)
        elif not holds:
            raise TableRefusedError(
                f"table {name!r} was rolled back or restored past snapshot {known.snapshot}, commit "
                f"{known.sequence} of run {known.run_id!r}: its rows are not in the table",
                fix=f"bring the table forward again to that snapshot, then retry the run; {ACCEPT}",
            )

    def _unfit(self, look: TableLook, refused: Iterable[str]) -> TopologyError:
        return TopologyError(
            f"rows do not fit table {self._table.name!r}: {'; '.join(refused)}. Rows: "
            f"{_columns(self._table.columns)}. Table: {_columns(look.columns)}",
            fix="change the row type or the table, then retry the run",
        )


def _listed(partition_by: tuple[str, ...]) -> str:
    return ", ".join(partition_by) or "nothing"


def _columns(columns: tuple[Column, ...]) -> str:
    return ", ".join(map(str, columns)) or "none"
