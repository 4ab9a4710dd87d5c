"""Defines the port to one table of a lakehouse. ``tables/`` implements it on the libraries of each format,
``testing/`` in memory.

The protocol on it is ``batch/tables``'s. The port promises what that needs:

- **One look.** :meth:`TablePort.look` loads the table anew, never from a cache, and what it answers is of one
  state of the table.
- **One commit.** :meth:`TablePort.commit` makes at most one snapshot, and only if the table is still in the
  state of the look. Rows, summary and mark become visible together or not at all. It sends one request: it
  never tries again, or moves its change onto another state. Of the state count the table's id, its newest
  snapshot, schema and partitioning: beside an expiry of older snapshots a commit may land.
- **The mark** is a number of ours that stands in the table under the name of an application and sink, as the
  last of its commits wrote it. Expiry of snapshots and log cleanup keep it; so do a rollback and a restore.
- **Files** are added by their facts alone: a commit opens none of them, but the staged ones of an upsert.

A commit that fails may have landed, after a TableMovedError, too: where a proxy or a client has sent a
request twice, the second one's conflict is the answer, and the first one has landed. So behind each failure
the caller looks again: a mark at its number says so. The errors of all
ports are TableMovedError, TableUnavailableError and TableRefusedError (``streams/errors.py``); a commit of
files that cannot be the table's is a mistake of the caller, an InvariantError.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any, BinaryIO, Protocol
from uuid import UUID

import msgspec

from airflow_kstreams.streams.table_plan import Column

#: A value of a column without parts, or None.
Plain = str | int | float | bool | bytes | date | datetime | UUID | Decimal | None

#: Size of files where a table does not say which it asks for, bytes.
TARGET_BYTES = 128 * 1024 * 1024
#: The remedy where a topology writes to tables and nobody says where they are.
SAY_WHERE_TABLES_ARE = (
    "name the Airflow connection that has them: tables_conn_id=; by hand: --tables-config FILE"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLook:
    """A table as one look found it.

    :param table_id: id that stays with the table, and that another table of its name does not have.
    :param columns: its columns.
    :param column_ids: dotted name of each column and part (``tags.element``, ``prices.key``,
        ``prices.value``) -> the id that files carry for it; empty where columns have none.
    :param schema_id: number of its schema; -1 where schemas have none.
    :param partition_by: its partitioning, one text for each field, as in :class:`PartitionField`.
    :param spec_id: number of its partitioning; -1 where partitionings have none.
    :param sort_by: columns by which rows of a file are sorted, in their order.
    :param snapshot: id of the newest snapshot or version; empty if there is none.
    :param marks: sink -> last mark of the application asked for; sinks without one are absent. Delta cannot
        list marks, so a look has that of the sink that the port was opened for alone.
    :param target_bytes: size of files that the table asks for, bytes; 0 if it does not say.
    :param refused: one sentence for each feature of the table that keeps us from writing to it.
    :param state: what the implementation needs to commit on condition of this state.
    """

    table_id: str
    columns: tuple[Column, ...]
    column_ids: Mapping[str, int] = field(default_factory=dict)
    schema_id: int = -1
    partition_by: tuple[str, ...] = ()
    spec_id: int = -1
    sort_by: tuple[str, ...] = ()
    snapshot: str = ""
    marks: Mapping[str, int] = field(default_factory=dict)
    target_bytes: int = 0
    refused: tuple[str, ...] = ()
    state: Any = field(default=None, repr=False, compare=False)


class ColumnFacts(msgspec.Struct, frozen=True, array_like=True):
    """Statistics of a column without parts in one file.

    :param nulls: number of rows without a value.
    :param lower: a value that no value is below; None if it is not known.
    :param upper: a value that no value is above; None if it is not known.
    """

    nulls: int
    lower: Any = None
    upper: Any = None


class FileFacts(msgspec.Struct, frozen=True, array_like=True):
    """A file of rows that a task has written and closed.

    :param path: its location, complete.
    :param size: its size, bytes.
    :param rows: number of its rows.
    :param partition: value of each field of the partitioning, in the order of
        :attr:`TableLook.partition_by`; all rows of the file have it. A year, month, day or hour is a number
        counted from 1970, a bucket its number; any other value is one of its column.
    :param columns: column -> its statistics; columns without known ones are absent.
    :param row_groups: offset in the file at which each row group begins, bytes.
    """

    path: str
    size: int
    rows: int
    partition: tuple[Any, ...] = ()
    columns: Mapping[str, ColumnFacts] = {}
    row_groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """A snapshot to make.

    :param application_id: the application.
    :param sink: name of the sink: the mark is that of application and sink.
    :param sequence: the mark to write.
    :param summary: what the snapshot says of itself: name -> text, in addition to what the format asks for.
    :param added: files to add; none for a snapshot without rows. For an upsert: files with staged rows
        (:data:`airflow_kstreams.streams.table_plan.DELETED`), in the order in which rows replace each other.
    :param removed: paths of files to take out in the same snapshot; none for an upsert.
    :param key_column: for an upsert, the column of keys: the last staged row of each key becomes its row, in
        the place of all that the table has of the key, or takes those away. Empty for files that are added.
    """

    application_id: str
    sink: str
    sequence: int
    summary: Mapping[str, str] = field(default_factory=dict)
    added: Collection[FileFacts] = ()
    removed: Collection[str] = ()
    key_column: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeSnapshot:
    """What a commit has made.

    :param snapshot: id of the snapshot, or the version.
    :param rewritten_bytes: bytes of the table's files that an upsert has rewritten; 0 for any other commit,
        None where it is not known.
    """

    snapshot: str
    rewritten_bytes: int | None = 0


class RewrittenFiles(msgspec.Struct, frozen=True, kw_only=True):
    """What an upsert, or a part of it, changes of a table by rewriting files.

    :param removed: paths of the files that leave the table.
    :param removed_bytes: number of their bytes.
    :param added: the files that come into it.
    """

    removed: tuple[str, ...] = ()
    removed_bytes: int = 0
    added: tuple[FileFacts, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot of a table, as its history has it.

    :param snapshot: its id, or the version.
    :param made_ms: time at which it was made, epoch milliseconds.
    :param operation: ``append``, ``overwrite``, ``delete`` or ``replace``; any other word of the format.
    :param summary: what it says of itself.
    :param added: number of rows in the files that it added; None if the history does not say.
    :param removed: number of rows in the files that it took out; None if the history does not say.
    """

    snapshot: str
    made_ms: int
    operation: str
    summary: Mapping[str, str]
    added: int | None = None
    removed: int | None = None


class TableFiles(Protocol):
    """The storage in which a table's files lie. Paths are complete locations, as in :class:`FileFacts`."""

    def path(self, name: str, partition: Iterable[tuple[str, Any]] = ()) -> str:
        """Return the location of a new file.

        :param name: name of the file, unique in the table.
        :param partition: name and value of each field of the partitioning, for the folder's name.
        """
        ...

    def create(self, path: str) -> BinaryIO:
        """Open a new file for writing; it exists once it is closed without an error.

        :raises TableUnavailableError: the storage did not answer, or is full.
        :raises TableRefusedError: it may not be written.
        """
        ...

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        """Return the size of each file, bytes; files that do not exist are absent."""
        ...

    def read(self, path: str) -> BinaryIO:
        """Open a file for reading at any place."""
        ...

    def names(self, beginning: str) -> Iterable[tuple[str, int]]:
        """Give location and time of the last change, epoch milliseconds, of each file whose name begins so,
        in whatever folder of the table it lies.
        """
        ...

    def delete(self, paths: Collection[str]) -> None:
        """Delete files; those that do not exist are left out."""
        ...


class TablePort(Protocol):
    """One table; it need not exist. Every call contacts its catalogue or storage.

    Each raises TableUnavailableError and TableRefusedError.
    """

    def look(self, application_id: str = "") -> TableLook | None:
        """Load the table anew; None if it does not exist.

        :param application_id: the application whose marks to read; empty for none.
        """
        ...

    def create(self, columns: tuple[Column, ...], partition_by: tuple[str, ...]) -> None:
        """Create the table; a table that exists is left alone."""
        ...

    def widen(self, look: TableLook, *, added: tuple[Column, ...], widened: tuple[Column, ...]) -> None:
        """Add optional columns and give columns wider types, in one commit on condition of the look.

        :raises TableMovedError: the table has changed since.
        """
        ...

    def files(self, look: TableLook) -> TableFiles:
        """Return the storage of the table's files."""
        ...

    def commit(self, look: TableLook, commit: TableCommit) -> MadeSnapshot:
        """Make one snapshot, on condition of the look.

        An upsert reads the staged files, and what the look's state has of their keys. So a commit that fails
        for a change of the table is made anew for the next look.

        :raises TableMovedError: the table has changed since.
        :raises TableUnavailableError: it may have been committed.
        :raises LargeRewriteError: an upsert would rewrite more here than this process may.
        """
        ...

    def drop_mark(self, look: TableLook, application_id: str, sink: str) -> None:
        """Take a mark away, on condition of the look; formats whose marks expire by themselves do nothing."""
        ...

    def holds(self, look: TableLook, snapshot: str) -> bool | None:
        """Return whether a snapshot is the newest one or one of those before it; None if the history does not
        reach back that far.
        """
        ...

    def snapshots(self, look: TableLook, *, taken_back: bool = False) -> tuple[Snapshot, ...]:
        """Return the history up to the newest snapshot, the oldest first, as far as it is kept.

        :param taken_back: with the snapshots that the table was rolled back past, as far as they are kept.
            Delta's history has them anyway.
        """
        ...

    def added(self, look: TableLook, snapshot: str) -> Mapping[str, int] | None:
        """Return the files that a snapshot has added and that are in the newest one: location -> number of
        rows. None if that cannot be told, because rows of files are deleted without the files, or the history
        does not reach back that far.
        """
        ...

    def partitions(self, look: TableLook) -> Mapping[str, tuple[Any, ...]] | None:
        """Return the files of the newest snapshot: location -> value of each field of the partitioning, as in
        :class:`FileFacts`. None if some are of another partitioning, or rows of files are deleted without the
        files.
        """
        ...

    def named(self, look: TableLook, paths: Collection[str]) -> set[str]:
        """Return those of some files that a snapshot names which can still be read, on whatever branch."""
        ...

    def row_counts(self, look: TableLook, column: str) -> dict[str, int] | None:
        """Return how many rows of the newest snapshot have each value of a column of text, in bounded memory;
        rows without a value are left out. None if the port cannot read rows.
        """
        ...

    def expire(self, look: TableLook, keep: int) -> None:
        """Forget all but the newest snapshots, on condition of the look, and delete what only they name.
        Delta keeps these, and versions that are not as old as the table says.
        """
        ...


class RewriteBuckets(Protocol):
    """Rewrites files of a table elsewhere: for each bucket that an upsert touches."""

    def __call__(
        self, spec: Any, look: TableLook, upserts: Sequence[TableCommit]
    ) -> Sequence[RewrittenFiles]:
        """Return what each upsert changes.

        :param spec: the table, as the topology describes it.
        :param look: the state that the files are rewritten for.
        :param upserts: parts of one upsert, each with the staged files of one bucket.
        :raises KStreamsError: a part failed; nothing is committed.
        """
        ...


class TablesPort(Protocol):
    """Opens tables."""

    def table(self, spec: Any) -> TablePort:
        """Return the port to a table. Nothing is asked of a catalogue yet.

        :param spec: the table, as the topology describes it.
        :raises ConfigError: a setting of the connection is missing or refused, with its name.
        """
        ...
