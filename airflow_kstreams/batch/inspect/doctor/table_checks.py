"""Compares the tables that the application writes to with what a run needs of them.

What a begin would refuse is said here by the begin's own checks, before the first run, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow_kstreams.batch.inspect.doctor.findings import DoctorView
from airflow_kstreams.batch.inspect.doctor.looks import Finding, error, ok
from airflow_kstreams.batch.inspect.tables.seen_tables import seen_table
from airflow_kstreams.batch.run.tables.targets import require_tables
from airflow_kstreams.streams.errors import (
    ConfigError,
    KStreamsError,
    TableRefusedError,
    TableUnavailableError,
)
from airflow_kstreams.streams.table_plan import TablePlan
from airflow_kstreams.streams.tables.table_port import TablesPort


def check(seen: DoctorView) -> Iterator[Finding]:
    """Look at each table as the next begin would; nothing of a topology without tables."""
    if not seen.plan.tables:
        return
    try:
        tables = require_tables(seen.subject.tables, seen.plan)
    except ConfigError as missing:
        yield error("tables", "no-table-settings", missing.cause, missing.fix)
        return
    for table in seen.plan.tables:
        yield _of_table(seen, tables, table)


def _of_table(seen: DoctorView, tables: TablesPort, table: TablePlan) -> Finding:
    try:
        found = seen_table(tables, seen.plan, table, seen.ledger)
    except TableUnavailableError as unavailable:
        return error("tables", "catalogue-unreachable", unavailable.cause, unavailable.fix)
    except TableRefusedError as refused:
        return error("tables", "table-refused", refused.cause, refused.fix)
    except KStreamsError as wrong:
        return error("tables", "wrong-table-settings", wrong.cause, wrong.fix)
    if found.refused is not None:
        return error("tables", "table-refused", found.refused.cause, found.refused.remedy)
    commits = f"commit {found.sequence} of run {found.run_id}" if found.sequence else "no commit yet"
    return ok("tables", f"{table.name} is {found.state}, {commits}")
