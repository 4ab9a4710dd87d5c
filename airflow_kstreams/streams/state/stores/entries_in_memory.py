"""Entries that have their time, in memory; values are objects until their change is drained, as in
``in_memory.py``.

Cost: a heap of ids finds the oldest entry and one sorted list per key finds the entries of a key, so neither
a record nor an expiry looks at entries it does not concern. An id deleted early (a session that grew has
another end) stays in the heap until it comes up or outnumbers the entries.

Invariant: after a drain, folding every change drained so far gives exactly the entries. An entry that came
and went between two drains is in no fold and so is no change: a session that grows with a thousand records
is logged once, and windows that open and close within one commit are not logged at all.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence

from airflow_kstreams.streams.graph.services import RecordContext
from airflow_kstreams.streams.ports import Record
from airflow_kstreams.streams.state.stores.held_entries import Entry, EntryId, HeldForm
from airflow_kstreams.streams.state.stores.state_store import restore_each

#: Stale ids that the heap may hold beside as many as there are entries.
_STALE_IDS = 1_000


class EntriesInMemory:
    """:class:`HeldEntries` in a dict.

    :param record_context: gives the timestamp of the record being processed.
    """

    #: Bound to closures and C functions in the constructor: operators call them for every record.
    get_entry: Callable[[EntryId], Entry | None]
    put_entry: Callable[[EntryId, Entry | None], None]

    def __init__(self, form: HeldForm, record_context: RecordContext) -> None:
        self._form = form
        self._context = record_context
        self._entries: dict[EntryId, Entry] = {}
        self._ids_of: dict[bytes, list[EntryId]] = {}
        self._by_age: list[EntryId] = []
        #: Changed id -> timestamp of its deletion, which holds as long as the entry is absent.
        self._changed: dict[EntryId, int] = {}
        #: Changed ids that were absent at the last drain.
        self._born: set[EntryId] = set()
        self.get_entry = self._entries.get
        self.put_entry = self._logged_put() if form.spec.logged else self._unlogged_put()

    def count(self) -> int:
        """Return the number of entries."""
        return len(self._entries)

    def entries(self) -> list[tuple[EntryId, Entry]]:
        """Return every entry as it is now, oldest first."""
        return sorted(self._entries.items())

    def expire(self, latest_ms: int, leave: Callable[[EntryId, Entry], None]) -> None:
        """Delete what has expired, oldest first, and hand it on."""
        by_age = self._by_age
        while by_age and by_age[0][0] <= latest_ms:
            entry_id = heapq.heappop(by_age)
            entry = self._entries.get(entry_id)
            if entry is not None:
                self.put_entry(entry_id, None)
                leave(entry_id, entry)

    def oldest_ms(self) -> int | None:
        """Return the moment the oldest entry ages from."""
        by_age = self._by_age
        while by_age and by_age[0] not in self._entries:
            heapq.heappop(by_age)
        return by_age[0][0] if by_age else None

    def ids_of(self, key: bytes, first: EntryId = (), last_ms: int | None = None) -> list[EntryId]:
        """Return the ids of a serialized key, oldest first."""
        ids = self._ids_of.get(key, [])
        end = len(ids) if last_ms is None else bisect_left(ids, (last_ms + 1,))
        return ids[bisect_left(ids, first) : end]

    def first_id(self, key: bytes, first_ms: int) -> EntryId | None:
        """Return the oldest id of a serialized key whose first part is ``first_ms`` or later."""
        ids = self._ids_of.get(key, [])
        place = bisect_left(ids, (first_ms,))
        return ids[place] if place < len(ids) else None

    def undrained_count(self) -> int:
        """Return how many entries have changed since the last drain."""
        return len(self._changed)

    def drain_changes(self) -> Iterator[tuple[bytes, bytes | None, int]]:
        """Yield what changed since the last drain, once per entry, in order of first change."""
        changed = list(self._changed.items())
        self._changed.clear()
        self._born.clear()
        serialize, changelog_key = self._form.values.serialize, self._form.changelog_key
        for entry_id, deleted_ms in changed:
            entry = self._entries.get(entry_id)
            if entry is None:
                yield changelog_key(entry_id), None, deleted_ms
                continue
            yield changelog_key(entry_id), serialize(entry_id[-1], entry[0]), entry[1]

    def restore(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        """Apply one changelog record."""
        entry_id = self._form.restored_id(key)
        restored = None if value is None else self._form.values.deserialize(entry_id[-1], value)
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
            self._form.on_earliest(entry_id[0])

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
