"""Forgets older snapshots of the tables that a topology writes to.

Crash argument: an expiry takes rows out of no table, and keeps the marks. One that ends in the middle is made
again by the next one.
"""

from __future__ import annotations

import msgspec

from airflow_kstreams.batch.run.tables.fresh_looks import on_fresh_look
from airflow_kstreams.batch.run.tables.targets import require_tables
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.table_plan import TablePlan
from airflow_kstreams.streams.tables.table_port import TablePort, TablesPort


class ExpiredTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table whose older snapshots were forgotten.

    :param table: name of its sink.
    :param format: ``iceberg`` or ``delta``, which keeps versions by time.
    :param before: number of snapshots in its history before; 0 if it does not exist.
    :param after: number of snapshots in its history since.
    """

    table: str
    format: str
    before: int
    after: int


def expire_tables(tables: TablesPort | None, plan: TopologyPlan, keep: int) -> list[ExpiredTable]:
    """Forget all but the newest snapshots of each table.

    :param tables: opens the tables; None if it was not said where they are.
    :param keep: number of snapshots to keep of each.
    :raises ConfigError: it was not said where tables are.
    :raises TableUnavailableError: a catalogue did not answer, or others changed a table at each look.
    :raises TableRefusedError: a table's files are not its own to delete, or it may not be changed.
    """
    opened = require_tables(tables, plan)
    return [_expired(opened.table(table), table, keep) for table in plan.tables]


def _expired(port: TablePort, table: TablePlan, keep: int) -> ExpiredTable:
    def expired() -> tuple[int, int]:
        look = port.look()
        if look is None:
            return 0, 0
        before = len(port.snapshots(look))
        port.expire(look, keep)
        now = port.look()
        return before, 0 if now is None else len(port.snapshots(now))

    before, after = on_fresh_look(table.name, expired, fix="try again later")
    return ExpiredTable(table=table.name, format=table.format, before=before, after=after)
