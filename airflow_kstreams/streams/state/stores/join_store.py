"""Stores one side of a windowed join: the elements of a stream, for the elements of the other.

Rule: an element is a value with a key, a time ``t`` and an arrival number; elements of a key are in the order
(t, arrival), and equal ones are all kept. An element is kept while ``t + retention >= stream time``. The join
looks for no others, and no other read returns one, whether or not it was removed from memory yet: so results
depend on the rule and never on the time of a removal.

Elements are removed a period at a time, once all of it is beyond retention: periods are an eighth of the
retention, so at most that much more is held, and each element is touched once. Within a period they are
removed in the order (t, arrival).

An element may *wait* for a partner (outer and left joins). Waiting elements are found by time, and the
changelog holds the mark with the element.

Changelog: key = the key's bytes + t (8 bytes, signed) + arrival number (8 bytes), both big-endian; value =
one byte, 1 if the element waits, else 0, + the value's bytes; a removed element is a tombstone.

Invariant: after a drain, folding every change drained so far gives exactly the elements held. An element that
came and went between two drains is no change.

Crash argument: changes are drained into the transaction that commits the offsets of the elements' records and
their results, so a restored store holds just the elements of committed records, each waiting exactly if the
committed results lack its own. Arrival numbers go on behind the largest one restored: among the elements held
their order stays the same, and no two elements of one changelog have the same number.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Any

from airflow_kstreams.streams.graph.store_specs import JoinStoreSpec
from airflow_kstreams.streams.ports import Record
from airflow_kstreams.streams.state.stores.state_store import restore_each
from airflow_kstreams.streams.state.stores.store_serdes import (
    StoredValues,
    key_bytes_of,
    key_deserializer,
    key_serializer,
)
from airflow_kstreams.streams.state.stores.value_copies import copies_of, same

#: (t, arrival number, value); the value None marks a removed element.
Element = tuple[int, int, Any]

#: The bytes behind the key in a changelog key.
POSITION = struct.Struct(">qQ")
_POSITION_BYTES = POSITION.size
#: First byte of a changelog value.
WAITS = b"\x01"
WAITS_NOT = b"\x00"

#: A period is at least a second, so that short windows do not remove elements one by one.
SHORTEST_PERIOD_MS = 1_000


class JoinStore:
    """The elements of one side; see the module for the rule.

    :param spec: the store's spec.
    :ivar stream_time: function that gives the join's stream time, epoch milliseconds; -1 before the first
        record.
    :ivar late_time: function that gives the time by which elements of the store's side are late or not.
    :ivar period_ms: milliseconds of stream time between two removals of :meth:`remove_expired`.
    """

    def __init__(self, spec: JoinStoreSpec) -> None:
        self.spec = spec
        self.name = spec.name
        self.period_ms = max(SHORTEST_PERIOD_MS, spec.retention_ms // 8)
        self.stream_time = self.late_time = _no_time
        self._wake: Callable[[int], None] = _wake_no_join
        self._retention_ms = spec.retention_ms
        self._logged = spec.logged
        self._position = POSITION.unpack_from
        self.stored_values = StoredValues(spec, joins=True)
        self.serialize_key = key_serializer(spec)
        self.deserialize_key = key_deserializer(spec)
        #: Copy values; None if these never change.
        self.copies = copies_of(spec)
        self._elements: dict[bytes, list[Element]] = {}
        #: Number of a period of time -> keys with elements in it.
        self._periods: dict[int, set[bytes]] = {}
        #: Arrival number -> key and element that waits.
        self._waiting: dict[int, tuple[bytes, Element]] = {}
        #: Heap of (t, arrival number) of the waiting elements, and of some whose wait is over.
        self._queue: list[tuple[int, int]] = []
        self._changed: dict[int, tuple[bytes, Element]] = {}
        self._next = 0
        #: Elements with smaller arrival numbers have been drained.
        self._logged_below = 0

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
        element = (time_ms, number, value)
        elements = self._elements.get(key)
        if elements is None:
            self._elements[key] = [element]
        elif elements[-1][0] <= time_ms:
            elements.append(element)
        else:
            insort(elements, element)
        self._remember(key, time_ms)
        if self._logged:
            self._changed[number] = (key, element)
        if waits:
            self._waiting[number] = (key, element)
            queue = self._queue
            heappush(queue, (time_ms, number))
            if queue[0][1] == number:
                self._wake(time_ms)

    def find(self, key: bytes, first_ms: int, last_ms: int) -> list[Element]:
        """Return the elements of a key from ``first_ms`` to ``last_ms``, both included, by (t, arrival).

        :param key: serialized key.
        :param first_ms: first time, epoch milliseconds, within retention.
        :param last_ms: last time, epoch milliseconds.
        """
        elements = self._elements.get(key)
        if elements is None:
            return []
        low = bisect_left(elements, (first_ms,))
        if elements[-1][0] <= last_ms:
            return elements[low:]
        return elements[low : bisect_left(elements, (last_ms + 1,), low)]

    def match(self, key: bytes, elements: list[Element]) -> None:
        """Mark elements of a key, found by :meth:`find`, as no longer waiting."""
        waiting = self._waiting
        if not waiting:
            return
        for element in elements:
            if waiting.pop(element[1], None) is not None and self._logged:
                self._changed[element[1]] = (key, element)

    def first_waiting_ms(self) -> int | None:
        """Return the time of the first element that waits, None if none does."""
        queue = self._queue
        waiting = self._waiting
        while queue and queue[0][1] not in waiting:
            heappop(queue)
        return queue[0][0] if queue else None

    def release(self, before_ms: int) -> list[tuple[bytes, Element]]:
        """Return the waiting elements before a moment, with their serialized keys, by (t, arrival); they wait
        no longer.
        """
        released: list[tuple[bytes, Element]] = []
        queue = self._queue
        while queue and queue[0][0] < before_ms:
            number = heappop(queue)[1]
            found = self._waiting.pop(number, None)
            if found is not None:
                released.append(found)
                if self._logged:
                    self._changed[number] = found
        return released

    def remove_expired(self, now_ms: int) -> None:
        """Remove the periods whose elements are all beyond retention."""
        limit_ms = now_ms - self._retention_ms
        for period in sorted(self._periods):
            end_ms = (period + 1) * self.period_ms
            if end_ms > limit_ms:
                return
            self._remove(self._periods.pop(period), end_ms)

    def get(self, key: Any) -> list[tuple[int, Any]]:
        """Return (time, value) of each element of a key, by (t, arrival).

        :raises StateStoreError: the key is None.
        """
        return self._of(key_bytes_of(self, key))

    def range(self, first: Any, last: Any) -> Iterator[tuple[Any, list[tuple[int, Any]]]]:
        """Iterate over (key, its elements as by :meth:`get`) from first to last, both included, in the order
        of serialized keys, as of the call; None leaves an end open.
        """
        low = None if first is None else key_bytes_of(self, first)
        high = None if last is None else key_bytes_of(self, last)
        deserialize = self.deserialize_key
        snapshot = [
            (key, kept)
            for key in sorted(self._elements)
            if (low is None or low <= key) and (high is None or key <= high) and (kept := self._of(key))
        ]
        return ((deserialize(key), kept) for key, kept in snapshot)

    def all(self) -> Iterator[tuple[Any, list[tuple[int, Any]]]]:
        """Iterate over (key, its elements as by :meth:`get`), in the order of keys, as of the call."""
        return self.range(None, None)

    def approximate_count(self) -> int:
        """Return the number of elements in memory, some of which may be beyond retention."""
        return sum(map(len, self._elements.values()))

    def undrained_count(self) -> int:
        """Return the number of entries changed since the last drain."""
        return len(self._changed)

    def undrained_at_least(self) -> int:
        """Return the same: memory counts each change once."""
        return len(self._changed)

    def drain_changes(self) -> Iterator[tuple[bytes, bytes | None, int]]:
        """Yield changelog key, value or None, and timestamp, once per element changed since the last drain,
        in order of first change.

        :raises StateStoreError: a value does not fit the store's serde.
        """
        changed = list(self._changed.items())
        self._changed.clear()
        self._logged_below = self._next
        serialize = self.stored_values.serialize
        pack = POSITION.pack
        waiting = self._waiting
        for number, (key, (time_ms, _, value)) in changed:
            changelog_key = key + pack(time_ms, number)
            if value is None:
                yield changelog_key, None, time_ms
                continue
            mark = WAITS if number in waiting else WAITS_NOT
            yield changelog_key, mark + serialize(key, value), time_ms

    def restore(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        """Apply one changelog record.

        :raises StateStoreError: the record is not of the store's format.
        """
        try:
            time_ms, number = self._position(key, len(key) - _POSITION_BYTES)
            waits = value is not None and value[0] == 1
        except Exception as error:
            raise self.stored_values.error(key, "a changelog record that is not", error) from error
        key = key[:-_POSITION_BYTES]
        if value is not None:
            element = (time_ms, number, self.stored_values.deserialize(key, value[1:]))
        if number >= self._next:
            self._next = self._logged_below = number + 1
        if number in self._waiting:
            del self._waiting[number]
        if value is None:
            self._discard(key, time_ms, number)
            return
        elements = self._elements.get(key)
        if elements is None:
            self._elements[key] = [element]
        elif elements[-1][0] < time_ms:
            elements.append(element)
        else:
            self._replace(elements, element)
        self._remember(key, time_ms)
        if waits:
            self._waiting[number] = (key, element)
            heappush(self._queue, (time_ms, number))

    def restore_batch(self, records: Sequence[Record]) -> int:
        """Apply changelog records in their order, and return their size in bytes."""
        return restore_each(self.restore, records)

    def _replace(self, elements: list[Element], element: Element) -> None:
        """Replace the element of the same number by a restored one, or insert it."""
        at = bisect_left(elements, element[:2])
        if at < len(elements) and elements[at][:2] == element[:2]:
            elements[at] = element
        else:
            elements.insert(at, element)

    def _remember(self, key: bytes, time_ms: int) -> None:
        """Record that a key has an element in a period of time."""
        period = time_ms // self.period_ms
        keys = self._periods.get(period)
        if keys is None:
            self._periods[period] = {key}
        else:
            keys.add(key)

    def _discard(self, key: bytes, time_ms: int, number: int) -> None:
        elements = self._elements.get(key, [])
        at = bisect_left(elements, (time_ms, number))
        if at < len(elements) and elements[at][:2] == (time_ms, number):
            del elements[at]
        if not elements:
            self._elements.pop(key, None)

    def _remove(self, keys: set[bytes], end_ms: int) -> None:
        """Remove the elements of a period, the oldest there are."""
        removed: list[tuple[int, int, bytes]] = []
        logged, logged_below, changed = self._logged, self._logged_below, self._changed
        for key in keys:
            elements = self._elements.get(key, [])
            count = bisect_left(elements, (end_ms,))
            if logged:
                for time_ms, number, _ in elements[:count]:
                    if number < logged_below:
                        removed.append((time_ms, number, key))
                    else:
                        changed.pop(number, None)
            del elements[:count]
            if not elements:
                self._elements.pop(key, None)
        removed.sort()
        for time_ms, number, key in removed:
            changed[number] = (key, (time_ms, number, None))

    def _of(self, key: bytes) -> list[tuple[int, Any]]:
        oldest_ms = self.stream_time() - self._retention_ms
        elements = self._elements.get(key, ())
        copied = same if self.copies is None else self.copies.handed_out
        return [(time_ms, copied(value)) for time_ms, _, value in elements if time_ms >= oldest_ms]


def _no_time() -> int:
    return -1


def _wake_no_join(time_ms: int) -> None:
    """Do nothing, until the join is bound."""
