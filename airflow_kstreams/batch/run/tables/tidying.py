"""Tidies tables up after a run is finished: deletes the files in whose place merged ones were committed, and
those whose rows an upsert has taken, and expires old snapshots.

Rule: nothing here decides anything, and it is done behind the finished marker. What fails is a line in the
log: the next finish expires again, and files that stay behind are orphans, which
``airflow-kstreams tables orphans --delete`` finds.

Staged files hold rows beside the table, where its expiry finds none of them. So they go at once.

Why these files can go. The list that is sealed names the merged ones, and no coordinator commits anything
else. Behind the marker no coordinator commits that run again, and its list is purged.
"""

from __future__ import annotations

from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.tables.file_lists import SealedFiles
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.table_plan import TablePlan
from airflow_kstreams.streams.tables.table_port import FileFacts, TablesPort

log = package_log(__name__)


def tidy(session: CoordinatorSession, tables: TablesPort | None, slice_: Slice, files: SealedFiles) -> None:
    """Delete replaced files, and expire old snapshots, of each table of a finished run.

    :param tables: opens the tables; None if it was not said where they are.
    :param files: what the run's list said.
    """
    if tables is None:
        return
    for table in slice_.plan.topology.tables:
        replaced = files.replaced.get(table.name, [])
        if table.key_column:
            replaced = [*replaced, *files.added.get(table.name, [])]
        if not replaced and not table.expire_snapshots:
            continue
        try:
            _tidy(session, tables, table, replaced)
        except KStreamsError as error:
            log.warning("table %s: what the next finish does, too, failed: %s", table.name, error)


def _tidy(
    session: CoordinatorSession, tables: TablesPort, table: TablePlan, replaced: list[FileFacts]
) -> None:
    port = tables.table(table)
    look = port.look(session.application_id)
    if look is None:
        return
    if replaced:
        port.files(look).delete([file.path for file in replaced])
        what = "staged rows" if table.key_column else "rows that merged ones have"
        log.info("table %s: %s with %s deleted", table.name, counted(len(replaced), "file"), what)
    if table.expire_snapshots:
        port.expire(look, table.expire_snapshots)
