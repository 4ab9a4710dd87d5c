"""What a key-value store offers: to users, to operators, and to the task that logs and restores it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from airflow_kstreams.streams.ports import Record


class KeyValueStore(Protocol):
    """One task's instance of a store.

    Keys and values are Python objects, written in the serdes of the store's spec. A value handed out by
    ``get``, ``range`` or ``all`` belongs to the store: change it only to ``put`` it back, else the change
    misses the changelog. Order is that of the serialized keys, so that it is the same after a restore.
    """

    name: str

    def get(self, key: Any) -> Any:
        """Return the value of a key, None if there is none."""
        ...

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key; None deletes it. The entry takes the timestamp of the record being
        processed.
        """
        ...

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Set the value of a key that has none.

        :return: the value found, or None when there was none and the new one was set.
        """
        ...

    def delete(self, key: Any) -> Any:
        """Delete a key and return the value it had, None if there was none."""
        ...

    def range(self, first: Any, last: Any) -> Iterator[tuple[Any, Any]]:
        """Iterate over (key, value) from first to last, both included; None leaves an end open."""
        ...

    def all(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over every (key, value)."""
        ...

    def approximate_count(self) -> int:
        """Return the number of keys; exact in memory, an estimate on disk."""
        ...

    def get_entry(self, key: bytes) -> tuple[Any, int] | None:
        """Return (value, timestamp_ms) of a serialized key, None if there is none."""
        ...

    def put_entry(self, key: bytes, entry: tuple[Any, int] | None) -> None:
        """Set (value, timestamp_ms) of a serialized key; None deletes it."""
        ...

    def drain_changes(self) -> Iterator[tuple[bytes, bytes | None, int]]:
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
        """Apply changelog records in their order: what :meth:`restore` does for each, at bulk speed.

        A store may keep the values as bytes and read them when they are first asked for. It reads at least
        one of each batch, so that a format that is not the store's shows before any record is processed.

        :return: how many bytes their keys and values have.
        :raises StateStoreError: a value is not of the store's format.
        """
        ...


@runtime_checkable
class PersistentStore(Protocol):
    """What the task needs of a store whose entries lie in files.

    A store that is used without :meth:`open` keeps its files in a temporary folder that goes with it.
    """

    @property
    def store_format(self) -> str:
        """What the files are written in, serdes included; files of another format are not opened."""
        ...

    def open(self, folder: Path) -> None:
        """Keep the files in a folder, made unless it exists; entries that it holds are the store's.

        :raises StateStoreError: the files cannot be read or written.
        """
        ...

    def close(self) -> None:
        """Let go of the files, which then durably hold everything drained and restored. Iterators end.

        What was changed and not drained is lost: it was never committed.

        Closing twice is harmless.

        :raises StateStoreError: the files cannot be written.
        """
        ...


def restore_each(restore: Callable[[bytes, bytes | None, int], None], records: Sequence[Record]) -> int:
    """Apply changelog records one by one, for a store without a bulk path.

    :param restore: :meth:`KeyValueStore.restore` of the store.
    :return: how many bytes their keys and values have.
    """
    size_bytes = 0
    for record in records:
        key, value = record.key() or b"", record.value()
        restore(key, value, record.timestamp()[1])
        size_bytes += len(key) + len(value or b"")
    return size_bytes
