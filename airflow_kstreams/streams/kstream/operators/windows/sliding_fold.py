"""Folds the records of each key per sliding window.

Rule (Kafka Streams' ``SlidingWindows``): a window ``[s, s + size]`` holds both its bounds. There is a window
that ends with each record and, where later records lie in it, one that begins one millisecond after each
record; so there is one window for each set of records that lie ``size`` or less apart. None begins before
the epoch: records before ``size`` end no window of their own but all lie in ``[0, size]``. A window is closed
once stream time is past s + size + grace. A closed window takes no records, and none is made that would be
closed. A record that no window takes is dropped and counted.

A record at t changes the windows that hold t, from the last one back (before ``size``: from the first one
on). Then it makes the windows that are missing: that behind the record before it, its own, and that behind
itself. A new window begins with the aggregate of a window that held the same records. Emission follows that
order, by the rule of :mod:`airflow_kstreams.streams.kstream.operators.table_emitter`, with
(:class:`Windowed`, value) for (key, value).

Windows of later records begin with the aggregates of closed ones, which are kept for another ``size``:
``window_tables.py`` chooses their store, the one of the open windows, or a second one, e.g. where
``suppress`` waits for windows to leave the first.

Invariant: an aggregate belongs to one window: a window that begins with another one's aggregate gets a copy,
for an aggregator may change its aggregate in place. Where the task goes on after an error it gets a copy,
too.

Crash argument: as for time windows: results depend on the stores, on stream time and on the records alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from airflow_kstreams.streams.graph.nodes import OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, NodeContext
from airflow_kstreams.streams.graph.store_specs import WindowStoreSpec
from airflow_kstreams.streams.kstream.operators.aggregation import Fold, fold_of
from airflow_kstreams.streams.kstream.operators.windows.window_fold import WindowEmitter
from airflow_kstreams.streams.state.stores.expiring_store import Entry, EntryId, WindowStore, bind_expiry
from airflow_kstreams.streams.state.stores.value_copies import kept
from airflow_kstreams.streams.windows import SlidingWindow, Windowed

_ID = itemgetter(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindowFold:
    """Folds the records of each key per sliding window.

    :param fold: the fold of each window.
    :param window: size and grace of the windows.
    :param store: spec of the store of open windows.
    :param closed: spec of the store of closed windows that are still needed; None if ``store`` keeps them.
    """

    fold: Fold
    window: SlidingWindow
    store: WindowStoreSpec
    closed: WindowStoreSpec | None

    @property
    def type(self) -> str:
        """Kind of node, with size and grace of its windows."""
        return f"sliding_{self.fold.kind}({self.window.size_ms},{self.window.grace_ms})"

    @property
    def traits(self) -> OperatorTraits:
        """The facts about the operator that the engine uses."""
        return OperatorTraits(
            held_back_ms=self.window.size_ms + self.window.grace_ms,
            windows={self.store.name: self.window},
            windows_go=self.fold.kind != "count",
        )

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        windows = _Windows(self, context, WindowEmitter(forward, context, children, self.store))
        size_ms, open_ms = self.window.size_ms, self.window.size_ms + self.window.grace_ms
        serialize_key = context.store(self.store.name).serialize_key
        count_null, count_late = context.counting("null"), context.counting("late")
        record_context = context.record_context
        stream_time = context.closing_time(self.store.name, open_ms, context.stream_time())

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            time_ms = record_context.timestamp_ms
            if key is None or value is None or time_ms < 0:
                count_null()
                return
            open_from_ms = stream_time() - open_ms
            if time_ms < open_from_ms:
                count_late()
                return
            arrival = _Arrival(windows, key, value, serialize_key(key), time_ms, open_from_ms)
            if time_ms < size_ms:
                arrival.fold_early()
            else:
                arrival.fold()
            if not arrival.taken:
                count_late()

        return run


class _Windows:
    """The windows of one task."""

    def __init__(self, operator: SlidingWindowFold, context: NodeContext, emitter: WindowEmitter) -> None:
        self.size_ms = operator.window.size_ms
        fold = fold_of(operator.fold, context, context.store(operator.store.name))
        self.begin, self.add = fold.begin, fold.add
        self.emitter = emitter
        self.wanted, self.tracked = emitter.wanted, emitter.tracked
        self.dirty, self.changed = emitter.dirty, emitter.changed
        self.store: WindowStore = context.store(operator.store.name)
        self.put_entry = self.store.put_entry
        self.stores = [self.store]
        if operator.closed is not None:
            closed: WindowStore = context.store(operator.closed.name)
            self.stores.append(closed)
            self.store.expiry_listeners.append(closed.put_entry)
            bind_expiry(context, closed)

    def found(
        self, key_bytes: bytes, from_ms: int, to_ms: int, earliest_ms: int
    ) -> list[tuple[EntryId, Entry, bool]]:
        """Return (id, entry, True if it may change) of a key's windows that start in a span, both ends
        included, and of the last one before it, perhaps followed by an earlier one; the last one first.

        :param from_ms: start of the span, epoch milliseconds.
        :param to_ms: end of the span, epoch milliseconds.
        :param earliest_ms: windows that start before this time are left out, epoch milliseconds.
        """
        found: list[tuple[EntryId, Entry, bool]] = []
        for store in self.stores:  # one, most often
            changeable, get_entry = store is self.store, store.get_entry
            for entry_id in reversed(store.ids_of(key_bytes, (earliest_ms,), to_ms)):
                entry = get_entry(entry_id)
                if entry is not None:
                    found.append((entry_id, entry, changeable))
                    if entry_id[0] < from_ms:
                        break
        if len(self.stores) > 1:
            found.sort(key=_ID, reverse=True)
        return found


class _Arrival:
    """A record that is being folded.

    :param key_bytes: the serialized key.
    :param time_ms: timestamp of the record, epoch milliseconds.
    :param open_from_ms: start of the first window that is open; earlier ones are closed.
    :ivar taken: True if a window took the record.
    """

    __slots__ = ("_key", "_key_bytes", "_open_from_ms", "_time_ms", "_value", "_windows", "taken")

    def __init__(
        self, windows: _Windows, key: Any, value: Any, key_bytes: bytes, time_ms: int, open_from_ms: int
    ) -> None:
        self._windows = windows
        self._key = key
        self._value = value
        self._key_bytes = key_bytes
        self._time_ms = time_ms
        self._open_from_ms = open_from_ms
        self.taken = False

    def fold(self) -> None:
        """Fold a record that ends a window of its own."""
        time_ms, size_ms = self._time_ms, self._windows.size_ms
        own_ms = time_ms - size_ms
        found = self._windows.found(self._key_bytes, own_ms, time_ms + 1, max(0, own_ms - size_ms))
        behind = self._behind(found, own_ms + 1)
        before: Entry | None = None
        before_ms: int | None = None
        for entry_id, entry, changeable in found:
            start_ms = entry_id[0]
            if start_ms > time_ms:
                continue
            if start_ms < own_ms:
                # The last window that ends before the record holds the record before it.
                before, before_ms = entry, entry[1]
                break
            self._add(entry_id, entry, changeable=changeable)
            if start_ms == own_ms:
                if entry[1] >= time_ms:
                    return  # a record of the same time was here, and made all windows that there are
                # Earlier windows may have been closed to the record before this one.
                before_ms = entry[1]
                break
        starts = {entry_id[0] for entry_id, _, _ in found}
        if before_ms is not None and before_ms + 1 not in starts and before_ms + 1 >= own_ms:
            self._begin(before_ms + 1)
        if own_ms not in starts:
            if before is not None and before_ms is not None and before_ms >= own_ms:
                self._begin(own_ms, kept(before[0]))
            else:
                self._begin(own_ms)
        self._put_behind(behind)

    def fold_early(self) -> None:
        """Fold a record whose own window would begin before the epoch: all such lie in the first window."""
        time_ms = self._time_ms
        found = self._windows.found(self._key_bytes, 0, time_ms + 1, 0)
        combined = next((one for one in found if one[0][0] == 0), None)
        behind = self._behind(found, 0)
        for entry_id, entry, changeable in reversed(found):
            if 0 < entry_id[0] <= time_ms:
                self._add(entry_id, entry, changeable=changeable)
        self._put_behind(behind)
        if combined is None:
            self._begin(0)
            return
        combined_id, entry, changeable = combined
        before_ms = entry[1]
        if before_ms < time_ms and all(entry_id[0] != before_ms + 1 for entry_id, _, _ in found):
            self._begin(before_ms + 1)
        self._add(combined_id, entry, changeable=changeable)

    def _behind(self, found: list[tuple[EntryId, Entry, bool]], from_ms: int) -> Entry | None:
        """Return the entry with which the window right behind the record begins: the entry of the last window
        that holds the record, before the record was added; None if that holds no later record, or if the
        window right behind the record exists.

        :param found: the key's windows, the last one first, which may be the window behind the record.
        :param from_ms: start of the first window that may hold the record, epoch milliseconds.
        """
        if not found:
            return None
        (start_ms, *_), last, _ = found[0]
        if not from_ms <= start_ms <= self._time_ms:
            return None
        return (kept(last[0]), last[1]) if last[1] > self._time_ms else None

    def _put_behind(self, entry: Entry | None) -> None:
        if entry is not None:
            self._put_new(self._time_ms + 1, entry)

    def _begin(self, start_ms: int, aggregate: Any = None) -> None:
        """Make a window with the record in it, unless it would be closed.

        :param start_ms: start of the window, epoch milliseconds.
        :param aggregate: aggregate of the window's earlier records; None if there are none.
        """
        if start_ms < self._open_from_ms:
            return
        self.taken = True
        if aggregate is None:
            result = self._windows.begin(self._key, self._value)
        else:
            result = self._windows.add(self._key, self._value, aggregate)
        if result is not None:
            self._put_new(start_ms, (result, self._time_ms))

    def _add(self, entry_id: EntryId, entry: Entry, *, changeable: bool) -> None:
        """Fold the record into a window, unless it is closed."""
        start_ms = entry_id[0]
        if not changeable or start_ms < self._open_from_ms:
            return
        self.taken = True
        windows, newest_ms = self._windows, self._time_ms
        aggregate, entry_ms = entry
        if entry_ms > newest_ms:
            newest_ms = entry_ms
        old = windows.emitter.before(entry_id, entry) if windows.tracked else None
        result = windows.add(self._key, self._value, aggregate)
        if windows.tracked:
            windows.emitter.change(entry_id, self._windowed(start_ms), old, result, newest_ms)
        elif result is not None:
            windows.put_entry(entry_id, (result, newest_ms))
            if entry_id not in windows.dirty and windows.wanted:
                windows.changed(entry_id, self._windowed(start_ms), (result, newest_ms), born=False)
        else:
            windows.emitter.delete(entry_id, self._windowed(start_ms), newest_ms)

    def _put_new(self, start_ms: int, entry: Entry) -> None:
        windows, entry_id = self._windows, (start_ms, self._key_bytes)
        if windows.tracked:
            # A window behind the record before that ends with this one is made twice, as in Kafka Streams.
            old = windows.emitter.before(entry_id, windows.store.get_entry(entry_id))
            windows.emitter.change(entry_id, self._windowed(start_ms), old, *entry)
            return
        windows.put_entry(entry_id, entry)
        if entry_id not in windows.dirty and windows.wanted:
            windows.changed(entry_id, self._windowed(start_ms), entry, born=True)

    def _windowed(self, start_ms: int) -> Windowed:
        return Windowed(self._key, start_ms, start_ms + self._windows.size_ms)
