"""Holds entries that expire in memory; values are objects until their change is drained, as in
``in_memory.py``.

Cost: a heap of times, each with the ids whose age begins then, finds the oldest entry, and one sorted list
per key finds the entries of a key; so neither a record nor an expiry visits entries that it does not concern.
(In a heap of the ids themselves each step compares tuples.) An id deleted early (a session that grew has
another end) stays in the heap until it is the oldest, or until such ids outnumber the entries.

Invariant: after a drain, folding every change drained so far gives exactly the entries. An entry that came
and went between two drains is in no fold and so is no change: a session that grows with a thousand records
is logged once, and windows that open and close within one commit are not logged at all.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence

from airflow_kstreams.streams.graph.services import CurrentRecord
from airflow_kstreams.streams.ports import Record
from airflow_kstreams.streams.state.stores.held_entries import Entry, EntryId, HeldForm
from airflow_kstreams.streams.state.stores.state_store import restore_each

#: Stale ids that may be held by age beside as many as there are entries.
_STALE_IDS = 1_000
#: No timestamp.
_BORN = -(2**63) - 1


class EntriesInMemory:
    """:class:`HeldEntries` in a dict.

    :param record_context: the record being processed, whose timestamp entries take.
    """

    #: Bound to closures and C functions in the constructor: operators call them for every record.
    get_entry: Callable[[EntryId], Entry | None]
    put_entry: Callable[[EntryId, Entry | None], None]

    def __init__(self, form: HeldForm, record_context: CurrentRecord) -> None:
        self._form = form
        self._context = record_context
        self._entries: dict[EntryId, Entry] = {}
        self._ids_of: dict[bytes, list[EntryId]] = {}
        #: Moment -> the ids that age from it, in any order, and a heap of these moments.
        self._aging: dict[int, list[EntryId]] = {}
        self._moments: list[int] = []
        #: Number of ids in the heap.
        self._aged = 0
        #: Changed id -> ``_BORN`` if it was absent at the last drain, else the timestamp of its deletion,
        #: which holds as long as the entry is absent.
        self._changed: dict[EntryId, int] = {}
        #: Called when an entry is deleted.
        self._forget = self._logged_deletion() if form.spec.logged else self._unlist
        self.get_entry = self._entries.get
        self.put_entry = self._logged_put() if form.spec.logged else self._unlogged_put()

    def count(self) -> int:
        """Return the number of entries."""
        return len(self._entries)

    def entries(self) -> list[tuple[EntryId, Entry]]:
        """Return all present entries, oldest first."""
        return sorted(self._entries.items())

    def expire(self, latest_ms: int, leave: Callable[[EntryId, Entry], None]) -> None:
        """Delete expired entries, oldest first, and pass each to ``leave``."""
        moments, aging, entries, forget = self._moments, self._aging, self._entries, self._forget
        while moments and (moment := moments[0]) <= latest_ms:
            ids = aging[moment]
            if not ids:
                del aging[heapq.heappop(moments)]
                continue
            if len(ids) > 1:
                ids.sort(reverse=True)
            while ids and moments[0] == moment:  # ``leave`` may put older entries
                entry_id = ids.pop()
                self._aged -= 1
                entry = entries.pop(entry_id, None)
                if entry is not None:
                    forget(entry_id)
                    leave(entry_id, entry)

    def oldest_ms(self) -> int | None:
        """Return the moment the oldest entry ages from."""
        moments, aging, entries = self._moments, self._aging, self._entries
        while moments:
            ids = aging[moments[0]]
            while ids and ids[-1] not in entries:
                ids.pop()
                self._aged -= 1
            if ids:
                return moments[0]
            del aging[heapq.heappop(moments)]
        return None

    def ids_of(self, key: bytes, first: EntryId = (), last_ms: int | None = None) -> list[EntryId]:
        """Return the ids of a serialized key, oldest first."""
        ids = self._ids_of.get(key)
        if ids is None:
            return []
        # Most calls ask for all ids, or all but the last ones.
        start = 0 if ids[0] >= first else bisect_left(ids, first)
        end = None if last_ms is None or ids[-1][0] <= last_ms else bisect_left(ids, (last_ms + 1,))
        return ids[start:end]

    def first_id(self, key: bytes, first_ms: int) -> EntryId | None:
        """Return the oldest id of a serialized key whose first part is ``first_ms`` or later."""
        ids = self._ids_of.get(key, [])
        place = bisect_left(ids, (first_ms,))
        return ids[place] if place < len(ids) else None

    def undrained_count(self) -> int:
        """Return the number of entries changed since the last drain."""
        return len(self._changed)

    def undrained_at_least(self) -> int:
        """Return the same: memory counts each change once."""
        return len(self._changed)

    def drain_changes(self) -> Iterator[tuple[bytes, bytes | None, int]]:
        """Yield the changes since the last drain, once per entry, in order of first change."""
        changed = list(self._changed.items())
        self._changed.clear()
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
                self._unlist(entry_id)
            return
        self._entries[entry_id] = (restored, timestamp_ms)
        if not present:
            self._index(entry_id)

    def restore_batch(self, records: Sequence[Record]) -> int:
        """Apply changelog records in their order, and return their size in bytes."""
        return restore_each(self.restore, records)

    def _index(self, entry_id: EntryId) -> None:
        """Add a new entry to the indexes."""
        key = entry_id[-1]
        ids = self._ids_of.get(key)
        if ids is None:
            self._ids_of[key] = [entry_id]
        else:
            insort(ids, entry_id)
        moment = entry_id[0]
        ids = self._aging.get(moment)
        self._aged += 1
        if ids is not None:
            ids.append(entry_id)
        else:
            self._aging[moment] = [entry_id]
            heapq.heappush(self._moments, moment)
            if self._moments[0] == moment:
                self._form.on_earliest(moment)
        if self._aged > 2 * len(self._entries) + _STALE_IDS:
            self._leave_out_stale_ids()

    def _leave_out_stale_ids(self) -> None:
        """Rebuild the heap from the present entries."""
        aging, entries = self._aging, self._entries
        for ids in aging.values():
            ids[:] = sorted(entries.keys() & ids, reverse=True)  # in place: an expiry may be under way
        kept = {moment: ids for moment, ids in aging.items() if ids}
        aging.clear()
        aging.update(kept)
        self._moments[:] = sorted(kept)
        self._aged = len(entries)

    def _unlist(self, entry_id: EntryId) -> None:
        """Remove a deleted entry from its key's list."""
        key = entry_id[-1]
        ids = self._ids_of[key]
        if len(ids) == 1:
            del self._ids_of[key]
        elif ids[0] == entry_id:
            del ids[0]  # an expiring entry is the oldest of its key
        else:
            del ids[bisect_left(ids, entry_id)]

    def _logged_put(self) -> Callable[[EntryId, Entry | None], None]:
        entries, changed = self._entries, self._changed
        index, forget = self._index, self._forget

        def put_entry(entry_id: EntryId, entry: Entry | None) -> None:
            if entry is not None:
                count = len(entries)
                entries[entry_id] = entry
                born = len(entries) > count  # a look-up before would hash it once more
                if entry_id not in changed:
                    changed[entry_id] = _BORN if born else 0
                if born:
                    index(entry_id)
            elif entries.pop(entry_id, None) is not None:
                forget(entry_id)

        return put_entry

    def _logged_deletion(self) -> Callable[[EntryId], None]:
        changed, unlist, context = self._changed, self._unlist, self._context

        def forget(entry_id: EntryId) -> None:
            unlist(entry_id)
            if changed.get(entry_id) == _BORN:
                del changed[entry_id]
            else:
                changed[entry_id] = context.timestamp_ms

        return forget

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
