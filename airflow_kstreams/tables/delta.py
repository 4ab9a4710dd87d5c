"""The port to a table, on deltalake.

Rule: a commit is one write transaction on the version of the look, with the mark as the version of an
application id of Delta's own, and with the client's retries off: it takes the next version, or fails because
another writer has. Versions never come again, so a commit that is late cannot land on a state like the one it
was made for.

The id of the table is looked at once more before a commit: one that was deleted and made anew begins at
version 0, and deltalake would write a version far beyond it.

The mark of application and sink is the application id ``<application>/<sink>``. Checkpoints carry it on, and
a restore does not bring it back. A log does not list its application ids: a look has the mark of the sink
that the port was opened for.

An upsert is the library's merge, with the same mark and without retries. It makes no version where nothing
changes; then an empty one is made.

Files are taken out by remove actions beside the added ones. The library takes them on trust, so a path that
the look does not have is refused here.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, cast

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, Transaction

from airflow_kstreams.streams.errors import TableMovedError, TableRefusedError
from airflow_kstreams.streams.table_plan import Column
from airflow_kstreams.streams.tables.table_port import (
    MadeSnapshot,
    Snapshot,
    TableCommit,
    TableFiles,
    TableLook,
)
from airflow_kstreams.tables.delta_errors import port_errors
from airflow_kstreams.tables.delta_files import DeltaFiles, add_action, partition_text, relative
from airflow_kstreams.tables.delta_log import DeltaLog
from airflow_kstreams.tables.delta_schema import (
    columns_of,
    delta_schema,
    partition_columns,
    refused_features,
    target_bytes,
)
from airflow_kstreams.tables.parquet.row_counts import counts_in
from airflow_kstreams.tables.storage_errors import TablePlace
from airflow_kstreams.tables.upserts.delta_merge import merge_staged
from airflow_kstreams.tables.upserts.said_sizes import say_rewritten
from airflow_kstreams.tables.upserts.staged_files import StagedFiles

_UNSAFE_OPTIONS = {"aws_s3_allow_unsafe_rename", "allow_unsafe_rename"}


class DeltaTablePort:
    """One Delta table.

    :param location: folder or URI of the table.
    :param options: options of the storage, as deltalake names them.
    :param sink: the sink whose mark a look has.
    :param place: the table, for messages.
    """

    def __init__(self, location: str, options: dict[str, str], sink: str, place: TablePlace) -> None:
        self._root, self._options, self._sink, self._place = location.rstrip("/"), options, sink, place

    def look(self, application_id: str = "") -> TableLook | None:
        """Load the newest version. See ``TablePort``."""
        table = self._loaded()
        if table is None:
            return None
        with port_errors(self._place, "look"):
            metadata = table.metadata()
            mark = table.transaction_version(app_id(application_id, self._sink)) if application_id else None
            return TableLook(
                table_id=str(metadata.id),
                columns=columns_of(table.schema()),
                partition_by=tuple(metadata.partition_columns),
                snapshot=str(table.version()),
                marks={} if mark is None else {self._sink: mark},
                target_bytes=target_bytes(metadata.configuration),
                refused=(*self._refused_storage(), *refused_features(table, metadata.configuration)),
                state=table,
            )

    def _loaded(self) -> DeltaTable | None:
        with port_errors(self._place, "look"):
            try:
                return DeltaTable(self._root, storage_options=self._options)
            except TableNotFoundError:
                return None

    def _refused_storage(self) -> tuple[str, ...]:
        unsafe = sorted(name for name in self._options if name.lower() in _UNSAFE_OPTIONS)
        return tuple(f"{name} lets two writers write the same version: take it away" for name in unsafe)

    def create(self, columns: tuple[Column, ...], partition_by: tuple[str, ...]) -> None:
        """Create the table. See ``TablePort``."""
        fields = partition_columns(partition_by, columns)
        with port_errors(self._place, "creation"):
            try:
                DeltaTable.create(
                    self._root,
                    schema=delta_schema(columns),
                    mode="ignore",
                    partition_by=fields,
                    storage_options=self._options,
                )
            except CommitFailedError:
                if self._loaded() is None:
                    raise

    def widen(self, look: TableLook, *, added: tuple[Column, ...], widened: tuple[Column, ...]) -> None:
        """Add columns in one commit; Delta does not widen types. See ``TablePort``."""
        if widened:
            raise TableRefusedError(
                f"table {self._place.name!r}: {', '.join(map(str, widened))}: a wider type is a feature of "
                "Delta tables that is not written here",
                fix="widen the column in the table's own engine, or write to another table",
            )
        table = self._unmoved(look)
        with port_errors(self._place, "change of the schema"):
            table.alter.add_columns(
                delta_schema(added).fields, commit_properties=CommitProperties(max_commit_retries=0)
            )

    def files(self, look: TableLook) -> TableFiles:
        """Return the storage of the table's files. See ``TablePort``."""
        return DeltaFiles(self._root, self._options, self._place)

    def commit(self, look: TableLook, commit: TableCommit) -> MadeSnapshot:
        """Make one version. See ``TablePort``."""
        if commit.key_column and commit.added:
            return self._upsert(look, commit)
        fields, now_ms = list(look.partition_by), time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [
            add_action(self._root, fields, file, now_ms) for file in commit.added
        ]
        actions += self._removals(look, set(commit.removed), now_ms)
        table = self._unmoved(look)
        with port_errors(self._place, "commit"):
            table.create_write_transaction(
                actions,
                "append",
                table.schema(),
                partition_by=fields,
                commit_properties=_properties(commit),
            )
        return MadeSnapshot(snapshot=str(int(look.snapshot) + 1))

    def _upsert(self, look: TableLook, commit: TableCommit) -> MadeSnapshot:
        """Make one version of the staged rows; where they change nothing, an empty one with the mark."""
        self._refuse_append_only(look)
        table, staged = self._unmoved(look), StagedFiles(self.files(look), commit.added, commit.key_column)
        with port_errors(self._place, "upsert"):
            before = _sizes(table)
            merge_staged(table, staged, commit.key_column, _properties(commit))
            if str(table.version()) == look.snapshot:
                return self.commit(look, replace(commit, added=()))
            left = before.keys() - _sizes(table).keys()
        rewritten = sum(before[path] for path in left)
        say_rewritten(self._place.name, rewritten_bytes=rewritten, new_bytes=staged.size)
        return MadeSnapshot(snapshot=str(int(look.snapshot) + 1), rewritten_bytes=rewritten)

    def _refuse_append_only(self, look: TableLook) -> None:
        if _table(look).metadata().configuration.get("delta.appendOnly", "false").lower() == "true":
            raise TableRefusedError(
                f"table {self._place.name!r}: rows are to be taken out, and delta.appendOnly forbids that",
                fix="set delta.appendOnly to false",
            )

    def _removals(self, look: TableLook, paths: set[str], now_ms: int) -> list[RemoveAction]:
        """Return the actions that take files out.

        :raises TableRefusedError: one is not in the table, or the table forbids it.
        """
        if not paths:
            return []
        self._refuse_append_only(look)
        table = _table(look)
        wanted = {relative(self._root, path) for path in paths}
        with port_errors(self._place, "commit"):
            known = {row["path"]: row for row in _rows(table)}
        missing = wanted - known.keys()
        if missing:
            raise TableRefusedError(
                f"table {self._place.name!r}: {min(missing)} is to be taken out, and version "
                f"{look.snapshot} does not have it"
            )
        return [
            RemoveAction(
                path=path,
                data_change=True,
                deletion_timestamp=now_ms,
                size=known[path]["size_bytes"],
                partition_values={
                    name: partition_text(name, value)
                    for name, value in (known[path]["partition"] or {}).items()
                },
            )
            for path in sorted(wanted)
        ]

    def _unmoved(self, look: TableLook) -> DeltaTable:
        """Load the table again, and return it if it is still that of the look, at the look's version.

        :raises TableMovedError: it is not.
        """
        now = self._loaded()
        found = "it is gone" if now is None else f"it is table {now.metadata().id} at version {now.version()}"
        if now is None or str(now.metadata().id) != look.table_id or str(now.version()) != look.snapshot:
            raise TableMovedError(
                f"table {self._place.name!r}: it was looked at as table {look.table_id} at version "
                f"{look.snapshot}, and {found}"
            )
        return now

    def drop_mark(self, look: TableLook, application_id: str, sink: str) -> None:
        """Do nothing: Delta keeps a mark of some bytes, and knows no way to take it away."""

    def holds(self, look: TableLook, snapshot: str) -> bool | None:
        """Follow the log back from the newest version, through restores. See ``TablePort``."""
        if not snapshot.isdigit() or int(snapshot) > int(look.snapshot):
            return False
        return self._log().leads_to(int(snapshot), int(look.snapshot))

    def snapshots(self, look: TableLook, *, taken_back: bool = False) -> tuple[Snapshot, ...]:
        """Return the versions that the log still has, the oldest first. See ``TablePort``."""
        del taken_back
        return tuple(reversed(list(self._log().snapshots(int(look.snapshot)))))

    def added(self, look: TableLook, snapshot: str) -> Mapping[str, int] | None:
        """Return files that the log's entry of a version adds. See ``TablePort``."""
        made = self._log().added(int(snapshot)) if snapshot.isdigit() else None
        if made is None:
            return None
        with port_errors(self._place, "look at files"):
            known = {row["path"]: row for row in _rows(_table(look))}
        return {f"{self._root}/{path}": known[path]["num_records"] for path in made if path in known}

    def named(self, look: TableLook, paths: Collection[str]) -> set[str]:
        """Read the newest version, then the log: a file that an older one still has was taken out by a commit
        that the log has. See ``TablePort``.
        """
        wanted = {relative(self._root, path): path for path in paths}
        if not wanted:
            return set()
        with port_errors(self._place, "look at its files"):
            found = {row["path"] for row in _rows(_table(look))} & wanted.keys()
        if found != wanted.keys():
            found |= self._log().paths(int(look.snapshot)) & wanted.keys()
        return {wanted[path] for path in found}

    def row_counts(self, look: TableLook, column: str) -> dict[str, int] | None:
        """Read one column, batch by batch. See ``TablePort``."""
        with port_errors(self._place, "count of its rows"):
            return counts_in(_table(look).to_pyarrow_dataset().scanner(columns=[column]).to_batches())

    def partitions(self, look: TableLook) -> Mapping[str, tuple[Any, ...]] | None:
        """Return the values that the log has; tables with other deletions are refused. See ``TablePort``."""
        with port_errors(self._place, "look at files"):
            rows = _rows(_table(look))
        return {
            f"{self._root}/{row['path']}": tuple(
                (row["partition"] or {}).get(name) for name in look.partition_by
            )
            for row in rows
        }

    def expire(self, look: TableLook, keep: int) -> None:
        """Write a checkpoint, and clean up log and files that were taken out, if the log has more versions
        than are to be kept.

        Delta keeps versions by time, and by number at least: entries of the log go once they are older than
        the table's ``delta.logRetentionDuration``, and files that were taken out once they are older than
        its ``delta.deletedFileRetentionDuration`` and none of the newest ``keep`` versions has them.
        """
        table = self._unmoved(look)
        head, oldest = table.version(), self._log().oldest()
        if head - oldest < keep:
            return
        with port_errors(self._place, "expiry"):
            table.create_checkpoint()
            table.cleanup_metadata()
            if table.vacuum(dry_run=True):
                table.vacuum(
                    dry_run=False,
                    keep_versions=list(range(max(head - keep + 1, self._log().oldest()), head + 1)),
                    commit_properties=CommitProperties(max_commit_retries=0),
                    post_commithook_properties=PostCommitHookProperties(create_checkpoint=False),
                )

    def _log(self) -> DeltaLog:
        return DeltaLog(self._root, self._options, self._place)


def app_id(application_id: str, sink: str) -> str:
    """Return the application id of Delta's that has the mark of an application and sink."""
    return f"{application_id}/{sink}"


def _properties(commit: TableCommit) -> CommitProperties:
    """Return what a commit says of itself, with its mark; it is tried once."""
    return CommitProperties(
        custom_metadata=dict(commit.summary),
        max_commit_retries=0,
        app_transactions=[Transaction(app_id(commit.application_id, commit.sink), commit.sequence)],
    )


def _sizes(table: DeltaTable) -> dict[str, int]:
    """Return path and size of each file of a table."""
    return {row["path"]: row["size_bytes"] for row in _rows(table)}


def _table(look: TableLook) -> DeltaTable:
    return cast("DeltaTable", look.state)


def _rows(table: DeltaTable) -> list[dict[str, Any]]:
    """Return the files of a table: path, size and partition values."""
    import pyarrow

    return list(pyarrow.table(table.get_add_actions(flatten=False)).to_pylist())
