"""Drops the marks of an application that has only one run.

A mark says to later looks that a run has landed. Once the run's marker is written, the ledger says so, and
each look of a commit is followed by a look at the ledger. So the mark of an application that begins no other
run is of no use, and would stay in the table's properties for ever. A process that dies before it is dropped
leaves it; that does no harm.
"""

from __future__ import annotations

from functools import partial

from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.run.tables.fresh_looks import on_fresh_look
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.tables.table_port import TablePort, TablesPort

log = package_log(__name__)


def drop_marks(tables: TablesPort | None, slice_: Slice) -> None:
    """Drop the marks of a finished run; a failure is logged, and the mark stays.

    :param tables: opens the tables.
    :param slice_: the run's slice.
    """
    plan = slice_.plan.topology
    if tables is None:
        return
    for table in plan.tables:
        try:
            port = tables.table(table)
            drop = partial(_drop, port, plan.application_id, table.name)
            on_fresh_look(table.name, drop, fix="")
        except KStreamsError as error:
            log.warning("table %s keeps the mark of %s: %s", table.name, plan.application_id, error.cause)


def _drop(port: TablePort, application_id: str, sink: str) -> None:
    look = port.look(application_id)
    if look is not None and sink in look.marks:
        port.drop_mark(look, application_id, sink)
