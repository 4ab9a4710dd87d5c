"""Holds entries that expire in RocksDB, for more of them than memory holds.

Two rows per entry, both in the order of their bytes (``rocksdb_files.py``):

- ``a`` + times + key -> the stored form. Ids sort by age, and so do these rows: expiry, and a scan of all
  entries, reads one range.
- ``k`` + escaped key + times -> nothing: the ids of a key lie in one range.

Rule: entries that were read or changed lately are kept as objects, as in ``rocksdb.py``, until they are too
many or a drain writes them. Reading a range first writes the entries that RocksDB lacks. Expired entries are
passed on while the range is read, and if very many expire, their tombstones wait in RocksDB for the drain: so
memory is bounded whatever number expires at once.

Invariant: an entry that is not kept as an object, or is kept and not marked unwritten, is in RocksDB in its
present form; after a drain, folding every change drained so far gives exactly the entries. No entry is before
the lower bound; if the bound is exact, it is the id of the oldest entry.

Crash argument: see ``rocksdb.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from airflow_kstreams.streams.graph.services import CurrentRecord
from airflow_kstreams.streams.ports import Record
from airflow_kstreams.streams.state.stores.held_entries import Entry, EntryId, HeldForm
from airflow_kstreams.streams.state.stores.rocksdb.rocksdb_files import (
    BY_TIME,
    TIME_BYTES,
    ChangeQueue,
    KeptEntries,
    StoreFiles,
    behind,
    escaped,
    times_from_bytes,
    times_to_bytes,
    up_to,
)
from airflow_kstreams.streams.state.stores.store_serdes import VALUE_OFFSET, timestamp_bytes, timestamp_of

#: Entries kept as objects, and how many bytes they may have taken up when serialized: whichever is reached
#: first.
KEPT_ENTRIES = 20_000
KEPT_BYTES = 8 * 1024 * 1024
#: Tombstones in memory while entries expire.
_TOMBSTONES = 10_000

#: Version of the rows above.
_FORMAT = 1
_BY_AGE, _OF_KEY, _QUEUE = b"a", b"k", b"t"
#: Row of the mark that a kind of store writes beside its entries.
_MARK = b"m"
_DELETED_MS = struct.Struct(">q")


class EntriesInRocksDB:
    """:class:`HeldEntries` on disk, with the methods of a :class:`PersistentStore`.

    :param record_context: the record being processed, whose timestamp entries take.
    :param kept_entries: most entries to keep as objects.
    :param tombstones: most tombstones that memory may hold while entries expire.
    :raises ConfigError: the package ``rocksdict`` is not installed.
    """

    #: Closures and C functions, set in the constructor: operators call them for every record.
    get_entry: Callable[[EntryId], Entry | None]
    put_entry: Callable[[EntryId, Entry | None], None]

    def __init__(
        self,
        form: HeldForm,
        record_context: CurrentRecord,
        *,
        kept_entries: int = KEPT_ENTRIES,
        tombstones: int = _TOMBSTONES,
    ) -> None:
        self._form = form
        self._context = record_context
        self._files = StoreFiles(form.spec.name, BY_TIME)
        self._queue = ChangeQueue(self._files, _QUEUE)
        self._kept = KeptEntries[EntryId, Entry](self._load)
        self._kept_entries = kept_entries
        self._tombstones = tombstones
        #: Bytes read and written since the cache was last emptied: at least the size of the kept entries.
        self._kept_bytes = 0
        #: Ids whose kept entry RocksDB does not have yet.
        self._unwritten: dict[EntryId, None] = {}
        #: Changed id -> timestamp of its deletion, None if it is there.
        self._changed: dict[EntryId, int | None] = {}
        #: Changed ids that were absent at the last drain.
        self._born: set[EntryId] = set()
        #: No row of an entry is before it; None while there is none, or it is not known.
        self._bound: bytes | None = None
        #: Whether the bound is the row of the oldest entry, or there is none.
        self._exact = False
        self.get_entry = self._kept.__getitem__
        self.put_entry = self._put

    @property
    def store_format(self) -> str:
        """The files' format."""
        spec = self._form.spec
        return f"rocksdb-{spec.type}-{_FORMAT}/{spec.key_serde.id}/{spec.value_serde.id}"

    def open(self, folder: Path, mark: bytes | None = None) -> None:
        """Keep the files in a folder, whose entries become the store's."""
        self._files.open(folder, mark)
        self._bound, self._exact = None, False

    def close(self, mark: bytes | None = None) -> None:
        """Close the files, which then durably hold all drained and restored entries."""
        self._files.close(mark)

    def count(self) -> int:
        """Return the approximate number of entries: one that changed several times may count as often."""
        self._write()
        return max(0, self._files.opened().estimated_count() - len(self._queue)) // 2

    def entries(self) -> Iterator[tuple[EntryId, Entry]]:
        """Iterate over all present entries, oldest first."""
        self._write()
        return self._files.ending(self._objects(self._files.between(_BY_AGE, behind(_BY_AGE))))

    def expire(self, latest_ms: int, leave: Callable[[EntryId, Entry], None]) -> None:
        """Delete expired entries, oldest first, and pass each to ``leave``."""
        end = up_to(_BY_AGE, latest_ms)
        if self._bound is None:
            self.oldest_ms()
        first = self._bound
        if first is None or first >= end:
            return
        self._write()
        for number, (row, _) in enumerate(self._files.between(first, end), start=1):
            entry_id = self._id_of(row)
            # The rows are as of the beginning; ``leave`` may have changed or deleted this entry since.
            entry = self.get_entry(entry_id)
            if entry is None:
                continue
            self.put_entry(entry_id, None)
            if number % self._tombstones == 0:
                self._put_tombstones_away()
            leave(entry_id, entry)
        if self._bound == first:
            self._bound, self._exact = end, False

    def oldest_ms(self) -> int | None:
        """Return the moment the oldest entry ages from."""
        if not self._exact:
            self._write()
            rows = self._files.between(self._bound or _BY_AGE, behind(_BY_AGE))
            self._bound, self._exact = next((row for row, _ in rows), None), True
        return None if self._bound is None else times_from_bytes(self._bound, 1, 1)[0]

    def ids_of(self, key: bytes, first: EntryId = (), last_ms: int | None = None) -> list[EntryId]:
        """Return the ids of a serialized key, oldest first."""
        self._write()
        prefix = _OF_KEY + escaped(key)
        begin = up_to(prefix, first[0] - 1) if first else prefix
        end = behind(prefix) if last_ms is None else up_to(prefix, last_ms)
        times = self._form.times
        return [
            (*times_from_bytes(row, len(prefix), times), key) for row, _ in self._files.between(begin, end)
        ]

    def first_id(self, key: bytes, first_ms: int) -> EntryId | None:
        """Return the oldest id of a serialized key whose first part is ``first_ms`` or later."""
        self._write()
        prefix = _OF_KEY + escaped(key)
        for row, _ in self._files.between(up_to(prefix, first_ms - 1), behind(prefix)):
            return *times_from_bytes(row, len(prefix), self._form.times), key
        return None

    def read_mark(self) -> bytes | None:
        """Return the store's mark, which lies beside its entries, None if there is none."""
        return self._files.read(_MARK)

    def write_mark(self, data: bytes) -> None:
        """Write the store's mark beside the entries."""
        files = self._files.opened()
        batch = files.batch()
        batch.put(_MARK, data)
        files.write(batch)

    def undrained_count(self) -> int:
        """Return the number of entries changed since the last drain."""
        return len(self._changed) + len(self._queue)

    def undrained_at_least(self) -> int:
        """Return the number of changes that the next drain gives at least: those in the queue may be older
        changes of the same entries.
        """
        return len(self._changed)

    def drain_changes(self) -> Iterator[tuple[bytes, bytes | None, int]]:
        """Yield the changes since the last drain, once per entry, in order of first change, and write them to
        RocksDB. Tombstones that RocksDB holds come last.
        """
        files = self._files.opened()
        batch = files.batch()
        changed = dict(self._changed)
        self._changed.clear()
        self._born.clear()
        changelog_key = self._form.changelog_key
        for entry_id, deleted_ms in changed.items():
            if deleted_ms is not None:
                yield changelog_key(entry_id), None, deleted_ms
                continue
            if entry_id in self._unwritten:
                data = self._add(batch, entry_id)
                del self._unwritten[entry_id]
            else:
                data = self._files.read(_age_row(entry_id))
            if data is not None:
                yield changelog_key(entry_id), data[VALUE_OFFSET:], timestamp_of(data)
        files.write(batch)
        self._write()
        for change in self._queue.take():
            key = change[_DELETED_MS.size :]
            # An id that was put again has been yielded with its present entry.
            if self._form.entry_id(key) not in changed:
                yield key, None, _DELETED_MS.unpack_from(change)[0]
        self._empty_if_full()

    def restore(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        """Apply one changelog record."""
        entry_id = self._form.restored_id(key)
        if value is not None:
            self._form.values.deserialize(entry_id[-1], value)
        self._empty_cache()
        files = self._files.opened()
        batch = files.batch()
        self._restore(batch, entry_id, None if value is None else timestamp_bytes(timestamp_ms) + value)
        files.write(batch)

    def restore_batch(self, records: Sequence[Record]) -> int:
        """Apply changelog records in their order, and return their size in bytes."""
        self._empty_cache()
        files = self._files.opened()
        batch = files.batch()
        size_bytes = 0
        last: tuple[bytes, bytes] | None = None
        for record in records:
            key, value = record.key() or b"", record.value()
            entry_id = self._form.restored_id(key)
            size_bytes += len(key)
            if value is None:
                self._restore(batch, entry_id, None)
            else:
                self._restore(batch, entry_id, timestamp_bytes(record.timestamp()[1]) + value)
                last = (entry_id[-1], value)
                size_bytes += len(value)
        if last is not None:
            self._form.values.deserialize(*last)  # raises if the format is wrong
        files.write(batch)
        return size_bytes

    def _put(self, entry_id: EntryId, entry: Entry | None) -> None:
        kept = self._kept
        present = kept[entry_id] is not None
        if entry is None and not present:
            return
        if entry is not None and not present:
            self._appear(_age_row(entry_id), entry_id[0])
        elif entry is None and self._exact and self._bound == _age_row(entry_id):
            self._exact = False
        kept[entry_id] = entry
        self._unwritten[entry_id] = None
        if self._form.spec.logged:
            self._note(entry_id, entry, present=present)
        if len(kept) > self._kept_entries:
            self._empty_cache()

    def _note(self, entry_id: EntryId, entry: Entry | None, *, present: bool) -> None:
        """Remember a change until the next drain."""
        changed, born = self._changed, self._born
        if entry is not None:
            if not present and entry_id not in changed:
                born.add(entry_id)
            changed[entry_id] = None
        elif entry_id in born:
            born.discard(entry_id)
            del changed[entry_id]
        else:
            changed[entry_id] = self._context.timestamp_ms

    def _appear(self, row: bytes, aging_ms: int) -> None:
        """Move the bound in front of a new entry, and announce the entry if it is before all others."""
        if self._bound is None:
            self.oldest_ms()
        if self._bound is None or row < self._bound:
            self._bound, self._exact = row, True
            self._form.on_earliest(aging_ms)

    def _put_tombstones_away(self) -> None:
        """Move the tombstones of deleted entries to RocksDB, and empty the cache."""
        self._empty_cache()
        gone = {entry_id: ms for entry_id, ms in self._changed.items() if ms is not None}
        files = self._files.opened()
        batch = files.batch()
        self._queue.add(
            batch,
            (_DELETED_MS.pack(ms) + self._form.changelog_key(entry_id) for entry_id, ms in gone.items()),
        )
        files.write(batch)
        for entry_id in gone:
            del self._changed[entry_id]

    def _load(self, entry_id: EntryId) -> Entry | None:
        """Read an entry that is not kept, and keep it."""
        self._empty_if_full()
        data = self._files.read(_age_row(entry_id))
        entry: Entry | None = None
        if data is not None:
            self._kept_bytes += len(data)
            entry = self._object(entry_id, data)
        self._kept[entry_id] = entry
        return entry

    def _object(self, entry_id: EntryId, data: bytes) -> Entry:
        return self._form.values.deserialize(entry_id[-1], data[VALUE_OFFSET:]), timestamp_of(data)

    def _objects(self, rows: Iterator[tuple[bytes, bytes]]) -> Generator[tuple[EntryId, Entry], None, None]:
        for row, data in rows:
            entry_id = self._id_of(row)
            yield entry_id, self._object(entry_id, data)

    def _id_of(self, row: bytes) -> EntryId:
        times = self._form.times
        return (*times_from_bytes(row, 1, times), row[1 + times * TIME_BYTES :])

    def _empty_if_full(self) -> None:
        if len(self._kept) >= self._kept_entries or self._kept_bytes >= KEPT_BYTES:
            self._empty_cache()

    def _empty_cache(self) -> None:
        """Write the entries that RocksDB lacks, and empty the cache."""
        self._write()
        self._kept.clear()
        self._kept_bytes = 0

    def _write(self) -> None:
        """Write the entries that RocksDB lacks."""
        if self._unwritten:
            files = self._files.opened()
            batch = files.batch()
            for entry_id in self._unwritten:
                self._add(batch, entry_id)
            files.write(batch)
            self._unwritten.clear()

    def _add(self, batch: Any, entry_id: EntryId) -> bytes | None:
        """Add a kept entry to a batch, and return its stored form."""
        entry = self._kept[entry_id]
        data = None
        if entry is not None:
            data = timestamp_bytes(entry[1]) + self._form.values.serialize(entry_id[-1], entry[0])
            self._kept_bytes += len(data)
        _add_rows(batch, entry_id, data)
        return data

    def _restore(self, batch: Any, entry_id: EntryId, data: bytes | None) -> None:
        if data is None or self._bound is None:
            self._exact = False
        else:
            self._bound = min(self._bound, _age_row(entry_id))
        _add_rows(batch, entry_id, data)


def _age_row(entry_id: EntryId) -> bytes:
    key: bytes = entry_id[-1]
    return _BY_AGE + times_to_bytes(entry_id[:-1]) + key


def _add_rows(batch: Any, entry_id: EntryId, data: bytes | None) -> None:
    """Add both rows of an entry to a batch."""
    by_age = _age_row(entry_id)
    of_key = _OF_KEY + escaped(entry_id[-1]) + times_to_bytes(entry_id[:-1])
    if data is None:
        batch.delete(by_age)
        batch.delete(of_key)
    else:
        batch.put(by_age, data)
        batch.put(of_key, b"")
