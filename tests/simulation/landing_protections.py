"""Protections of what lands in tables (``docs/internals/tables.md``), each with a way to switch it off."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from typing import Any
from unittest import mock

from airflow_kstreams.batch.run.intermediate_stops import frozen_upstream
from airflow_kstreams.batch.run.tables import landing
from airflow_kstreams.batch.run.tables.landing import Landing
from airflow_kstreams.batch.task.commit import TaskCommit
from airflow_kstreams.streams.errors import TableMovedError
from airflow_kstreams.streams.tables.table_port import MadeSnapshot, TableCommit, TableLook
from airflow_kstreams.testing.faults import FaultyTable, FaultyWriter
from airflow_kstreams.testing.in_memory_kafka.writer import InMemoryIdempotentWriter
from airflow_kstreams.testing.in_memory_tables import InMemoryTable
from tests.simulation.protection import Protection, SwitchedOff


def _marks_are_not_looked_at() -> SwitchedOff:
    """A run is committed whatever its table's mark says."""
    checked = Landing._refuse_other

    def unmarked(self: Landing, *arguments: Any) -> TableLook:
        return dataclasses.replace(checked(self, *arguments), marks={})

    return mock.patch.object(Landing, "_refuse_other", unmarked)


def _any_state_will_do() -> SwitchedOff:
    """A commit lands whatever has happened to the table since the look."""
    return mock.patch.object(InMemoryTable, "_unmoved", lambda self, look: self._tables.state(self._location))


def _library_tries_again() -> SwitchedOff:
    """A library of tables moves a commit that has met a conflict onto the table as it is now."""
    commit = InMemoryTable.commit

    def again(self: InMemoryTable, look: TableLook, change: TableCommit) -> MadeSnapshot:
        try:
            return commit(self, look, change)
        except TableMovedError:
            now = self.look(change.application_id)
            if now is None:
                raise
            return commit(self, now, change)

    return mock.patch.object(InMemoryTable, "commit", again)


def _mark_apart() -> SwitchedOff:
    """The mark is written in another commit than the rows."""

    def apart(self: FaultyTable, look: TableLook, change: TableCommit) -> MadeSnapshot:
        table: InMemoryTable = self.inner
        states, location = table._tables.states, table._location

        def rows() -> MadeSnapshot:
            before = look.state.marks
            made = table.commit(look, change)
            states[location] = dataclasses.replace(states[location], marks=before)
            return made

        def mark() -> None:
            marks = {**states[location].marks, (change.application_id, change.sink): change.sequence}
            states[location] = dataclasses.replace(states[location], marks=marks)

        made = self._call("table.commit", table, rows, ())
        self._call("table.commit", table, mark, ())
        return made

    return mock.patch.object(FaultyTable, "commit", apart)


def _list_apart() -> SwitchedOff:
    """Files are listed outside the transaction of the offsets."""
    list_files = TaskCommit._list_files

    def apart(self: TaskCommit, writer: Any) -> None:
        inner = writer.inner if isinstance(writer, FaultyWriter) else writer
        other = InMemoryIdempotentWriter(inner._broker, timeout_seconds=30)
        list_files(self, other)
        other.flush()

    return mock.patch.object(TaskCommit, "_list_files", apart)


def _nothing_is_sealed() -> SwitchedOff:
    """The list's end is frozen, and its offset is not committed there."""

    def unsealed(session: Any, lease: Any, slice_: Any) -> Any:
        return frozen_upstream(session, lease, slice_, slice_.plan.topology.landing.id)

    off = ExitStack()
    for module in ("coordinator", "run_finish"):
        off.enter_context(mock.patch(f"airflow_kstreams.batch.run.{module}.seal", unsealed))
    return off


def _lists_are_read_from_their_log() -> SwitchedOff:
    """The list of a run begins where its topic does."""
    span = landing._listed_span

    def whole(*arguments: Any) -> Any:
        partition, (_, stop) = span(*arguments)
        return partition, (0, stop)

    return mock.patch.object(landing, "_listed_span", whole)


def _rollbacks_are_not_seen() -> SwitchedOff:
    """Begin does not look whether the last run's snapshot is still in the table."""
    return mock.patch.object(InMemoryTable, "holds", lambda *_: True)


LANDED: tuple[Protection, ...] = tuple(
    Protection(name=name, section="tables", off=off, first=first, lands=True)
    for name, off, first in (
        ("marks are looked at", _marks_are_not_looked_at, 1),
        ("commits land on the state of the look", _any_state_will_do, 27),
        ("libraries try nothing again", _library_tries_again, 27),
        ("marks in the commit of the rows", _mark_apart, 1),
        ("lists in the transaction", _list_apart, 2),
        ("lists are sealed", _nothing_is_sealed, 0),
        ("lists begin at their frozen start", _lists_are_read_from_their_log, 0),
        ("rollbacks are seen", _rollbacks_are_not_seen, 69),
    )
)
