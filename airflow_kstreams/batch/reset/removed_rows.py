"""Takes rows of runs that are taken back out of tables: ``reset --tables remove``.

Rule: for each table one commit takes out every file of those runs, if all of them are in the table as they
were committed. It has a number of its own, one more than the ledger has, so its mark says that it landed, and
a reset that sleeps cannot land it later.

Order: first the transaction that sets the offsets back, in which the reset's record says which files go; then
the commits; then the transaction that ends the reset, with the commits in the ledger. No run begins before
that. So rows are gone only where their records are read again.

Crash argument: a reset that dies behind the first transaction has left the record. The next one, whichever it
is, makes the commits whose marks are missing. If others have changed those files meanwhile, the reset is
refused, and ``--tables keep`` ends it: a commit that takes out nothing has the number then.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import msgspec

from airflow_kstreams.batch.ledger.facts import LandedTable, RemovedRows
from airflow_kstreams.batch.reset.rows_again import RowsAgain
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.tables.landing import (
    SUMMARY,
    accepted_of,
    looking_again,
    snapshot_of,
)
from airflow_kstreams.streams.errors import ConfigError, RunError, TableRefusedError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.tables.table_port import (
    SAY_WHERE_TABLES_ARE,
    TableCommit,
    TableLook,
    TablePort,
    TablesPort,
)

log = package_log(__name__)
#: Runs that a snapshot names.
_NAMED_RUNS = 20
_KEEP = "reset with --tables keep, and take the rows out by another engine"


@dataclass(frozen=True, slots=True)
class _TableToOpen:
    """What a port has to know of a table to open it."""

    name: str
    format: str
    location: str


def removals(runs: Collection[RowsAgain], tables: Mapping[str, LandedTable]) -> dict[str, RemovedRows]:
    """Return what a reset's record says of the rows that go: name of a table's sink -> its commit.

    :param tables: name of a table's sink -> the last commit to it.
    """
    found: dict[str, dict[str, LandedTable]] = {}
    for run in runs:
        for name, landed in run.tables.items():
            found.setdefault(name, {})[run.run_id] = landed
    return {
        name: RemovedRows(sequence=tables[name].sequence + 1, runs=of_table)
        for name, of_table in found.items()
    }


@dataclass(frozen=True, slots=True)
class RowRemoval:
    """The part of a reset that takes rows out of tables.

    :param session: the session of the reset's coordinator.
    :param tables: opens the tables; None if it was not said where they are.
    """

    session: CoordinatorSession
    tables: TablesPort | None

    def refuse_unfit(self, runs: Collection[RowsAgain]) -> None:
        """Refuse rows that cannot be taken out, before anything is changed.

        :raises RunError: a run is taken back in part.
        :raises TableRefusedError: the files of a run are not in the table any more as it has added them.
        :raises TableUnavailableError: a table did not answer.
        :raises ConfigError: it is not said where tables are.
        """
        for run in runs:
            if not run.whole:
                raise RunError(
                    f"run {run.run_id!r} would be taken back in part, or its details have expired: of its "
                    f"rows in {', '.join(sorted(run.tables))}, those whose records are not read again would "
                    "be lost",
                    fix="set every input back to where a run began, or keep the rows: --tables keep",
                    run_id=run.run_id,
                )
        landed = [run for run in runs if run.landed]
        last = {name: each for run in landed for name, each in run.tables.items()}
        for name, removed in removals(landed, last).items():
            port, look = self._look(name, removed)
            self._paths(name, port, look, removed)

    def remove(self, removing: Mapping[str, RemovedRows], *, keep: bool) -> dict[str, LandedTable]:
        """Make the commits, and return them by the name of the sink.

        :param keep: whether a commit that has not landed takes out nothing.
        :raises TableUnavailableError: a table did not answer; the same reset may be run again.
        :raises TableRefusedError: files of a run are not in the table any more as it has added them.
        """
        made = {
            name: looking_again(self.session, name)(self._removed, name, removed, keep=keep)
            for name, removed in removing.items()
        }
        last = self.session.read_ledger().tables if removing else {}
        return {
            name: msgspec.structs.replace(landed, accepted=accepted_of(last.get(name), landed.table_id))
            for name, landed in made.items()
            if landed is not None
        }

    def _removed(self, name: str, removed: RemovedRows, *, keep: bool) -> LandedTable | None:
        """Make a commit; None if its rows are kept, and there is no such table any more."""
        try:
            port, look = self._look(name, removed)
        except TableRefusedError as error:
            if not keep:
                raise
            log.warning("nothing is taken out: %s", error.cause)
            return None
        app, known = self.session.application_id, removed.table
        if look.marks.get(name, 0) >= removed.sequence:
            snapshot = snapshot_of(port, look, app, removed.sequence)
        else:
            paths = () if keep else self._paths(name, port, look, removed)
            runs = json.dumps(sorted(removed.runs)[:_NAMED_RUNS])
            said = {"application-id": app, "sequence": str(removed.sequence), "taken-back": runs}
            made = port.commit(
                look,
                TableCommit(
                    application_id=app,
                    sink=name,
                    sequence=removed.sequence,
                    summary={f"{SUMMARY}{each}": text for each, text in said.items()},
                    removed=paths,
                ),
            )
            snapshot = made.snapshot
            log.info("table %s: commit %d takes out %s", name, removed.sequence, counted(len(paths), "file"))
        return LandedTable(
            table_id=known.table_id,
            sequence=removed.sequence,
            snapshot=snapshot,
            format=known.format,
            location=known.location,
        )

    def _look(self, name: str, removed: RemovedRows) -> tuple[TablePort, TableLook]:
        known = removed.table
        if self.tables is None:
            raise ConfigError(
                f"rows are to be taken out of table {name!r}, and it is not said where tables are",
                fix=SAY_WHERE_TABLES_ARE,
            )
        port = self.tables.table(_TableToOpen(name, known.format, known.location))
        look = port.look(self.session.application_id)
        if look is None or look.table_id != known.table_id:
            raise TableRefusedError(
                f"rows are to be taken out of table {name!r}, id {known.table_id}, and "
                + ("it is gone" if look is None else f"it is table {look.table_id}"),
                fix="restore the table, or reset with --tables keep",
            )
        return port, look

    def _paths(self, name: str, port: TablePort, look: TableLook, removed: RemovedRows) -> list[str]:
        """Return the files of the runs."""
        found: list[str] = []
        for run_id, landed in removed.runs.items():
            files = port.added(look, landed.snapshot) if landed.snapshot else None
            if files is None or (len(files), sum(files.values())) != (landed.files, landed.rows):
                has = (
                    "cannot be told"
                    if files is None
                    else f"are {sum(files.values())} in the files that it added"
                )
                raise TableRefusedError(
                    f"the rows of run {run_id!r} cannot be taken out of table {name!r}: it added "
                    f"{counted(landed.rows, 'row')} in {counted(landed.files, 'file')}, and what the table "
                    f"still has of them {has}; another engine has rewritten or expired them",
                    fix=_KEEP,
                )
            found += files
        return found
