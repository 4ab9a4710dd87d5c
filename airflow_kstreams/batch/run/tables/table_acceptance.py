"""Takes tables as they are now for those of an application: ``airflow-kstreams tables ... accept``.

A run refuses a table that is not as the last one has left it: dropped, created anew, restored from a backup,
rolled back. Here a person says that it is right so. What such a table lacks is not brought back.

Rule, under the coordinator's claim, for each table:

1. A table that is gone is created.
2. Without a run under way, its mark becomes the ledger's sequence, by a commit without rows where it is
   less; then the ledger names the table and its newest snapshot. A mark that is larger than the ledger's
   becomes the ledger's: sequences only grow.
3. A run under way whose files were written for another table, and whose own mark is absent, goes on with this
   one: the completed marker is written anew, with the table's id, schema and partitioning. The files fit only
   if columns, ids of columns and partitioning are those that they were written with; else it is refused.

Crash argument: each step is found done by the next call. A mark that was set and that the ledger does not
know yet is taken over by step 2. The marker and the ledger change in one transaction.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import TypeVar

import msgspec

from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.ledger.facts import AcceptedState, LandedTable
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.ledger.writes import LedgerChange
from airflow_kstreams.batch.protocol.slice.metadata_records import (
    MetadataRecord,
    completed_record,
    plan_pieces,
)
from airflow_kstreams.batch.protocol.slice.slice import FrozenTarget, Slice
from airflow_kstreams.batch.run.attempts import CoordinatorAttempt
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.lease.lease import Claimant, CoordinatorLease
from airflow_kstreams.batch.run.tables.fresh_looks import on_fresh_look
from airflow_kstreams.batch.run.tables.landing import SUMMARY
from airflow_kstreams.batch.run.tables.targets import ids_of, require_tables
from airflow_kstreams.streams.errors import TableMovedError, TableRefusedError
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import Clock, ClusterPort
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.table_plan import TablePlan, changes_for
from airflow_kstreams.streams.tables.table_port import TableCommit, TableLook, TablePort, TablesPort

_NAME = "tables accept"
_Result = TypeVar("_Result")


class AcceptedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table that was looked at.

    :param table: name of its sink.
    :param changed: whether the table was not as ledger or slice had it, and is accepted as it is.
    :param text: what was found.
    """

    table: str
    changed: bool
    text: str


def accept_tables(
    cluster: ClusterPort,
    settings: ApplicationSettings,
    plan: TopologyPlan,
    tables: TablesPort | None,
    *,
    clock: Clock | None = None,
) -> list[AcceptedTable]:
    """Take a topology's tables as they are.

    :param tables: opens the tables; None if it was not said where they are.
    :raises ConfigError: it was not said where tables are.
    :raises RunBusyError: a driver is at work.
    :raises TableRefusedError: files of the run under way do not fit a table.
    :raises TableUnavailableError: a catalogue did not answer.
    """
    opened = require_tables(tables, plan)
    with closing(CoordinatorSession(cluster, settings, clock=clock)) as session:
        attempt = CoordinatorAttempt(session.application_id, session.clock, most_runs=1)
        lease = CoordinatorLease(session, attempt)
        caller = Claimant(run_id=_NAME, order=(0, 0), owner=_NAME, hold_lease=False)
        before = lease.await_turn(session.read_ledger(wait_ms=0), caller)
        with lease.racing(caller, before):
            session.claim()
            ledger = session.read_ledger()
        lease.refuse_busy(ledger, caller)
        facts = RunFacts(session.application_id, ledger, session.read_metadata(plan))
        slice_ = facts.under_way
        if slice_ is not None and slice_.plan.targets:
            return _AcceptedSlice(session, opened, slice_, ledger, owner=facts.metadata.owner).accept()
        found = {
            table.name: _accepted(opened.table(table), table, plan.application_id, ledger.tables)
            for table in plan.tables
        }
        changed = {name: landed for name, (landed, _) in found.items() if landed is not None}
        if changed:
            after = dataclasses.replace(ledger, tables={**ledger.tables, **changed})
            session.write((), ledger=LedgerChange(ledger=after), lease=ledger.lease)
        return [
            AcceptedTable(table=name, changed=landed is not None, text=text)
            for name, (landed, text) in found.items()
        ]


def _accepted(
    port: TablePort, table: TablePlan, application_id: str, ledger: Mapping[str, LandedTable]
) -> tuple[LandedTable | None, str]:
    """Make a table's mark the ledger's; return what the ledger is to say, None if it says so, and why."""
    return _fresh(table, partial(_accepted_once, port, table, application_id, ledger.get(table.name)))


def _fresh(table: TablePlan, act: Callable[[], _Result]) -> _Result:
    return on_fresh_look(table.name, act, fix="accept it once they are done")


def _accepted_once(
    port: TablePort, table: TablePlan, application_id: str, known: LandedTable | None
) -> tuple[LandedTable | None, str]:
    look = _there(port, table, application_id)
    mark = look.marks.get(table.name, 0)
    sequence = max(mark, 0 if known is None else known.sequence)
    cause = _difference(port, look, known, mark)
    if not cause:
        return None, "as the ledger has it"
    snapshot = look.snapshot
    if mark < sequence:
        commit = TableCommit(
            application_id=application_id,
            sink=table.name,
            sequence=sequence,
            summary={f"{SUMMARY}accepted": application_id, f"{SUMMARY}sequence": str(sequence)},
        )
        snapshot = port.commit(look, commit).snapshot
    accepted = AcceptedState(sequence, snapshot)
    return LandedTable(table_id=look.table_id, sequence=sequence, snapshot=snapshot, accepted=accepted), cause


def _difference(port: TablePort, look: TableLook, known: LandedTable | None, mark: int) -> str:
    """Return in what a table is not as the ledger has it; empty if it is."""
    if known is None:
        return "" if not mark else f"it has mark {mark}, and the ledger no commit"
    if look.table_id != known.table_id:
        return f"table {look.table_id} takes the place of table {known.table_id}"
    if mark != known.sequence:
        return f"it has mark {mark}, and the ledger commit {known.sequence}"
    if _is_behind(port, look, known):
        return f"it was rolled back or restored past snapshot {known.snapshot}"
    return ""


def _is_behind(port: TablePort, look: TableLook, known: LandedTable) -> bool:
    """Return whether a table was rolled back past a commit."""
    same = bool(known.snapshot) and known.table_id == look.table_id
    return same and port.holds(look, known.snapshot) is False


def _there(port: TablePort, table: TablePlan, application_id: str) -> TableLook:
    """Look at a table, which is created if it is gone."""
    look = port.look(application_id)
    if look is None:
        port.create(table.columns, table.partition_by)
        look = port.look(application_id)
    if look is None:
        raise TableMovedError(f"table {table.name!r} is gone again")
    return look


class _AcceptedSlice:
    """The slice of a run under way whose tables are accepted.

    :param session: session of a coordinator that has claimed its id.
    :param tables: opens the tables.
    :param slice_: the slice.
    :param ledger: the ledger, read under the claim.
    :param owner: who has written its completed marker.
    """

    def __init__(
        self,
        session: CoordinatorSession,
        tables: TablesPort,
        slice_: Slice,
        ledger: Ledger,
        *,
        owner: str,
    ) -> None:
        self._session, self._tables, self._slice, self._owner = session, tables, slice_, owner
        self._ledger = ledger

    def accept(self) -> list[AcceptedTable]:
        """Write the completed marker anew, if a table is another one than it says; let the ledger forget
        snapshots that tables were rolled back past.
        """
        plan = self._slice.plan
        found: list[AcceptedTable] = []
        targets, landed = dict(plan.targets), dict(self._ledger.tables)
        for table in plan.topology.tables:
            old = plan.targets[table.name]
            port = self._tables.table(table)
            look = _fresh(table, partial(_there, port, table, self._session.application_id))
            targets[table.name] = new = self._target(table, look, old)
            known = landed.get(table.name)
            if known is not None and _is_behind(port, look, known):
                accepted = AcceptedState(known.sequence, look.snapshot)
                landed[table.name] = msgspec.structs.replace(known, snapshot="", accepted=accepted)
            changed = new != old or landed.get(table.name) != known
            text = f"run {self._slice.run_id} lands in it" if changed else "as the run began with it"
            found.append(AcceptedTable(table=table.name, changed=changed, text=text))
        records: list[MetadataRecord] = []
        if targets != plan.targets:
            slice_ = msgspec.structs.replace(self._slice, plan=msgspec.structs.replace(plan, targets=targets))
            records = [*plan_pieces(slice_), completed_record(slice_, owner=self._owner)]
        if any(each.changed for each in found):
            after = dataclasses.replace(self._ledger, tables=landed)
            self._session.write(records, ledger=LedgerChange(ledger=after), lease=self._ledger.lease)
        return found

    def _target(self, table: TablePlan, look: TableLook, old: FrozenTarget) -> FrozenTarget:
        if look.marks.get(table.name, 0) >= old.sequence:
            return old
        if (
            look.partition_by != table.partition_by
            or changes_for(table.columns, look.columns)
            or ids_of(table, look) != old.column_ids
        ):
            raise TableRefusedError(
                f"table {table.name!r} cannot be accepted for run {self._slice.run_id!r}: its columns or its "
                "partitioning are not those that the run's files were written for",
                fix="give the table the columns and the partitioning that it had, then accept it, or reset "
                "the application to the run's start",
            )
        return msgspec.structs.replace(
            old, table_id=look.table_id, schema_id=look.schema_id, spec_id=look.spec_id
        )
