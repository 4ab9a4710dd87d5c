"""Keeps tables in memory, behind the port of ``streams/tables/table_port.py``.

A table is a line of snapshots, each with the files that are in it and the snapshot before it; marks stand
beside the line, as properties of the table do. Files are bytes in a dictionary. What an upsert brings is
kept as it was staged, and counts when rows are read. Nothing is read from a clock
or drawn: ids count up, and times are those of the given clock, so the same calls make the same tables.

Other writers are played by :class:`OtherWriter`: it commits files, rolls back, forgets snapshots, changes
columns and partitioning, drops a table and makes another one of its name. To lose, delay or refuse calls,
wrap the tables: :class:`airflow_kstreams.testing.faults.FaultyTables`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Protocol, cast

import msgspec

from airflow_kstreams.streams.errors import TableMovedError, TableRefusedError, TableUnavailableError
from airflow_kstreams.streams.table_plan import DELETED, Column
from airflow_kstreams.streams.tables.table_port import (
    FileFacts,
    MadeSnapshot,
    Snapshot,
    TableCommit,
    TableFiles,
    TableLook,
    TablePort,
)


class NamedTable(Protocol):
    """What tables in memory have to know of a table of a topology."""

    @property
    def location(self) -> str:
        """Name under which the table is kept."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """A snapshot with what is in it; ``parent`` is empty for the first one. Of files with staged rows,
    ``staged`` says the column of their keys; files stand in the order in which they came in.
    """

    snapshot: Snapshot
    parent: str
    files: Mapping[str, FileFacts]
    staged: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """A table at one time. Each change makes another one, so a look keeps what it saw."""

    table_id: str
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...]
    schema_id: int = 0
    spec_id: int = 0
    sort_by: tuple[str, ...] = ()
    target_bytes: int = 0
    refused: tuple[str, ...] = ()
    head: str = ""
    kept: Mapping[str, _Kept] = field(default_factory=dict)
    marks: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def condition(self) -> tuple[object, ...]:
        """What a commit compares: as in Iceberg, a snapshot that was forgotten is no part of it."""
        return (self.table_id, self.head, self.schema_id, self.spec_id)

    def line(self) -> Iterator[_Kept]:
        """Give the newest snapshot and those before it, the newest first, as far as they are kept."""
        at = self.kept.get(self.head)
        while at is not None:
            yield at
            at = self.kept.get(at.parent)

    @property
    def files(self) -> Mapping[str, FileFacts]:
        """The files of the newest snapshot."""
        return self.kept[self.head].files if self.head else {}


class InMemoryTables:
    """A catalogue of tables, with the storage of their files. See ``TablesPort``.

    >>> from types import SimpleNamespace
    >>> tables = InMemoryTables()
    >>> carriers = tables.table(SimpleNamespace(location="flights.carriers"))
    >>> carriers.create((Column("carrier", "text"),), ())
    >>> look = carriers.look("flight-delays")
    >>> commit = TableCommit(application_id="flight-delays", sink="carriers", sequence=1)
    >>> carriers.commit(look, commit).snapshot, carriers.look("flight-delays").marks
    ('1', {'carriers': 1})

    :param now_ms: time of snapshots and files, epoch milliseconds; without it, each call of it is one later.
    """

    def __init__(self, now_ms: Callable[[], int] | None = None) -> None:
        self.states: dict[str, _State] = {}
        #: Location of a file -> time of its last change and its bytes.
        self.stored: dict[str, tuple[int, bytes]] = {}
        self._counts = {"table": 0, "snapshot": 0, "copy": 0, "time": 0}
        self._now_ms = now_ms

    def table(self, spec: NamedTable) -> TablePort:
        """Return the port to a table."""
        return InMemoryTable(self, spec.location)

    def other_writer(self, location: str) -> OtherWriter:
        """Return what plays another writer of a table."""
        return OtherWriter(self, location)

    def rows(self, location: str, decode: Callable[[bytes], Iterable[Any]]) -> list[Any]:
        """Return the rows of a table, file by file in the order of their names; of a table with upserts, the
        last row of each key.

        :param location: name of the table.
        :param decode: returns the rows of a file from its bytes: as dicts, or as tuples with the key first
            and, in a staged file, the flag of deleted rows last.
        """
        state = self.states[location]
        if state.head and (staged := state.kept[state.head].staged):
            return self._last_rows(state.files, staged, decode)
        return [row for path in sorted(state.files) for row in decode(self.stored[path][1])]

    def _last_rows(
        self, files: Iterable[str], staged: Mapping[str, str], decode: Callable[[bytes], Iterable[Any]]
    ) -> list[Any]:
        found: dict[Any, Any] = {}
        name = next(iter(staged.values()))
        for path in files:
            for row in decode(self.stored[path][1]):
                key = row[name] if isinstance(row, Mapping) else row[0]
                found.pop(key, None)
                kept = _unstaged(row) if path in staged else row
                if kept is not None:
                    found[key] = kept
        return list(found.values())

    def counted(self, what: str) -> str:
        """Return the next id of a kind: ``table``, ``snapshot`` or ``copy``."""
        self._counts[what] += 1
        return str(self._counts[what])

    def now_ms(self) -> int:
        """Return the time, epoch milliseconds."""
        return int(self.counted("time")) if self._now_ms is None else self._now_ms()

    def state(self, location: str) -> _State:
        """Return a table as it is.

        :raises TableMovedError: there is none.
        """
        if location not in self.states:
            raise TableMovedError(f"table {location!r} is gone")
        return self.states[location]

    def snapshot(
        self,
        location: str,
        *,
        operation: str,
        added: Collection[FileFacts] = (),
        removed: Collection[str] = (),
        summary: Mapping[str, str] | None = None,
        key_column: str = "",
    ) -> _State:
        """Return a table with one more snapshot; it is not stored yet.

        :raises TableRefusedError: a file that is to be taken out is not in the table.
        """
        state = self.state(location)
        missing = sorted(set(removed) - set(state.files))
        if missing:
            raise TableRefusedError(f"table {location!r}: {missing[0]} is to be taken out, and is not in it")
        files = {path: file for path, file in state.files.items() if path not in removed}
        files |= {file.path: file for file in added}
        made = Snapshot(
            snapshot=self.counted("snapshot"),
            made_ms=self.now_ms(),
            operation=operation,
            summary=dict(summary or {}),
            added=sum(file.rows for file in added),
            removed=sum(state.files[path].rows for path in removed),
        )
        before = state.kept[state.head].staged if state.head else {}
        staged = {**before, **{file.path: key_column for file in added if key_column}}
        kept = _Kept(snapshot=made, parent=state.head, files=files, staged=staged)
        return replace(state, head=made.snapshot, kept={**state.kept, made.snapshot: kept})

    def kept(self, staged: FileFacts) -> FileFacts:
        """Copy a staged file to where an upsert keeps it: staged files are deleted once a run is finished.

        :raises TableUnavailableError: there is none.
        """
        if staged.path not in self.stored:
            raise TableUnavailableError(f"{staged.path} does not exist")
        path = f"{staged.path}.kept-{self.counted('copy')}"
        self.stored[path] = self.stored[staged.path]
        return msgspec.structs.replace(staged, path=path)

    def forget(self, location: str, keep: int) -> None:
        """Forget all but the newest snapshots of a table, and delete files that none names any more."""
        state = self.state(location)
        newest = dict(list({each.snapshot.snapshot: each for each in state.line()}.items())[: max(keep, 1)])
        before = {path for each in state.kept.values() for path in each.files}
        self.states[location] = replace(state, kept=newest)
        for path in before - {path for each in newest.values() for path in each.files}:
            self.stored.pop(path, None)


class InMemoryTable:
    """One table. See ``TablePort``.

    :param tables: where it is kept.
    :param location: its name.
    """

    def __init__(self, tables: InMemoryTables, location: str) -> None:
        self._tables, self._location = tables, location

    def look(self, application_id: str = "") -> TableLook | None:
        """Return the table as it is."""
        state = self._tables.states.get(self._location)
        if state is None:
            return None
        return TableLook(
            table_id=state.table_id,
            columns=state.columns,
            schema_id=state.schema_id,
            partition_by=state.partition_by,
            spec_id=state.spec_id,
            sort_by=state.sort_by,
            snapshot=state.head,
            marks={sink: mark for (app, sink), mark in state.marks.items() if app == application_id},
            target_bytes=state.target_bytes,
            refused=state.refused,
            state=state,
        )

    def create(self, columns: tuple[Column, ...], partition_by: tuple[str, ...]) -> None:
        """Create the table; one that exists is left alone."""
        if self._location not in self._tables.states:
            self._tables.states[self._location] = _State(
                table_id=f"table-{self._tables.counted('table')}", columns=columns, partition_by=partition_by
            )

    def widen(self, look: TableLook, *, added: tuple[Column, ...], widened: tuple[Column, ...]) -> None:
        """Add columns, and give others wider types."""
        state = self._unmoved(look)
        wider = {column.name: column for column in widened}
        columns = (*(wider.get(column.name, column) for column in state.columns), *added)
        self._tables.states[self._location] = replace(state, columns=columns, schema_id=state.schema_id + 1)

    def files(self, look: TableLook) -> TableFiles:
        """Return the storage of the table's files."""
        return InMemoryFiles(self._tables, f"memory://{self._location}/{look.table_id}")

    def commit(self, look: TableLook, commit: TableCommit) -> MadeSnapshot:
        """Make one snapshot, with the mark. An upsert rewrites no file here."""
        self._unmoved(look)
        state = self._tables.snapshot(
            self._location,
            operation="overwrite" if commit.removed or commit.key_column else "append",
            key_column=commit.key_column,
            added=[self._tables.kept(file) for file in commit.added] if commit.key_column else commit.added,
            removed=commit.removed,
            summary=commit.summary,
        )
        marks = {**state.marks, (commit.application_id, commit.sink): commit.sequence}
        self._tables.states[self._location] = replace(state, marks=marks)
        return MadeSnapshot(snapshot=state.head)

    def drop_mark(self, look: TableLook, application_id: str, sink: str) -> None:
        """Take a mark away."""
        state = self._unmoved(look)
        marks = {name: mark for name, mark in state.marks.items() if name != (application_id, sink)}
        self._tables.states[self._location] = replace(state, marks=marks)

    def holds(self, look: TableLook, snapshot: str) -> bool | None:
        """Return whether a snapshot is on the line; None if the line is cut before that is seen."""
        state = cast("_State", look.state)
        line = list(state.line())
        if any(each.snapshot.snapshot == snapshot for each in line):
            return True
        if not line or not line[-1].parent or int(snapshot) > int(line[-1].snapshot.snapshot):
            return False
        return None

    def snapshots(self, look: TableLook, *, taken_back: bool = False) -> tuple[Snapshot, ...]:
        """Return the line, the oldest snapshot first; or all snapshots that are kept."""
        state = cast("_State", look.state)
        found = state.kept.values() if taken_back else state.line()
        return tuple(sorted((each.snapshot for each in found), key=lambda each: int(each.snapshot)))

    def added(self, look: TableLook, snapshot: str) -> Mapping[str, int] | None:
        """Return the files that a snapshot has added and that are in the newest one."""
        state = cast("_State", look.state)
        made = state.kept.get(snapshot)
        before = state.kept.get(made.parent) if made is not None else None
        if made is None or (made.parent and before is None):
            return None
        known = before.files if before is not None else {}
        return {
            path: made.files[path].rows for path in made.files if path not in known and path in state.files
        }

    def partitions(self, look: TableLook) -> Mapping[str, tuple[Any, ...]] | None:
        """Return the partition of each file of the newest snapshot."""
        state = cast("_State", look.state)
        found = {path: file.partition for path, file in state.files.items()}
        fits = all(len(partition) == len(state.partition_by) for partition in found.values())
        return found if fits else None

    def named(self, look: TableLook, paths: Collection[str]) -> set[str]:
        """Return those of some files that a kept snapshot names."""
        kept = cast("_State", look.state).kept.values()
        return {path for each in kept for path in each.files if path in paths}

    def row_counts(self, look: TableLook, column: str) -> dict[str, int] | None:
        """Return None: what the bytes of a file are is the writer's affair."""
        del look, column
        return None

    def expire(self, look: TableLook, keep: int) -> None:
        """Forget all but the newest snapshots."""
        self._unmoved(look)
        self._tables.forget(self._location, keep)

    def _unmoved(self, look: TableLook) -> _State:
        state = self._tables.state(self._location)
        if state.condition != cast("_State", look.state).condition:
            raise TableMovedError(f"table {self._location!r} has changed since the look")
        return state


def _unstaged(row: Any) -> Any:
    """Return a staged row as the table has it; None if it is deleted."""
    if isinstance(row, Mapping):
        return None if row[DELETED] else {name: value for name, value in row.items() if name != DELETED}
    return None if row[-1] else row[:-1]


class InMemoryFiles:
    """The storage of a table's files. See ``TableFiles``.

    :param tables: where bytes are kept.
    :param root: location of the table's files.
    """

    def __init__(self, tables: InMemoryTables, root: str) -> None:
        self._tables, self._root = tables, root

    def path(self, name: str, partition: Iterable[tuple[str, Any]] = ()) -> str:
        """Return the location of a new file."""
        return "/".join((self._root, *(f"{field}={value}" for field, value in partition), name))

    def create(self, path: str) -> BinaryIO:
        """Open a new file; its bytes are kept once it is closed."""
        return _NewFile(self._tables, path)

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        """Return the size of each file that exists, bytes."""
        return {path: len(self._tables.stored[path][1]) for path in paths if path in self._tables.stored}

    def read(self, path: str) -> BinaryIO:
        """Open a file for reading."""
        if path not in self._tables.stored:
            raise TableUnavailableError(f"{path} does not exist")
        return io.BytesIO(self._tables.stored[path][1])

    def names(self, beginning: str) -> Iterable[tuple[str, int]]:
        """Give location and time of the last change of files whose name begins so."""
        for path, (changed_ms, _) in sorted(self._tables.stored.items()):
            if path.startswith(f"{self._root}/") and path.rpartition("/")[2].startswith(beginning):
                yield path, changed_ms

    def delete(self, paths: Collection[str]) -> None:
        """Delete files that exist."""
        for path in paths:
            self._tables.stored.pop(path, None)


class _NewFile(io.BytesIO):
    """A file that is kept when it is closed; not if the block that writes it fails."""

    def __init__(self, tables: InMemoryTables, path: str) -> None:
        super().__init__()
        self._tables, self._path, self._failed = tables, path, False

    def __exit__(self, *failure: object) -> None:
        self._failed = failure[0] is not None
        self.close()

    def close(self) -> None:
        if not self.closed and not self._failed:
            self._tables.stored[self._path] = (self._tables.now_ms(), self.getvalue())
        super().close()


class OtherWriter:
    """Another writer of a table: an engine, a person.

    :param tables: where the table is kept.
    :param location: its name.
    """

    def __init__(self, tables: InMemoryTables, location: str) -> None:
        self._tables, self._location = tables, location

    def append(self, *files: FileFacts) -> str:
        """Add files, and return the snapshot."""
        return self._put(self._tables.snapshot(self._location, operation="append", added=files))

    def compact(self, *, removed: Collection[str], added: Collection[FileFacts]) -> str:
        """Put files in the place of others, and return the snapshot."""
        made = self._tables.snapshot(self._location, operation="replace", added=added, removed=removed)
        return self._put(made)

    def _put(self, state: _State) -> str:
        self._tables.states[self._location] = state
        return state.head

    def roll_back(self, snapshot: str) -> None:
        """Make an earlier snapshot the newest one; empty for none."""
        self.change(head=snapshot)

    def expire(self, keep: int) -> None:
        """Forget all but the newest snapshots."""
        self._tables.forget(self._location, keep)

    def change_columns(self, columns: tuple[Column, ...]) -> None:
        """Give the table other columns."""
        schema_id = self._tables.state(self._location).schema_id + 1
        self.change(columns=columns, schema_id=schema_id)

    def change_partitioning(self, partition_by: tuple[str, ...]) -> None:
        """Give the table another partitioning for new files."""
        spec_id = self._tables.state(self._location).spec_id + 1
        self.change(partition_by=partition_by, spec_id=spec_id)

    def change(self, **changes: Any) -> None:
        """Change what a look shows besides: ``sort_by``, ``target_bytes``, ``refused``."""
        state = self._tables.state(self._location)
        self._tables.states[self._location] = replace(state, **changes)

    def drop(self) -> None:
        """Drop the table; its files stay."""
        self._tables.states.pop(self._location, None)

    def make_anew(self) -> None:
        """Drop the table, and make another one of its name and columns."""
        state = self._tables.state(self._location)
        self.drop()
        InMemoryTable(self._tables, self._location).create(state.columns, state.partition_by)
