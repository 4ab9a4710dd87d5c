"""What window and session stores share: entries that have their time, and leave when it is over.

Rule: an entry's id is a tuple that begins with the moment it ages from (the start of a window, the end of a
session) and ends with the serialized key, so ids sort by age. An entry expires when stream time reaches that
moment plus the time the store keeps its entries; ``expire`` then deletes it, oldest first, with a tombstone
in the changelog. Values are objects until their change is drained, as in ``in_memory.py``.

Cost: a heap of ids finds the oldest entry and one sorted list per key finds the entries of a key, so neither
a record nor an expiry looks at entries it does not concern. An id deleted early (a session that grew has
another end) stays in the heap until it comes up or outnumbers the entries.

Invariant: after a drain, folding every change drained so far gives exactly the entries. An entry that came
and went between two drains is in no fold and so is no change: a session that grows with a thousand records
is logged once, and windows that open and close within one commit are not logged at all.

Crash argument: nothing but the entries decides what expires when; a store restored from its changelog, at any
drain, expires the same entries at the same stream times.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from airflow_kstreams.streams.errors import StateStoreError
from airflow_kstreams.streams.graph.services import NodeContext, RecordContext
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.java_names import answers_java_names
from airflow_kstreams.streams.ports import Record
from airflow_kstreams.streams.state.stores.state_store import restore_each
from airflow_kstreams.streams.state.stores.store_serdes import StoredValues, key_bytes_of, key_serializer

#: Names an entry: the moment it ages from, what else sets it apart, the serialized key.
EntryId = tuple[Any, ...]
#: (value, timestamp_ms).
Entry = tuple[Any, int]

#: Stale ids that the heap may hold beside as many as there are entries.
_STALE_IDS = 1_000


@answers_java_names
class ExpiringStore(ABC):
    """The task's side of a store whose entries expire.

    :param spec: name, serdes, and whether changes are logged.
    :param record_context: gives the timestamp of the record being processed.
    :param kept_ms: an entry expires when stream time reaches the first part of its id plus this.
    """

    #: Bound to closures and C functions in the constructor: operators call them for every record.
    get_entry: Callable[[EntryId], Entry | None]
    put_entry: Callable[[EntryId, Entry | None], None]

    def __init__(self, spec: StoreSpec, record_context: RecordContext, *, kept_ms: int) -> None:
        self.spec = spec
        self.name = spec.name
        self.kept_ms = kept_ms
        self.stored_values = StoredValues(spec)
        self.serialize_key = key_serializer(spec)
        #: Called with each entry that expired, in order, when the node that keeps the store expires it.
        self.expiry_listeners: list[Callable[[EntryId, Entry], None]] = []
        #: Called with the moment an entry expires when that comes before all others.
        self.on_earliest: Callable[[int], None] = _no_keeper
        self._context = record_context
        self._entries: dict[EntryId, Entry] = {}
        self._ids_of: dict[bytes, list[EntryId]] = {}
        self._by_age: list[EntryId] = []
        #: Changed id -> timestamp of its deletion, which holds as long as the entry is absent.
        self._changed: dict[EntryId, int] = {}
        #: Changed ids that were absent at the last drain.
        self._born: set[EntryId] = set()
        self.get_entry = self._entries.get
        self.put_entry = self._logged_put() if spec.logged else self._unlogged_put()

    @abstractmethod
    def changelog_key(self, entry_id: EntryId) -> bytes:
        """Return the changelog key of an entry.

        :param entry_id: of an entry, present or not.
        """

    @abstractmethod
    def entry_id(self, changelog_key: bytes) -> EntryId:
        """Return the id that a changelog key stands for.

        :param changelog_key: as :meth:`changelog_key` makes them.
        """

    def approximate_count(self) -> int:
        """Return the number of entries."""
        return len(self._entries)

    def entries(self) -> list[tuple[EntryId, Entry]]:
        """Return every entry as it is now, oldest first."""
        return sorted(self._entries.items())

    def expire(self, stream_time_ms: int) -> list[tuple[EntryId, Entry]]:
        """Delete what has expired and return it, oldest first.

        :param stream_time_ms: of the node that keeps the store.
        """
        latest = stream_time_ms - self.kept_ms
        by_age = self._by_age
        expired: list[tuple[EntryId, Entry]] = []
        while by_age and by_age[0][0] <= latest:
            entry_id = heapq.heappop(by_age)
            entry = self._entries.get(entry_id)
            if entry is not None:
                self.put_entry(entry_id, None)
                expired.append((entry_id, entry))
        return expired

    def next_expiry_ms(self) -> int | None:
        """Return the stream time at which the oldest entry expires, None if there is no entry."""
        by_age = self._by_age
        while by_age and by_age[0] not in self._entries:
            heapq.heappop(by_age)
        return by_age[0][0] + self.kept_ms if by_age else None

    def ids_of(self, key: bytes, first: EntryId = ()) -> list[EntryId]:
        """Return the ids of a serialized key, oldest first.

        :param first: leading part of an id to begin at.
        """
        ids = self._ids_of.get(key, [])
        return ids[bisect_left(ids, first) :]

    def undrained_count(self) -> int:
        """Return how many entries have changed since the last drain."""
        return len(self._changed)

    def drain_changes(self) -> Iterator[tuple[bytes, bytes | None, int]]:
        """Yield (changelog key, value or None, timestamp_ms) once per entry changed since the last drain, in
        order of first change.

        :raises StateStoreError: a value does not fit the store's serde.
        """
        changed = list(self._changed.items())
        self._changed.clear()
        self._born.clear()
        serialize = self.stored_values.serialize
        for entry_id, deleted_ms in changed:
            entry = self._entries.get(entry_id)
            if entry is None:
                yield self.changelog_key(entry_id), None, deleted_ms
                continue
            yield self.changelog_key(entry_id), serialize(entry_id[-1], entry[0]), entry[1]

    def restore(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        """Apply one changelog record; it is not a change.

        :param key: as :meth:`changelog_key` makes them.
        :param value: None deletes the entry.
        :param timestamp_ms: of the record; becomes the entry's.
        :raises StateStoreError: the record is not of the store's format.
        """
        try:
            entry_id = self.entry_id(key)
        except Exception as error:
            raise self.stored_values.error(key, "a changelog record that is not", error) from error
        restored = None if value is None else self.stored_values.deserialize(entry_id[-1], value)
        present = entry_id in self._entries
        if value is None:
            if present:
                del self._entries[entry_id]
                self._forget(entry_id)
            return
        self._entries[entry_id] = (restored, timestamp_ms)
        if not present:
            self._index(entry_id)

    def restore_batch(self, records: Sequence[Record]) -> int:
        """Apply changelog records in their order, and return how many bytes they have."""
        return restore_each(self.restore, records)

    def _index(self, entry_id: EntryId) -> None:
        """Make an entry that is new findable."""
        key = entry_id[-1]
        ids = self._ids_of.get(key)
        if ids is None:
            self._ids_of[key] = [entry_id]
        else:
            insort(ids, entry_id)
        by_age = self._by_age
        heapq.heappush(by_age, entry_id)
        if len(by_age) > 2 * len(self._entries) + _STALE_IDS:
            by_age[:] = self._entries
            heapq.heapify(by_age)
        if by_age[0] == entry_id:
            self.on_earliest(entry_id[0] + self.kept_ms)

    def _forget(self, entry_id: EntryId) -> None:
        """Take an entry that is gone out of its key's list."""
        key = entry_id[-1]
        ids = self._ids_of[key]
        if len(ids) == 1:
            del self._ids_of[key]
        else:
            del ids[bisect_left(ids, entry_id)]

    def _logged_put(self) -> Callable[[EntryId, Entry | None], None]:
        entries, changed, born = self._entries, self._changed, self._born
        index, forget = self._index, self._forget
        context = self._context

        def put_entry(entry_id: EntryId, entry: Entry | None) -> None:
            if entry is not None:
                if entry_id in entries:
                    entries[entry_id] = entry
                else:
                    if entry_id not in changed:
                        born.add(entry_id)
                    entries[entry_id] = entry
                    index(entry_id)
                changed[entry_id] = 0
            elif entries.pop(entry_id, None) is not None:
                forget(entry_id)
                if entry_id in born:
                    born.discard(entry_id)
                    del changed[entry_id]
                else:
                    changed[entry_id] = context.timestamp_ms

        return put_entry

    def _unlogged_put(self) -> Callable[[EntryId, Entry | None], None]:
        entries = self._entries
        index, forget = self._index, self._forget

        def put_entry(entry_id: EntryId, entry: Entry | None) -> None:
            if entry is not None:
                present = entry_id in entries
                entries[entry_id] = entry
                if not present:
                    index(entry_id)
            elif entries.pop(entry_id, None) is not None:
                forget(entry_id)

        return put_entry

    def _set(self, entry_id: EntryId, value: Any) -> None:
        self.put_entry(entry_id, None if value is None else (value, self._context.timestamp_ms))

    def _value(self, entry_id: EntryId) -> Any:
        entry = self._entries.get(entry_id)
        return None if entry is None else entry[0]

    def _key_bytes(self, key: Any, *times_ms: int | None) -> bytes:
        """Serialize a key that a user gave.

        :param times_ms: what the user gave with it, to be checked.
        """
        key_bytes = key_bytes_of(self, key)
        for time_ms in times_ms:
            if time_ms is not None and (not isinstance(time_ms, int) or abs(time_ms) >= 2**63):
                raise StateStoreError(
                    f"store {self.name!r} was given {time_ms!r} as a time, expected epoch milliseconds",
                    fix="give whole numbers",
                )
        return key_bytes


def bind_expiry(
    context: NodeContext,
    store: ExpiringStore,
    leaving: Callable[[EntryId, Entry], None] | None = None,
) -> None:
    """Let a node expire its store as its stream time goes on; one node per store.

    :param context: of the node, which is being bound.
    :param leaving: called with each entry that expired before any listener of the store is.
    """

    def expire(stream_time_ms: int, _node: str = context.node) -> None:
        expired = store.expire(stream_time_ms)
        if leaving is not None:
            for entry_id, entry in expired:
                leaving(entry_id, entry)
        for listener in store.expiry_listeners:
            for entry_id, entry in expired:
                listener(entry_id, entry)
        timer.set(store.next_expiry_ms())

    timer = context.stream_timer(expire)
    store.on_earliest = timer.set
    # What the changelog brought back, at whatever stream time the last run ended.
    context.on_open(lambda: timer.set(store.next_expiry_ms()))


def _no_keeper(expiry_ms: int) -> None:
    """Take a moment while no node keeps the store yet."""
