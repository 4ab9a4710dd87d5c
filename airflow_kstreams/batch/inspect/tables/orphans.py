"""Finds files of an application that lie in its tables' folders and that nothing needs.

Attempts that died before their transaction was committed leave such files, and so do merges and rewrites that
were not sealed. The names of an application's files begin with its own name, so no other program's file is
ever looked at.

Rule: a file is an orphan if no snapshot that can still be read names it, and no list of a run that is not
finished. It is deleted only if it is older than a given age besides.

Why nothing that is needed is deleted. A file becomes needed in this order: a task writes it, lists it, a
commit names it. The files are listed first here, then the lists are read, then the snapshots. So a file that
is seen was written before, and if it moves on from a list into a snapshot meanwhile, the snapshot is read
later. A file that is written and not yet listed is younger than its task's commits are apart: that is what
the age is for, which must be longer than a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

import msgspec

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.evidence.run_facts import known_facts
from airflow_kstreams.batch.inspect.tables.listed_files import listed_files
from airflow_kstreams.batch.run.tables.targets import require_tables
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import Clock, ClusterPort
from airflow_kstreams.streams.tables.table_port import FileFacts, TablePort, TablesPort


class OrphanFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that nothing needs.

    :param table: name of the table's sink.
    :param path: its location.
    :param changed_ms: time of its last change, epoch milliseconds, by the storage's clock.
    :param bytes: its size.
    :param deleted: whether it was deleted.
    """

    table: str
    path: str
    changed_ms: int
    bytes: int
    deleted: bool = False


class Orphans(msgspec.Struct, frozen=True, kw_only=True):
    """The orphans in an application's tables.

    :param application_id: id of the application.
    :param looked_at: number of the application's files that were looked at.
    :param files: the orphans, the oldest first.
    :param older_than_ms: age in milliseconds from which they may be deleted.
    """

    application_id: str
    looked_at: int
    files: tuple[OrphanFile, ...]
    older_than_ms: int


def find_orphans(
    cluster: ClusterPort,
    plan: TopologyPlan,
    tables: TablesPort | None,
    *,
    beginning: str,
    older_than_ms: int,
    delete: bool = False,
    clock: Clock | None = None,
) -> Orphans:
    """Find the orphans in a topology's tables, and delete the old ones.

    :param tables: opens the tables; None if it was not said where they are.
    :param beginning: beginning of the names of the application's files, and of no other one's.
    :param older_than_ms: age in milliseconds from which a file may be deleted, longer than a run takes.
    :param delete: whether to delete those.
    :raises ConfigError: it was not said where tables are.
    :raises TableUnavailableError: a catalogue or storage did not answer.
    :raises TableRefusedError: it does not let this user look, or delete.
    :raises RunError: the list of files holds what no task has written.
    """
    clock, opened = clock or SystemClock(), require_tables(tables, plan)
    ports = {table.name: opened.table(table) for table in plan.tables}
    there = {name: _files_of(port, beginning) for name, port in ports.items()}
    listed = _listed(cluster, plan, clock)
    old_ms = clock.now_ms() - older_than_ms if delete else 0
    found: list[OrphanFile] = []
    for name, port in ports.items():
        kept = {file.path for file in listed.get(name, ())}
        others = {path: at for path, at in there[name].items() if path not in kept}
        found += _of_table(port, name, others, old_ms)
    return Orphans(
        application_id=plan.application_id,
        looked_at=sum(map(len, there.values())),
        files=tuple(sorted(found, key=lambda file: (file.changed_ms, file.path))),
        older_than_ms=older_than_ms,
    )


def _files_of(port: TablePort, beginning: str) -> dict[str, int]:
    """Return location and time of the last change of the application's files; none if the table is gone."""
    look = port.look()
    return {} if look is None else dict(port.files(look).names(beginning))


def _listed(cluster: ClusterPort, plan: TopologyPlan, clock: Clock) -> Mapping[str, Sequence[FileFacts]]:
    """Return what a run that is not finished has listed."""
    app = plan.application_id
    with closing(cluster.admin()) as admin, closing(cluster.reader(group_id=app)) as reader:
        slice_ = known_facts(cluster, app, admin, reader, clock).under_way
        return {} if slice_ is None else listed_files(cluster, admin, slice_, clock=clock)


def _of_table(port: TablePort, name: str, there: Mapping[str, int], old_ms: int) -> Iterator[OrphanFile]:
    """Yield the files of one table that no snapshot names.

    :param old_ms: those that were changed before that time are deleted, epoch milliseconds.
    """
    look = port.look()
    if look is None:
        return
    named, files = port.named(look, list(there)), port.files(look)
    sizes = files.sizes([path for path in there if path not in named])
    files.delete([path for path in sizes if there[path] < old_ms])
    for path, size in sizes.items():
        yield OrphanFile(
            table=name, path=path, changed_ms=there[path], bytes=size, deleted=there[path] < old_ms
        )
