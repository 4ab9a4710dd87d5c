"""Implements the key-value store in RocksDB, for more keys than memory holds.

Rule: entries that were read or changed lately are kept as objects, as in memory, and hot keys never reach
RocksDB between two commit points. A drain serializes the changes and writes them to RocksDB in one batch.
When too many entries are kept, the changed ones are written early and the cache is emptied; the keys changed
since the last drain are remembered apart, so the changelog is the same in both cases.

Invariant: an entry that is not kept as an object, or is kept and not marked unwritten, is in RocksDB in its
present form; after a drain, folding every change drained so far gives exactly the content.

Crash argument: RocksDB may hold changes that were never committed. That is safe because files are only ever
trusted with a checkpoint, which is written after the last commit and after them, and deleted before they are
opened again (``local_state.py``); after any other end they are deleted and the changelog replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from airflow_kstreams.streams.graph.services import CurrentRecord
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.ports import Record
from airflow_kstreams.streams.state.stores.keyed_access import Entry, KeyedAccess, in_bounds
from airflow_kstreams.streams.state.stores.rocksdb.rocksdb_files import KeptEntries, RocksDBFiles, StoreFiles
from airflow_kstreams.streams.state.stores.store_serdes import (
    VALUE_OFFSET,
    key_deserializer,
    timestamp_bytes,
    timestamp_of,
)

#: Entries kept as objects, and how many bytes they may have taken up when serialized: whichever is reached
#: first.
KEPT_ENTRIES = 100_000
KEPT_BYTES = 64 * 1024 * 1024

#: Version of the stored form of an entry (``store_serdes.py``).
_FORMAT = 1


class RocksDBKeyValueStore(KeyedAccess):
    """A :class:`KeyValueStore` on disk, which is also a :class:`PersistentStore`.

    Used before :meth:`open`, as in a test driver, it makes a temporary folder, which is removed with it.

    :param spec: the store's spec.
    :param record_context: the record being processed, whose timestamp entries take.
    :param kept_entries: most entries to keep as objects.
    :raises ConfigError: the package ``rocksdict`` is not installed.
    """

    def __init__(
        self, spec: StoreSpec, record_context: CurrentRecord, *, kept_entries: int = KEPT_ENTRIES
    ) -> None:
        super().__init__(spec, record_context)
        self._files = StoreFiles(spec.name)
        self._kept = KeptEntries[bytes, Entry](self._load)
        self._kept_entries = kept_entries
        #: Bytes read and written since the cache was last emptied: at least the size of the kept entries.
        self._kept_bytes = 0
        #: Keys whose kept entry RocksDB does not have yet.
        self._unwritten: dict[bytes, None] = {}
        #: Key changed since the last drain -> timestamp of its deletion, which holds while it is absent.
        self._changed: dict[bytes, int] = {}
        self.get_entry = self._kept.__getitem__
        self.put_entry = self._logged_put() if spec.logged else self._unlogged_put()

    @property
    def store_format(self) -> str:
        """The files' format."""
        return f"rocksdb-{_FORMAT}/{self.spec.key_serde.id}/{self.spec.value_serde.id}"

    def open(self, folder: Path, mark: bytes | None = None) -> None:
        """Keep the files in a folder, whose entries become the store's."""
        self._files.open(folder, mark)

    def close(self, mark: bytes | None = None) -> None:
        """Close the files, which then durably hold all drained and restored entries."""
        self._files.close(mark)

    def approximate_count(self) -> int:
        """Return the approximate number of keys: one that changed several times lately may count as often."""
        unwritten = sum(1 if self._kept[key] is not None else -1 for key in self._unwritten)
        return max(0, self._files.opened().estimated_count() + unwritten)

    def undrained_count(self) -> int:
        """Return the number of entries changed since the last drain."""
        return len(self._changed)

    def undrained_at_least(self) -> int:
        """Return the same: each key is counted once."""
        return len(self._changed)

    def drain_changes(self) -> Iterator[tuple[bytes, bytes | None, int]]:
        """Yield the changes since the last drain, once per key, in order of first change, and write them to
        RocksDB.
        """
        files = self._files.opened()
        batch = files.batch()
        changed = list(self._changed.items())
        self._changed.clear()
        for key, deleted_ms in changed:
            if key in self._unwritten:
                data = self._stored_form(key, self._kept[key])
                self._add(batch, key, data)
            else:
                data = self._files.read(key)
            if data is None:
                yield key, None, deleted_ms
            else:
                yield key, data[VALUE_OFFSET:], timestamp_of(data)
        files.write(batch)
        self._unwritten.clear()
        self._empty_if_full()

    def restore(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        """Apply one changelog record."""
        if value is not None:
            self.stored_values.deserialize(key, value)
        files = self._files.opened()
        self._write_early(files)
        batch = files.batch()
        self._add(batch, key, None if value is None else timestamp_bytes(timestamp_ms) + value)
        files.write(batch)

    def restore_batch(self, records: Sequence[Record]) -> int:
        """Apply changelog records in their order."""
        files = self._files.opened()
        self._write_early(files)
        batch = files.batch()
        put = batch.put
        size_bytes = 0
        last: tuple[bytes, bytes] | None = None
        for record in records:
            key = record.key() or b""
            value = record.value()
            if value is None:
                batch.delete(key)
                size_bytes += len(key)
            else:
                put(key, timestamp_bytes(record.timestamp()[1]) + value)
                last = (key, value)
                size_bytes += len(key) + len(value)
        if last is not None:
            self.stored_values.deserialize(*last)  # raises if the format is wrong
        files.write(batch)
        return size_bytes

    def _logged_put(self) -> Callable[[bytes, Entry | None], None]:
        kept = self._kept
        unwritten = self._unwritten
        changed = self._changed
        context = self._context
        limit = self._kept_entries

        def put_entry(key: bytes, entry: Entry | None) -> None:
            if entry is not None:
                changed[key] = 0
            elif kept[key] is not None:
                changed[key] = context.timestamp_ms
            else:
                return
            kept[key] = entry
            unwritten[key] = None
            if len(kept) > limit:
                self._write_early(self._files.opened())

        return put_entry

    def _unlogged_put(self) -> Callable[[bytes, Entry | None], None]:
        kept = self._kept
        unwritten = self._unwritten
        limit = self._kept_entries

        def put_entry(key: bytes, entry: Entry | None) -> None:
            kept[key] = entry
            unwritten[key] = None
            if len(kept) > limit:
                self._write_early(self._files.opened())

        return put_entry

    def _load(self, key: bytes) -> Entry | None:
        """Read an entry that is not kept, and keep it."""
        self._empty_if_full()
        data = self._files.read(key)
        entry: Entry | None = None
        if data is not None:
            self._kept_bytes += len(data)
            entry = (self.stored_values.deserialize(key, data[VALUE_OFFSET:]), timestamp_of(data))
        self._kept[key] = entry
        return entry

    def _empty_if_full(self) -> None:
        if len(self._kept) >= self._kept_entries or self._kept_bytes >= KEPT_BYTES:
            self._write_early(self._files.opened())

    def _write_early(self, files: RocksDBFiles) -> None:
        """Write the entries that RocksDB lacks, and empty the cache."""
        if self._unwritten:
            batch = files.batch()
            for key in self._unwritten:
                self._add(batch, key, self._stored_form(key, self._kept[key]))
            files.write(batch)
            self._unwritten.clear()
        self._kept.clear()
        self._kept_bytes = 0

    def _stored_form(self, key: bytes, entry: Entry | None) -> bytes | None:
        if entry is None:
            return None
        return timestamp_bytes(entry[1]) + self.stored_values.serialize(key, entry[0])

    def _add(self, batch: Any, key: bytes, data: bytes | None) -> None:
        if data is None:
            batch.delete(key)
        else:
            batch.put(key, data)
            self._kept_bytes += len(data)

    def _between(self, low: bytes | None, high: bytes | None) -> Iterator[tuple[Any, Any]]:
        files = self._files.opened()
        changed = sorted((key, self._kept[key]) for key in self._unwritten if in_bounds(key, low, high))
        return self._files.ending(self._objects(_merged(changed, files.items(low), high)))

    def _objects(
        self, merged: Iterator[tuple[bytes, bytes | Entry]]
    ) -> Generator[tuple[Any, Any], None, None]:
        deserialize_key = key_deserializer(self.spec)
        for key, found in merged:
            if isinstance(found, bytes):
                yield deserialize_key(key), self.stored_values.deserialize(key, found[VALUE_OFFSET:])
            else:
                yield deserialize_key(key), self._handed_out(found[0])


def _merged(
    changed: list[tuple[bytes, Entry | None]], stored: Iterator[tuple[bytes, bytes]], high: bytes | None
) -> Iterator[tuple[bytes, bytes | Entry]]:
    """Merge two sequences sorted by key: a changed entry replaces the stored one, and None deletes it.

    :param changed: entries within the bounds.
    :param stored: entries from the lower bound on.
    """
    position = 0
    for key, data in stored:
        if high is not None and key > high:
            break
        while position < len(changed) and changed[position][0] < key:
            changed_key, entry = changed[position]
            position += 1
            if entry is not None:
                yield changed_key, entry
        if position == len(changed) or changed[position][0] != key:
            yield key, data
    for changed_key, entry in changed[position:]:
        if entry is not None:
            yield changed_key, entry
