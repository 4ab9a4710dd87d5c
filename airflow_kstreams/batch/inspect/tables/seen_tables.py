"""Reads the tables of a topology: where each stands beside the ledger, and what a begin would refuse.

Rule: what a begin would refuse is said by the begin's own checks, on tables that are changed for the
rehearsal alone (:mod:`airflow_kstreams.batch.inspect.tables.rehearsed_tables`).
"""

from __future__ import annotations

from contextlib import closing
from typing import Literal

import msgspec

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.evidence.run_facts import known_facts
from airflow_kstreams.batch.inspect.notebook_form import ShownInNotebooks
from airflow_kstreams.batch.inspect.tables.listed_files import WaitingRows, waiting_of
from airflow_kstreams.batch.inspect.tables.rehearsed_tables import RehearsedTables
from airflow_kstreams.batch.ledger.history import Failure
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.run.tables.targets import frozen_targets, require_tables
from airflow_kstreams.streams.errors import KStreamsError, TableUnavailableError
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import Clock, ClusterPort
from airflow_kstreams.streams.printable import without_log_lines
from airflow_kstreams.streams.table_plan import TablePlan
from airflow_kstreams.streams.tables.table_port import TablesPort

TableState = Literal["ready", "to be created", "columns to be changed", "refused"]


class SeenTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of a topology.

    :param name: name of its sink.
    :param format: ``iceberg`` or ``delta``.
    :param location: its identifier in its catalogue, or its URI.
    :param mode: ``append`` or ``upsert``.
    :param state: what the next begin would do with it, or that it would refuse it.
    :param table_id: its id; empty if it does not exist.
    :param snapshot: its newest snapshot, or version, whoever made it; empty without one.
    :param mark: sequence that it has of this application; 0 without one.
    :param sequence: sequence of the application's last commit, as the ledger has it; 0 without one.
    :param last_snapshot: the snapshot of that commit; empty without one.
    :param run_id: the run that made it; empty without one.
    :param rows: number of rows that it added.
    :param files: number of files that it added.
    :param refused: the error that the next begin would raise; null if it would raise none.
    """

    name: str
    format: str
    location: str
    mode: str
    state: TableState
    table_id: str = ""
    snapshot: str = ""
    mark: int = 0
    sequence: int = 0
    last_snapshot: str = ""
    run_id: str = ""
    rows: int = 0
    files: int = 0
    refused: Failure | None = None


class SeenTables(ShownInNotebooks, frozen=True, kw_only=True):
    """The tables of a topology.

    :param application_id: id of the application.
    :param tables: the tables, by name.
    :param waiting: rows that the run under way has listed, and that are in no snapshot yet; null if this user
        may not read the list.
    :param not_seen: what of the list could not be read, and why.
    """

    application_id: str
    tables: tuple[SeenTable, ...]
    waiting: tuple[WaitingRows, ...] | None = ()
    not_seen: tuple[str, ...] = ()


def read_tables(
    cluster: ClusterPort, plan: TopologyPlan, tables: TablesPort | None, *, clock: Clock | None = None
) -> SeenTables:
    """Read the tables of a topology, and the ledger's last commit to each.

    :param tables: opens the tables; None if it was not said where they are.
    :raises ConfigError: it was not said where tables are.
    :raises TableUnavailableError: a catalogue did not answer.
    :raises TableRefusedError: it does not let this user look.
    """
    clock, app = clock or SystemClock(), plan.application_id
    opened = require_tables(tables, plan) if plan.tables else tables
    with closing(cluster.admin()) as admin, closing(cluster.reader(group_id=app)) as reader:
        facts = known_facts(cluster, app, admin, reader, clock)
    listed = waiting_of(cluster, facts, clock)
    return SeenTables(
        application_id=app,
        tables=tuple(
            seen_table(opened, plan, table, facts.ledger) for table in plan.tables if opened is not None
        ),
        waiting=listed.waiting,
        not_seen=listed.not_seen,
    )


def seen_table(tables: TablesPort, plan: TopologyPlan, table: TablePlan, ledger: Ledger) -> SeenTable:
    """Look at one table.

    :raises TableUnavailableError: its catalogue did not answer.
    """
    look = tables.table(table).look(plan.application_id)
    known, refused = ledger.tables.get(table.name), None
    rehearsed = RehearsedTables(tables=tables, ledger=ledger.tables)
    try:
        with without_log_lines():
            frozen_targets(rehearsed, msgspec.structs.replace(plan, tables=(table,)), ledger)
    except TableUnavailableError:
        raise
    except KStreamsError as error:
        refused = msgspec.structs.replace(Failure.of(error), cause=error.cause, remedy=error.fix)
    return SeenTable(
        name=table.name,
        format=table.format,
        location=table.location,
        mode=table.mode,
        state="refused" if refused is not None else state_of(rehearsed, table),
        table_id="" if look is None else look.table_id,
        snapshot="" if look is None else look.snapshot,
        mark=0 if look is None else look.marks.get(table.name, 0),
        sequence=0 if known is None else known.sequence,
        last_snapshot="" if known is None else known.snapshot,
        run_id="" if known is None else known.run_id,
        rows=0 if known is None else known.rows,
        files=0 if known is None else known.files,
        refused=refused,
    )


def state_of(rehearsed: RehearsedTables, table: TablePlan) -> TableState:
    """Return what a begin would do with a table that it does not refuse."""
    states: dict[str, TableState] = {"create": "to be created", "change columns": "columns to be changed"}
    return states.get(rehearsed.prepared.get(table.name, ""), "ready")
