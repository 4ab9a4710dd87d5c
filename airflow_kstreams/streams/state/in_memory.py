"""The key-value store in memory.

Rule: an entry is kept as the object the application gave and becomes bytes only when its change is drained,
so that a key updated a thousand times between two commit points is serialized once. The other way round, a
restored entry stays the bytes it came as and becomes an object when it is first asked for, so that restoring
costs the same whatever the serde does.

Invariants: a key is either an object or restored bytes, never both. After a drain, folding every change
drained so far gives exactly the entries. Deleting an absent key is no change: the fold does not hold it
either, or its tombstone is waiting to be drained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from airflow_kstreams.streams.ports import Record
from airflow_kstreams.streams.state.keyed_access import Entry, KeyedAccess, in_bounds
from airflow_kstreams.streams.state.stored_form import VALUE_OFFSET, timestamp_bytes, timestamp_of
from airflow_kstreams.streams.topology.nodes import RecordContext, StoreSpec


class _Entries(dict[bytes, Entry]):
    """Entries as objects. Looking up a restored key moves it here; a C lookup otherwise.

    :param restored: stored form of entries.
    :param deserialize: of values.
    """

    __slots__ = ("_deserialize", "_restored")

    def __init__(self, restored: dict[bytes, bytes], deserialize: Callable[[bytes], Any]) -> None:
        super().__init__()
        self._restored = restored
        self._deserialize = deserialize

    def __missing__(self, key: bytes) -> Entry | None:
        stored = self._restored.get(key)
        if stored is None:
            return None
        entry = (self._deserialize(stored[VALUE_OFFSET:]), timestamp_of(stored))
        self[key] = entry
        del self._restored[key]
        return entry


class InMemoryKeyValueStore(KeyedAccess):
    """A dict with a memory of what changed; see :class:`KeyValueStore`.

    :param spec: name, serdes, and whether changes are logged; a store that is not logged does not collect
        them.
    :param record_context: gives the timestamp of the record being processed.
    """

    def __init__(self, spec: StoreSpec, record_context: RecordContext) -> None:
        super().__init__(spec, record_context)
        #: Restored key -> stored form of its entry.
        self._restored: dict[bytes, bytes] = {}
        self._entries = _Entries(self._restored, self._deserialized)
        #: Changed key -> timestamp of its deletion, which holds as long as the key is absent.
        self._changed: dict[bytes, int] = {}
        self.get_entry = self._entries.__getitem__
        self.put_entry = self._logged_put() if spec.logged else self._unlogged_put()

    def approximate_count(self) -> int:
        """Return the number of keys."""
        return len(self._entries) + len(self._restored)

    def drain_changes(self) -> Iterator[tuple[bytes, bytes | None, int]]:
        """Yield what changed since the last drain, once per key, in order of first change."""
        changed = list(self._changed.items())
        self._changed.clear()
        serialize = self._serialized
        get_entry = self._entries.get
        for key, deleted_ms in changed:
            entry = get_entry(key)
            if entry is None:
                yield key, None, deleted_ms
            else:
                yield key, serialize(entry[0]), entry[1]

    def restore(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        """Apply one changelog record."""
        self._entries.pop(key, None)
        self._restored.pop(key, None)
        if value is not None:
            self._entries[key] = (self._deserialized(value), timestamp_ms)

    def restore_batch(self, records: Sequence[Record]) -> int:
        """Apply changelog records in their order."""
        restored = self._restored
        if self._entries:
            for record in records:
                self._entries.pop(record.key() or b"", None)
        size_bytes = 0
        last_value = None
        for record in records:
            key = record.key() or b""
            value = record.value()
            if value is None:
                restored.pop(key, None)
                size_bytes += len(key)
            else:
                restored[key] = timestamp_bytes(record.timestamp()[1]) + value
                last_value = value
                size_bytes += len(key) + len(value)
        if last_value is not None:
            self._deserialized(last_value)  # a wrong format shows now
        return size_bytes

    def _between(self, low: bytes | None, high: bytes | None) -> Iterator[tuple[Any, Any]]:
        deserialize = self.spec.key_serde.deserialize
        entries = self._entries
        keys = [key for held in (entries, self._restored) for key in held if in_bounds(key, low, high)]
        snapshot = [(key, entries[key][0]) for key in sorted(keys)]
        return ((deserialize(key), value) for key, value in snapshot)

    def _logged_put(self) -> Callable[[bytes, Entry | None], None]:
        entries = self._entries
        restored = self._restored
        changed = self._changed
        context = self._context

        def put_entry(key: bytes, entry: Entry | None) -> None:
            if entry is not None:
                entries[key] = entry
                if restored:
                    restored.pop(key, None)
                changed[key] = 0
            elif entries.pop(key, None) is not None or restored.pop(key, None) is not None:
                changed[key] = context.timestamp_ms

        return put_entry

    def _unlogged_put(self) -> Callable[[bytes, Entry | None], None]:
        entries = self._entries

        def put_entry(key: bytes, entry: Entry | None) -> None:
            # Nothing was ever restored: there is no changelog.
            if entry is None:
                entries.pop(key, None)
            else:
                entries[key] = entry

        return put_entry
