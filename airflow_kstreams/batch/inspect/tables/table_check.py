"""Compares what tables hold of an application's runs with what its ledger says.

Rule: the ledger names, for each finished run, the snapshot that it made of a table and the rows that it
added. Of the snapshots that a table still keeps,

- each of the ledger's is there, is that run's own, and added as many rows;
- each that says to be of this application is in the ledger;
- no other program's changed rows behind the application's first one, unless that is allowed.

A table with ``provenance`` names the run in each row, so its rows are counted by run besides, whatever the
snapshots say. With ``mode="upsert"`` a run's rows are replaced by later ones, so only its snapshots are
compared.

A run whose snapshot is missing because the table was rolled back past it, and accepted like that, makes no
difference: the ledger says in which state it was accepted. If the table is rolled back past that state as
well, the run is missing like any other.

Compaction and other commits that change no rows make no difference. Neither do the snapshots of another
application; but then rows cannot be counted by run, for run ids of applications may be alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing

import msgspec

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.evidence.run_facts import known_facts
from airflow_kstreams.batch.inspect.notebook_form import ShownInNotebooks
from airflow_kstreams.batch.ledger.facts import LandedTable
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.run.tables.landing import SUMMARY
from airflow_kstreams.batch.run.tables.targets import require_tables
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import Clock, ClusterPort
from airflow_kstreams.streams.table_plan import TablePlan
from airflow_kstreams.streams.tables.table_port import Snapshot, TableLook, TablePort, TablesPort

#: Column that names the run, with ``provenance``.
_RUN_COLUMN = "_run"


class TableDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A difference between a table and the ledger.

    :param table: name of the table's sink.
    :param run_id: the run; empty where none is named.
    :param snapshot: the snapshot; empty where none is named.
    :param ledger: number of rows that the ledger says; null where it says none.
    :param found: number of rows that the table says; null where it says none.
    :param text: the difference in words.
    """

    table: str
    run_id: str = ""
    snapshot: str = ""
    ledger: int | None = None
    found: int | None = None
    text: str


class CheckedTable(msgspec.Struct, frozen=True, kw_only=True):
    """What of a table was compared.

    :param name: name of its sink.
    :param runs: number of runs whose snapshots were compared.
    :param forgotten: number of runs whose snapshots the table does not keep any more.
    :param taken_back: number of runs that an accepted rollback took back.
    :param rows: number of rows that these runs have added, as the ledger says.
    :param counted: whether rows were counted by run.
    """

    name: str
    runs: int
    forgotten: int
    taken_back: int
    rows: int
    counted: bool


class TablesCheck(ShownInNotebooks, frozen=True, kw_only=True):
    """The tables of an application beside its ledger.

    :param application_id: id of the application.
    :param tables: what was compared.
    :param differences: the differences; empty if all is well.
    """

    application_id: str
    tables: tuple[CheckedTable, ...]
    differences: tuple[TableDifference, ...]


def compare_tables(
    cluster: ClusterPort,
    plan: TopologyPlan,
    tables: TablesPort | None,
    *,
    allow_others: bool = False,
    clock: Clock | None = None,
) -> TablesCheck:
    """Compare a topology's tables with the ledger.

    :param tables: opens the tables; None if it was not said where they are.
    :param allow_others: whether other programs may have written to the tables.
    :raises ConfigError: it was not said where tables are.
    :raises TableUnavailableError: a catalogue or storage did not answer.
    :raises TableRefusedError: it does not let this user look.
    """
    clock, app, opened = clock or SystemClock(), plan.application_id, require_tables(tables, plan)
    with closing(cluster.admin()) as admin, closing(cluster.reader(group_id=app)) as reader:
        facts = known_facts(cluster, app, admin, reader, clock)
        runs = list(facts.ledger.newest_first())
    under_way = facts.under_way
    checks = [
        _Check(
            app,
            table,
            opened.table(table),
            {run.run_id: (run, run.tables[table.name]) for run in runs if _made(run, table)},
            facts.ledger.tables.get(table.name),
            {"" if under_way is None else under_way.run_id, *facts.ledger.taken_back},
            allow_others=allow_others,
        )
        for table in plan.tables
    ]
    differences = tuple(each for check in checks for each in check.differences())
    return TablesCheck(
        application_id=app, tables=tuple(check.compared() for check in checks), differences=differences
    )


def _made(run: RunSummary, table: TablePlan) -> bool:
    """Whether a finished run has made a snapshot of a table: entries of others repeat the last one."""
    landed = run.tables.get(table.name)
    return landed is not None and landed.run_id == run.run_id


class _Check:
    """The check of one table.

    :param ledger: run -> its entry and its commit, the newest first.
    :param last: the ledger's last commit to the table, or the table that was accepted in its place.
    :param unfinished: runs that the ledger does not have as finished, and whose snapshots may be there.
    """

    def __init__(
        self,
        application_id: str,
        table: TablePlan,
        port: TablePort,
        ledger: Mapping[str, tuple[RunSummary, LandedTable]],
        last: LandedTable | None,
        unfinished: set[str],
        *,
        allow_others: bool,
    ) -> None:
        self._app, self._table, self._port, self._ledger = application_id, table, port, ledger
        self._last, self._unfinished, self._allow_others = last, unfinished, allow_others
        self._look = port.look(application_id)
        self._kept = [] if self._look is None else list(port.snapshots(self._look))
        self._forgotten: set[str] = set()
        self._taken_back: set[str] = set()
        self._counted = False

    def compared(self) -> CheckedTable:
        """Return what was compared, once the differences are known."""
        return CheckedTable(
            name=self._table.name,
            runs=len(self._ledger) - len(self._forgotten) - len(self._taken_back),
            forgotten=len(self._forgotten),
            taken_back=len(self._taken_back),
            rows=sum(landed.rows for run, (_, landed) in self._ledger.items() if run not in self._taken_back),
            counted=self._counted,
        )

    def differences(self) -> Iterator[TableDifference]:
        """Yield the differences."""
        if self._look is None:
            if self._ledger:
                yield self._difference(
                    f"the table is gone: the ledger has {counted(len(self._ledger), 'run')} in it"
                )
            return
        yield from self._of_ledger(self._look)
        yield from self._of_history()
        yield from self._of_rows(self._look)

    def _of_ledger(self, look: TableLook) -> Iterator[TableDifference]:
        """Compare the snapshots that the ledger names."""
        by_id = {each.snapshot: each for each in self._kept}
        for run_id, (_, landed) in self._ledger.items():
            snapshot = by_id.get(landed.snapshot)
            if self._last is not None and landed.table_id != self._last.table_id:
                self._forgotten.add(run_id)
            elif look.table_id != landed.table_id:
                yield self._difference(
                    f"it landed in table {landed.table_id}, and this is table {look.table_id}", run_id
                )
            elif snapshot is not None:
                yield from self._of_snapshot(run_id, landed, snapshot)
            elif landed.snapshot and self._port.holds(look, landed.snapshot) is False:
                if self._is_accepted(look, landed):
                    self._taken_back.add(run_id)
                    continue
                yield self._difference(
                    "its snapshot is not in the history: the table was rolled back or restored past it",
                    run_id,
                    snapshot=landed.snapshot,
                    ledger=landed.rows,
                )
            else:
                self._forgotten.add(run_id)

    def _is_accepted(self, look: TableLook, landed: LandedTable) -> bool:
        """Whether a commit was missing when the table was accepted.

        The state that was accepted is still there. So what is missing now was missing then.
        """
        accepted = None if self._last is None else self._last.accepted
        if accepted is None or landed.sequence > accepted.sequence:
            return False
        return not accepted.snapshot or self._port.holds(look, accepted.snapshot) is not False

    def _of_snapshot(self, run_id: str, landed: LandedTable, snapshot: Snapshot) -> Iterator[TableDifference]:
        said = snapshot.summary.get(f"{SUMMARY}run-id", "")
        if said != run_id:
            yield self._difference(
                f"its snapshot says to be of {f'run {said}' if said else 'no run'}",
                run_id,
                snapshot=snapshot.snapshot,
            )
        elif self._table.mode == "append" and snapshot.added not in (None, landed.rows):
            yield self._difference(
                "its snapshot added another number of rows",
                run_id,
                snapshot=snapshot.snapshot,
                ledger=landed.rows,
                found=snapshot.added,
            )

    def _of_history(self) -> Iterator[TableDifference]:
        """Look for snapshots that the ledger does not name."""
        begun = False
        for snapshot in self._kept:
            said = snapshot.summary.get(f"{SUMMARY}application-id")
            run_id = snapshot.summary.get(f"{SUMMARY}run-id", "")
            if said == self._app:
                begun = True
                known = self._ledger.get(run_id)
                if known is None and run_id not in self._unfinished:
                    yield self._difference(
                        "a snapshot says to be of a run that the ledger does not have",
                        run_id,
                        snapshot=snapshot.snapshot,
                        found=snapshot.added,
                    )
                elif known is not None and known[1].snapshot not in ("", snapshot.snapshot):
                    yield self._difference(
                        f"the run has a second snapshot, beside {known[1].snapshot}",
                        run_id,
                        snapshot=snapshot.snapshot,
                        found=snapshot.added,
                    )
            elif said is None and begun and not self._allow_others and _changes_rows(snapshot):
                yield self._difference(
                    f"a snapshot of no run ({snapshot.operation}) changed rows: {_rows_text(snapshot)}",
                    snapshot=snapshot.snapshot,
                )

    def _of_rows(self, look: TableLook) -> Iterator[TableDifference]:
        """Count rows by run, where each row names its run and no other application writes to the table."""
        columns = {column.name for column in self._table.columns}
        applications = {each.summary.get(f"{SUMMARY}application-id", self._app) for each in self._kept}
        if self._table.mode != "append" or _RUN_COLUMN not in columns or applications - {self._app}:
            return
        counts = self._port.row_counts(look, _RUN_COLUMN)
        if counts is None:
            return
        self._counted = True
        for run_id, (_, landed) in self._ledger.items():
            if run_id in self._taken_back:
                continue
            if look.table_id == landed.table_id and counts.get(run_id, 0) != landed.rows:
                yield self._difference(
                    "the table has another number of its rows",
                    run_id,
                    ledger=landed.rows,
                    found=counts.get(run_id, 0),
                )
        for run_id in sorted(counts.keys() - self._ledger.keys() - self._unfinished):
            yield self._difference(
                "rows of a run that the ledger does not have", run_id, found=counts[run_id]
            )

    def _difference(
        self,
        text: str,
        run_id: str = "",
        *,
        snapshot: str = "",
        ledger: int | None = None,
        found: int | None = None,
    ) -> TableDifference:
        return TableDifference(
            table=self._table.name, run_id=run_id, snapshot=snapshot, ledger=ledger, found=found, text=text
        )


def _changes_rows(snapshot: Snapshot) -> bool:
    """Whether a snapshot of another program changed rows: compaction puts them into other files."""
    return snapshot.operation != "replace" and (snapshot.added != 0 or snapshot.removed != 0)


def _rows_text(snapshot: Snapshot) -> str:
    added = "unknown" if snapshot.added is None else f"{snapshot.added:,}"
    removed = "unknown" if snapshot.removed is None else f"{snapshot.removed:,}"
    return f"{added} added, {removed} taken out"
