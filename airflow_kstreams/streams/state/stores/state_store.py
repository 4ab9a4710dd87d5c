"""Defines the methods of stores, for users and operators and for the task that logs and restores them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from airflow_kstreams.streams.ports import Record
from airflow_kstreams.streams.type_variables import K, V

#: A change of a store: key, value or None, timestamp.
Change = tuple[bytes, bytes | None, int]


class LoggedChanges(NamedTuple):
    """The changes of one store that the next commit logs.

    :param changelog: name of the changelog topic.
    :param least: least possible number of changes, as counted by the store.
    :param most: largest possible number of changes.
    :param changes: the changes.
    """

    changelog: str
    least: int
    most: int
    changes: Iterator[Change]


class StateStore(Protocol):
    """One task's instance of a store.

    Keys of the changelog distinguish entries: in a key-value store by the key, in a window store by the key
    and the window's start. The value None deletes an entry.
    """

    name: str

    def all(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over every entry, in the order of serialized keys, as they are now."""
        ...

    def approximate_count(self) -> int:
        """Return the number of entries; exact in memory, an estimate on disk."""
        ...

    def undrained_count(self) -> int:
        """Return the number of entries changed since the last drain. A store on disk may count one twice that
        was removed and came back.
        """
        ...

    def undrained_at_least(self) -> int:
        """Return the number of changes that the next drain gives at least."""
        ...

    def drain_changes(self) -> Iterator[Change]:
        """Yield (key, value or None, timestamp_ms) once per key changed since the last drain, in order of
        first change.

        :raises StateStoreError: a value does not fit the store's serde.
        """
        ...

    def restore(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        """Apply one changelog record; it is not a change.

        :raises StateStoreError: the value is not of the store's format.
        """
        ...

    def restore_batch(self, records: Sequence[Record]) -> int:
        """Apply changelog records in their order, as :meth:`restore` does for each, but faster.

        A store may keep the values as bytes and decode them at their first read. It decodes at least one of
        each batch, so that a wrong format is found before any record is processed.

        :return: size of their keys and values in bytes.
        :raises StateStoreError: a value is not of the store's format.
        """
        ...


class KeyValueStore(StateStore, Protocol[K, V]):
    """One task's instance of a store of one value per key.

    Keys and values are Python objects, written in the serdes of the store's spec. The store takes copies, and
    ``get``, ``range`` and ``all`` give copies: only ``put`` changes it. (Operators use ``get_entry`` and
    ``put_entry``, which copy nothing.) Order is that of the serialized keys, so that it is the same after a
    restore.
    """

    def get(self, key: K) -> V | None:
        """Return the value of a key, None if there is none."""
        ...

    def put(self, key: K, value: V | None) -> None:
        """Set the value of a key; None deletes it. The entry takes the timestamp of the record being
        processed.
        """
        ...

    def put_if_absent(self, key: K, value: V) -> V | None:
        """Set the value of a key that has none.

        :return: the value found; None if there was none and the new one was set.
        """
        ...

    def delete(self, key: K) -> V | None:
        """Delete a key and return the value it had, None if there was none."""
        ...

    def range(self, first: K | None, last: K | None) -> Iterator[tuple[K, V]]:
        """Iterate over (key, value) from first to last, both included; None leaves an end open."""
        ...

    def all(self) -> Iterator[tuple[K, V]]:
        """Iterate over every (key, value)."""
        ...

    def get_entry(self, key: bytes) -> tuple[Any, int] | None:
        """Return (value, timestamp_ms) of a serialized key, None if there is none."""
        ...

    def put_entry(self, key: bytes, entry: tuple[Any, int] | None) -> None:
        """Set (value, timestamp_ms) of a serialized key; None deletes it."""
        ...


@runtime_checkable
class PersistentStore(Protocol):
    """Methods of a store in files for the task.

    A store that is used without :meth:`open` keeps its files in a temporary folder, which is removed with it.
    """

    @property
    def store_format(self) -> str:
        """The files' format, serdes included; files of another format are not opened."""
        ...

    def open(self, folder: Path, mark: bytes | None = None) -> None:
        """Keep the files in a folder; entries in existing files become the store's.

        :param mark: text that :meth:`close` wrote into the files; files without it are refused. None makes
            missing files, and needs no mark.
        :raises StateStoreError: the files cannot be read or written, or have another mark.
        """
        ...

    def close(self, mark: bytes | None = None) -> None:
        """Close the files, which then durably hold all drained and restored entries. Iterators end.

        Changes that were not drained are lost: they were never committed.

        Closing twice is harmless.

        :param mark: text, written into the files, that describes their content; None if they will not be
            opened again.
        :raises StateStoreError: the files cannot be written.
        """
        ...


def changes_of(store: StateStore, changelog: str) -> LoggedChanges:
    """Return the changes of a store of the last stage that a commit logs."""
    least, most = store.undrained_at_least(), store.undrained_count()
    return LoggedChanges(changelog, least, most, store.drain_changes())


def restore_each(restore: Callable[[bytes, bytes | None, int], None], records: Sequence[Record]) -> int:
    """Apply changelog records one by one, for a store without a bulk path.

    :param restore: the store's :meth:`StateStore.restore`.
    :return: size of their keys and values in bytes.
    """
    size_bytes = 0
    for record in records:
        key, value = record.key() or b"", record.value()
        restore(key, value, record.timestamp()[1])
        size_bytes += len(key) + len(value or b"")
    return size_bytes
