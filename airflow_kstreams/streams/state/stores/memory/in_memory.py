"""Implements the key-value store in memory.

Rule: an entry is kept as the application's object and becomes bytes only when its change is drained, so that
a key updated a thousand times between two commit points is serialized once. A restored entry stays bytes and
becomes an object when it is first read, so that restoring costs the same with every serde.

Entries are cells that are changed in place (:class:`Cell`): an update costs one lookup, and no object that
Python's collector would count. Callers get copies of entries; only folds use cells, see
``kstream/operators/fold_code.py``.

Invariants: a key is either a cell or restored bytes, never both. Between two drains a key has the same cell,
even when it is deleted and put again; an unused cell has the value None. After a drain, folding every change
drained so far gives exactly the entries. Deleting an absent key is no change: the fold does not hold it
either, or its tombstone waits for the drain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.graph.services import CurrentRecord
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.ports import Record
from airflow_kstreams.streams.state.stores.keyed_access import Entry, KeyedAccess, in_bounds
from airflow_kstreams.streams.state.stores.store_serdes import (
    VALUE_OFFSET,
    key_deserializer,
    timestamp_bytes,
    timestamp_of,
)


class Cell(msgspec.Struct, gc=False):
    """An entry.

    :ivar value: the entry's value; None when the entry is deleted.
    :ivar timestamp_ms: timestamp of the entry, or of its deletion, epoch milliseconds.
    :ivar noted: True if it is among the changes of the store and of the fold that changed it; reset when
        either empties its changes.
    """

    value: Any
    timestamp_ms: int
    noted: bool = False


class InMemoryKeyValueStore(KeyedAccess):
    """A :class:`KeyValueStore` in a dict that also collects changes.

    :param spec: the store's spec; a store that is not logged does not collect changes.
    :param record_context: the record being processed, whose timestamp entries take.
    """

    def __init__(self, spec: StoreSpec, record_context: CurrentRecord) -> None:
        super().__init__(spec, record_context)
        #: Key -> its cell.
        self.cells: dict[bytes, Cell] = {}
        #: Restored key -> stored form of its entry.
        self.restored: dict[bytes, bytes] = {}
        #: Changed key -> its cell.
        self.changed: dict[bytes, Cell] = {}
        self._logged = spec.logged
        self.get_entry = self._getter()
        self.put_entry = self._putter()

    def approximate_count(self) -> int:
        """Return the number of keys."""
        return len(self.cells) + len(self.restored)

    def undrained_count(self) -> int:
        """Return the number of entries changed since the last drain."""
        return len(self.changed)

    def undrained_at_least(self) -> int:
        """Return the same: memory counts each change once."""
        return len(self.changed)

    def drain_changes(self) -> Iterator[tuple[bytes, bytes | None, int]]:
        """Yield the changes since the last drain, once per key, in order of first change."""
        changed = self.changed.copy()
        self.changed.clear()
        serialize = self.spec.value_serde.serialize
        values, kept = self.stored_values, self.stored_values.kept
        for key, cell in changed.items():
            cell.noted = False
            value = cell.value
            if value is None:
                yield key, None, cell.timestamp_ms
                continue
            try:
                data = serialize(value)
            except KStreamsError:
                raise
            except Exception:
                data = values.serialize(key, value)  # raises the error that explains it
            else:
                if type(value) not in kept:
                    values.check(key, value, data)
            yield key, data, cell.timestamp_ms

    def load(self, key: bytes) -> Cell | None:
        """Make a cell of a restored entry; return None if there is none."""
        stored = self.restored.get(key)
        if stored is None:
            return None
        cell = self.cells[key] = Cell(
            self.stored_values.deserialize(key, stored[VALUE_OFFSET:]), timestamp_of(stored)
        )
        del self.restored[key]
        return cell

    def add(self, key: bytes, value: Any, timestamp_ms: int) -> Cell:
        """Set the entry of a key that has none."""
        cell = self.changed.get(key)
        if cell is None:
            cell = Cell(value, timestamp_ms)
            if self._logged:
                self.changed[key] = cell
        else:
            cell.value, cell.timestamp_ms = value, timestamp_ms
        self.cells[key] = cell
        return cell

    def restore(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        """Apply one changelog record."""
        self.cells.pop(key, None)
        self.restored.pop(key, None)
        if value is not None:
            self.cells[key] = Cell(self.stored_values.deserialize(key, value), timestamp_ms)

    def restore_batch(self, records: Sequence[Record]) -> int:
        """Apply changelog records in their order."""
        restored = self.restored
        if self.cells:
            for record in records:
                self.cells.pop(record.key() or b"", None)
        size_bytes = 0
        last: tuple[bytes, bytes] | None = None
        for record in records:
            key = record.key() or b""
            value = record.value()
            if value is None:
                restored.pop(key, None)
                size_bytes += len(key)
            else:
                restored[key] = timestamp_bytes(record.timestamp()[1]) + value
                last = (key, value)
                size_bytes += len(key) + len(value)
        if last is not None:
            self.stored_values.deserialize(*last)  # raises if the format is wrong
        return size_bytes

    def _between(self, low: bytes | None, high: bytes | None) -> Iterator[tuple[Any, Any]]:
        deserialize = key_deserializer(self.spec)
        cells = self.cells
        keys = [key for held in (cells, self.restored) for key in held if in_bounds(key, low, high)]
        found = [(key, cells.get(key) or self.load(key)) for key in sorted(keys)]
        snapshot = [(key, cell.value) for key, cell in found if cell is not None]
        copied = self._handed_out
        return ((deserialize(key), copied(value)) for key, value in snapshot)

    def _getter(self) -> Callable[[bytes], Entry | None]:
        find, restored, load = self.cells.get, self.restored, self.load

        def get_entry(key: bytes) -> Entry | None:
            cell = find(key)
            if cell is None:
                if not restored:
                    return None
                cell = load(key)
                if cell is None:
                    return None
            return cell.value, cell.timestamp_ms

        return get_entry

    def _putter(self) -> Callable[[bytes, Entry | None], None]:
        cells, restored, changed = self.cells, self.restored, self.changed
        add, context, logged = self.add, self._context, self._logged

        def put_entry(key: bytes, entry: Entry | None) -> None:
            if entry is not None:
                cell = cells.get(key)
                if cell is None:
                    if restored:
                        restored.pop(key, None)
                    add(key, entry[0], entry[1])
                    return
                cell.value, cell.timestamp_ms = entry
            else:
                cell = cells.pop(key, None)
                if cell is None:
                    if restored.pop(key, None) is None:
                        return
                    cell = Cell(None, 0)
                cell.value, cell.timestamp_ms, cell.noted = None, context.timestamp_ms, False
            if logged:
                changed[key] = cell

        return put_entry
