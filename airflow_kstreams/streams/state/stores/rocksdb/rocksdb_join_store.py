"""Stores one side of a windowed join in RocksDB, for more elements than memory holds. Rules, order and
changelog are those of ``join_store.py``.

Rows, all in the order of their bytes (``rocksdb_files.py``):

- ``e`` + escaped key + t + arrival number -> one byte, 1 if the element waits, and the value: the elements of
  a key from one time to another are one range.
- ``p`` + t + arrival number + key -> nothing: the elements to remove are one range.
- ``w`` + t + arrival number + key -> nothing: the waiting elements, in the order in which their windows
  close.
- ``n`` -> the next arrival number.

Rule: every change is written at once, to RocksDB's write buffer. Memory holds only the identity of elements
changed since the last drain; very many (all that are removed when stream time leaps) lie in RocksDB, too.

Crash argument: see ``rocksdb.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from airflow_kstreams.streams.graph.store_specs import JoinStoreSpec
from airflow_kstreams.streams.ports import Record
from airflow_kstreams.streams.state.stores.join_store import (
    POSITION,
    SHORTEST_PERIOD_MS,
    WAITS,
    WAITS_NOT,
    Element,
)
from airflow_kstreams.streams.state.stores.rocksdb.rocksdb_files import (
    BY_TIME,
    TIME_BYTES,
    ChangeQueue,
    StoreFiles,
    behind,
    escaped,
    times_from_bytes,
    times_to_bytes,
    unescaped,
    up_to,
)
from airflow_kstreams.streams.state.stores.store_serdes import (
    StoredValues,
    key_bytes_of,
    key_deserializer,
    key_serializer,
)
from airflow_kstreams.streams.state.stores.value_copies import ValueCopies

#: Changes in memory, while many elements are removed or wait no longer.
_CHANGES = 10_000

#: Version of the rows above.
_FORMAT = 1
_ELEMENT, _BY_TIME, _WAITING, _NEXT, _QUEUE = b"e", b"p", b"w", b"n", b"t"
_NUMBER = struct.Struct(">Q")
_AT_BYTES = TIME_BYTES + _NUMBER.size


class RocksDBJoinStore:
    """A :class:`JoinStore` on disk, which is also a :class:`PersistentStore`.

    :param spec: the store's spec.
    :param changes: most changes that memory may hold.
    :ivar stream_time: function that gives the join's stream time, epoch milliseconds; -1 before the first
        record.
    :ivar late_time: function that gives the time by which elements of the store's side are late or not.
    :ivar period_ms: milliseconds of stream time between two removals of :meth:`remove_expired`.
    :raises ConfigError: the package ``rocksdict`` is not installed.
    """

    def __init__(self, spec: JoinStoreSpec, *, changes: int = _CHANGES) -> None:
        self.spec = spec
        self.name = spec.name
        self.period_ms = max(SHORTEST_PERIOD_MS, spec.retention_ms // 8)
        self.stream_time: Callable[[], int] = lambda: -1
        self.late_time = self.stream_time
        self.stored_values = StoredValues(spec, joins=True)
        self.serialize_key = key_serializer(spec)
        self.deserialize_key = key_deserializer(spec)
        #: Values are read from bytes, so nothing else holds them.
        self.copies: ValueCopies | None = None
        self._wake: Callable[[int], None] = lambda time_ms: None
        self._retention_ms = spec.retention_ms
        self._logged = spec.logged
        self._files = StoreFiles(spec.name, BY_TIME)
        self._queue = ChangeQueue(self._files, _QUEUE)
        self._changes = changes
        #: Arrival number of a changed element -> its changelog key.
        self._changed: dict[int, bytes] = {}
        self._next = 0
        #: Elements with smaller arrival numbers have been drained.
        self._logged_below = 0
        #: Lower bound of the rows of waiting elements; None if none waits.
        self._waits_from: bytes | None = None
        #: Lower bound of the rows by time that are not deleted: RocksDB would pass deleted ones one by one.
        self._kept_from = _BY_TIME

    @property
    def store_format(self) -> str:
        """The files' format."""
        return f"rocksdb-join-{_FORMAT}/{self.spec.key_serde.id}/{self.spec.value_serde.id}"

    def open(self, folder: Path, mark: bytes | None = None) -> None:
        """Keep the files in a folder, whose elements become the store's."""
        self._files.open(folder, mark)
        number = self._files.read(_NEXT)
        self._next = self._logged_below = 0 if number is None else _NUMBER.unpack(number)[0]
        self._waits_from = _WAITING
        self._kept_from = _BY_TIME

    def close(self, mark: bytes | None = None) -> None:
        """Close the files, which then durably hold all drained and restored elements."""
        self._files.close(mark)

    def follow(
        self, stream_time: Callable[[], int], late_time: Callable[[], int], wake: Callable[[int], None]
    ) -> None:
        """Give the store the clock of its join, while the join is bound.

        :param stream_time: function that gives the join's stream time.
        :param late_time: function that gives the time by which elements of the store's side are late or not.
        :param wake: function called with the time of an element that begins to wait and is the earliest of
            the waiting ones.
        """
        self.stream_time = stream_time
        self.late_time = late_time
        self._wake = wake

    def put(self, key: bytes, time_ms: int, value: Any, waits: bool) -> None:
        """Add an element.

        :param key: serialized key.
        :param time_ms: time of the element, epoch milliseconds.
        :param value: its value, not None.
        :param waits: True if it waits for a partner.
        """
        number = self._next
        self._next = number + 1
        data = self.stored_values.serialize(key, value)
        files = self._files.opened()
        batch = files.batch()
        self._add(batch, key, time_ms, number, (WAITS if waits else WAITS_NOT) + data)
        files.write(batch)
        self._note(key, time_ms, number)
        if waits:
            row = _time_row(_WAITING, key, time_ms, number)
            if self._waits_from is None or row < self._waits_from:
                self._waits_from = row
                self._wake(time_ms)

    def find(self, key: bytes, first_ms: int, last_ms: int) -> list[Element]:
        """Return the elements of a key from ``first_ms`` to ``last_ms``, both included, by (t, arrival).

        :param key: serialized key.
        :param first_ms: first time, epoch milliseconds, within retention.
        :param last_ms: last time, epoch milliseconds.
        """
        prefix = _ELEMENT + escaped(key)
        first = up_to(prefix, first_ms - 1)
        at = len(prefix)
        deserialize = self.stored_values.deserialize
        return [
            (*_position(row, at), deserialize(key, data[1:]))
            for row, data in self._files.between(first, up_to(prefix, last_ms))
        ]

    def match(self, key: bytes, elements: list[Element]) -> None:
        """Mark elements of a key, found by :meth:`find`, as no longer waiting."""
        if self._waits_from is None:
            return
        for time_ms, number, _ in elements:
            self._end_wait(key, time_ms, number)

    def first_waiting_ms(self) -> int | None:
        """Return the time of the first element that waits, None if none does."""
        if self._waits_from is None:
            return None
        rows = self._files.between(self._waits_from, behind(_WAITING))
        self._waits_from = next((row for row, _ in rows), None)
        return None if self._waits_from is None else times_from_bytes(self._waits_from, 1, 1)[0]

    def release(self, before_ms: int) -> Iterator[tuple[bytes, Element]]:
        """Iterate over the waiting elements before a moment, with their serialized keys, by (t, arrival); an
        element waits no longer once it is yielded.
        """
        first = self._waits_from
        if first is None:
            return
        reached = first
        try:
            for row, _ in self._files.between(first, up_to(_WAITING, before_ms - 1)):
                time_ms, number = _position(row, 1)
                key = row[1 + _AT_BYTES :]
                data = self._end_wait(key, time_ms, number)
                reached = row
                if data is not None:
                    yield key, (time_ms, number, self.stored_values.deserialize(key, data[1:]))
        finally:
            if self._waits_from == first:
                self._waits_from = reached

    def remove_expired(self, now_ms: int) -> None:
        """Remove the periods whose elements are all beyond retention."""
        limit_ms = (now_ms - self._retention_ms) // self.period_ms * self.period_ms
        files = self._files.opened()
        batch, left = files.batch(), self._changes
        kept_from = up_to(_BY_TIME, limit_ms - 1)
        if kept_from <= self._kept_from:
            return
        for row, _ in self._files.between(self._kept_from, kept_from):
            time_ms, number = _position(row, 1)
            key = row[1 + _AT_BYTES :]
            _delete(batch, key, time_ms, number)
            if number >= self._logged_below:
                self._changed.pop(number, None)
            else:
                self._note(key, time_ms, number)
            left -= 1
            if not left:
                files.write(batch)
                batch, left = files.batch(), self._changes
        files.write(batch)
        self._kept_from = kept_from

    def get(self, key: Any) -> list[tuple[int, Any]]:
        """Return (time, value) of each element of a key, by (t, arrival).

        :raises StateStoreError: the key is None.
        """
        found = self.find(key_bytes_of(self, key), self.stream_time() - self._retention_ms, 2**63 - 1)
        return [(time_ms, value) for time_ms, _, value in found]

    def range(self, first: Any, last: Any) -> Iterator[tuple[Any, list[tuple[int, Any]]]]:
        """Iterate over (key, its elements as by :meth:`get`) from first to last, both included, in the order
        of serialized keys, as of the call; None leaves an end open.
        """
        low = _ELEMENT if first is None else _ELEMENT + escaped(key_bytes_of(self, first))
        high = _ELEMENT if last is None else _ELEMENT + escaped(key_bytes_of(self, last))
        oldest_ms = self.stream_time() - self._retention_ms
        return self._files.ending(self._by_key(self._files.between(low, behind(high)), oldest_ms))

    def all(self) -> Iterator[tuple[Any, list[tuple[int, Any]]]]:
        """Iterate over (key, its elements as by :meth:`get`), in the order of keys, as of the call."""
        return self.range(None, None)

    def approximate_count(self) -> int:
        """Return the approximate number of elements, some of which may be beyond retention."""
        return max(0, self._files.opened().estimated_count() - len(self._queue)) // 2

    def undrained_count(self) -> int:
        """Return the number of entries changed since the last drain."""
        return len(self._changed) + len(self._queue)

    def undrained_at_least(self) -> int:
        """Return the number of changes that the next drain gives at least: those in the queue may be older
        changes of the same elements.
        """
        return len(self._changed)

    def drain_changes(self) -> Iterator[tuple[bytes, bytes | None, int]]:
        """Yield changelog key, value or None, and timestamp, once per element changed since the last drain,
        in order of first change.
        """
        files = self._files.opened()
        batch = files.batch()
        batch.put(_NEXT, _NUMBER.pack(self._next))
        files.write(batch)
        logged_below, self._logged_below = self._logged_below, self._next
        changed = self._changed.copy()
        self._changed.clear()
        for changelog_key in self._queue.take():
            number = POSITION.unpack(changelog_key[-POSITION.size :])[1]
            if number not in changed:
                change = self._change(changelog_key)
                # An element that was put and removed between two drains is no change.
                if change[1] is not None or number < logged_below:
                    yield change
        for changelog_key in changed.values():
            yield self._change(changelog_key)

    def restore(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        """Apply one changelog record.

        :raises StateStoreError: the record is not of the store's format.
        """
        files = self._files.opened()
        batch = files.batch()
        self._restore(batch, key, value)
        if value is not None:
            self.stored_values.deserialize(key[: -POSITION.size], value[1:])
        files.write(batch)

    def restore_batch(self, records: Sequence[Record]) -> int:
        """Apply changelog records in their order, and return their size in bytes."""
        files = self._files.opened()
        batch = files.batch()
        size_bytes = 0
        last: tuple[bytes, bytes] | None = None
        for record in records:
            key, value = record.key() or b"", record.value()
            self._restore(batch, key, value)
            size_bytes += len(key) + len(value or b"")
            if value is not None:
                last = (key[: -POSITION.size], value[1:])
        if last is not None:
            self.stored_values.deserialize(*last)  # raises if the format is wrong
        batch.put(_NEXT, _NUMBER.pack(self._next))
        files.write(batch)
        return size_bytes

    def _note(self, key: bytes, time_ms: int, number: int) -> None:
        """Remember a change until the next drain."""
        if not self._logged:
            return
        self._changed[number] = key + POSITION.pack(time_ms, number)
        if len(self._changed) >= self._changes:
            files = self._files.opened()
            batch = files.batch()
            self._queue.add(batch, self._changed.values())
            files.write(batch)
            self._changed.clear()

    def _change(self, changelog_key: bytes) -> tuple[bytes, bytes | None, int]:
        time_ms, number = POSITION.unpack(changelog_key[-POSITION.size :])
        key = changelog_key[: -POSITION.size]
        return changelog_key, self._files.read(_element_row(key, time_ms, number)), time_ms

    def _end_wait(self, key: bytes, time_ms: int, number: int) -> bytes | None:
        """End an element's wait.

        :return: the data of its row; None if it does not wait.
        """
        row = _element_row(key, time_ms, number)
        data = self._files.read(row)
        if data is None or data[:1] != WAITS:
            return None
        files = self._files.opened()
        batch = files.batch()
        batch.put(row, WAITS_NOT + data[1:])
        batch.delete(_time_row(_WAITING, key, time_ms, number))
        files.write(batch)
        self._note(key, time_ms, number)
        return data

    def _restore(self, batch: Any, changelog_key: bytes, value: bytes | None) -> None:
        try:
            time_ms, number = POSITION.unpack(changelog_key[-POSITION.size :])
            waits = value is not None and value[0] == 1
        except Exception as error:
            raise self.stored_values.error(changelog_key, "a changelog record that is not", error) from error
        key = changelog_key[: -POSITION.size]
        if number >= self._next:
            self._next = self._logged_below = number + 1
        if value is None:
            _delete(batch, key, time_ms, number)
            return
        self._add(batch, key, time_ms, number, value)
        if waits:
            row = _time_row(_WAITING, key, time_ms, number)
            self._waits_from = row if self._waits_from is None else min(row, self._waits_from)
        else:
            batch.delete(_time_row(_WAITING, key, time_ms, number))

    def _add(self, batch: Any, key: bytes, time_ms: int, number: int, data: bytes) -> None:
        batch.put(_element_row(key, time_ms, number), data)
        row = _time_row(_BY_TIME, key, time_ms, number)
        batch.put(row, b"")
        self._kept_from = min(row, self._kept_from)
        if data[:1] == WAITS:
            batch.put(_time_row(_WAITING, key, time_ms, number), b"")

    def _by_key(
        self, rows: Iterator[tuple[bytes, bytes]], oldest_ms: int
    ) -> Generator[tuple[Any, list[tuple[int, Any]]], None, None]:
        for prefix, of_key in groupby(rows, key=lambda row: row[0][:-_AT_BYTES]):
            key = unescaped(prefix[1:])
            kept = [
                (time_ms, self.stored_values.deserialize(key, data[1:]))
                for row, data in of_key
                if (time_ms := _position(row, len(prefix))[0]) >= oldest_ms
            ]
            if kept:
                yield self.deserialize_key(key), kept


def _element_row(key: bytes, time_ms: int, number: int) -> bytes:
    return _ELEMENT + escaped(key) + times_to_bytes((time_ms,)) + _NUMBER.pack(number)


def _time_row(prefix: bytes, key: bytes, time_ms: int, number: int) -> bytes:
    return prefix + times_to_bytes((time_ms,)) + _NUMBER.pack(number) + key


def _position(row: bytes, offset: int) -> tuple[int, int]:
    """Return time and arrival number.

    :param row: bytes of the row's key.
    :param offset: offset of the time in these bytes.
    """
    return times_from_bytes(row, offset, 1)[0], _NUMBER.unpack_from(row, offset + TIME_BYTES)[0]


def _delete(batch: Any, key: bytes, time_ms: int, number: int) -> None:
    """Add the deletion of all rows of an element to a batch."""
    batch.delete(_element_row(key, time_ms, number))
    batch.delete(_time_row(_BY_TIME, key, time_ms, number))
    batch.delete(_time_row(_WAITING, key, time_ms, number))
