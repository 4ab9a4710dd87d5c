"""Folds the records of each key per window, tumbling, hopping or session, and emits the windows' changes.

Rule for time windows: a record at t belongs to every window [s, s + size) with s a multiple of the advance,
0 <= s <= t < s + size. A window is closed once stream time is s + size + grace or later; a closed window
takes no records. A record whose windows are all closed is dropped and counted.

Rule for sessions: a session [s, e] holds its first and last record. It is closed once stream time is past e +
gap + grace; until then a record at t with s - gap <= t <= e + gap belongs to it, and makes one session of all
it belongs to: in ``aggregate``, the merger begins with an empty aggregate and the first session, as in Kafka
Streams. A record that belongs to no open session begins one, [t, t], unless that would be closed already:
then the record is dropped and counted. Closed sessions are never continued, so a result that was final stays
final. (Kafka Streams closes sessions by the same sum, but at exactly e + gap + grace a session counts as
closed in one place and as open in another.)

Stream time is the node's, and includes the record being processed. Emission follows the rule of
:mod:`airflow_kstreams.streams.kstream.operators.table_emitter`, with (:class:`Windowed`, value) for (key,
value); a session that grew or was merged is emitted with None, since its key does not exist any more, and
with its last record's time, as in Kafka Streams. A window that leaves the store with a change that waits for
a commit point is emitted at once, for the commit point would not find it any more. A window that was made and
deleted between two commit points is not emitted, since a session that grows leaves many of them.

If the task goes on after an error, functions get a copy of a mutable aggregate, as in every fold. Each of a
record's hopping or sliding windows is folded by itself: those before the one whose aggregator raises have the
record, as in Kafka Streams.

Crash argument: folds, lateness and expiry depend on the store, on stream time and on the records alone. Store
changes, stream time and offsets are committed together, so the attempt that resumes repeats the lost work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow_kstreams.streams.graph.nodes import OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, NodeContext, ignore_updates
from airflow_kstreams.streams.graph.store_specs import SessionStoreSpec, StoreSpec, WindowStoreSpec
from airflow_kstreams.streams.kstream.operators.aggregation import Fold, fold_of
from airflow_kstreams.streams.kstream.operators.table_emitter import (
    ABSENT,
    TableEmitter,
    flat_copy,
    write_copy,
)
from airflow_kstreams.streams.serde.internal_serdes import OldAndNew
from airflow_kstreams.streams.state.stores.expiring_store import Entry, EntryId, bind_expiry
from airflow_kstreams.streams.windows import HoppingWindow, SessionWindow, TimeWindow, Windowed


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindowFold:
    """Folds the records of each key per tumbling or hopping window."""

    fold: Fold
    window: TimeWindow
    store: WindowStoreSpec

    @property
    def type(self) -> str:
        """Kind of node, with size, advance and grace of its windows."""
        window = self.window
        return f"windowed_{self.fold.kind}({window.size_ms},{_advance_ms(window)},{window.grace_ms})"

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
        overlapping = isinstance(self.window, HoppingWindow)
        alone = context.alone and not overlapping
        fold = fold_of(self.fold, context, context.store(self.store.name), alone=alone)
        begin, add = fold.begin, fold.add
        size_ms, advance_ms = self.window.size_ms, _advance_ms(self.window)
        open_ms = size_ms + self.window.grace_ms
        overlap_ms = size_ms - advance_ms
        serialize_key = context.store(self.store.name).serialize_key
        get_entry = context.store(self.store.name).get_entry
        put_entry = context.store(self.store.name).put_entry
        count_null, count_late = context.counting("null"), context.counting("late")
        record_context = context.record_context
        stream_time = context.closing_time(self.store.name, open_ms, context.stream_time())
        emitter = WindowEmitter(forward, context, children, self.store)
        wanted, dirty, changed, delete = emitter.wanted, emitter.dirty, emitter.changed, emitter.delete
        tracked, before, change = emitter.tracked, emitter.before, emitter.change

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            time_ms = record_context.timestamp_ms
            first_ms = (time_ms - overlap_ms) // advance_ms * advance_ms if time_ms > overlap_ms else 0
            closed_ms = stream_time() - open_ms
            if first_ms <= closed_ms:
                first_ms = (closed_ms // advance_ms + 1) * advance_ms
            if key is None or value is None:
                count_null()
                return
            if first_ms > time_ms:
                count_late()
                return
            key_bytes = serialize_key(key)
            for start_ms in range(first_ms, time_ms + 1, advance_ms):
                entry_id = (start_ms, key_bytes)
                entry = get_entry(entry_id)
                old = before(entry_id, entry) if tracked else None
                newest_ms = time_ms
                if entry is None:
                    result = begin(key, value)
                    if result is None:
                        continue
                else:
                    result, entry_ms = entry
                    result = add(key, value, result)
                    if entry_ms > newest_ms:
                        newest_ms = entry_ms
                    if result is None and not tracked:
                        delete(entry_id, Windowed(key, start_ms, start_ms + size_ms), newest_ms)
                        continue
                if tracked:
                    windowed = Windowed(key, start_ms, start_ms + size_ms)
                    change(entry_id, windowed, old, result, newest_ms)
                    continue
                put_entry(entry_id, (result, newest_ms))
                if wanted and entry_id not in dirty:
                    windowed = Windowed(key, start_ms, start_ms + size_ms)
                    changed(entry_id, windowed, (result, newest_ms), born=entry is None)

        return run


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFold:
    """Folds the records of each key per session."""

    fold: Fold
    window: SessionWindow
    store: SessionStoreSpec

    @property
    def type(self) -> str:
        """Kind of node, with gap and grace of its sessions."""
        return f"session_{self.fold.kind}({self.window.gap_ms},{self.window.grace_ms})"

    @property
    def traits(self) -> OperatorTraits:
        """The facts about the operator that the engine uses."""
        return OperatorTraits(
            held_back_ms=self.window.gap_ms + self.window.grace_ms,
            windows={self.store.name: self.window},
            windows_go=True,
        )

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        fold = fold_of(self.fold, context, context.store(self.store.name), alone=context.alone)
        begin, add, merge, empty = fold.begin, fold.add, fold.merge, fold.empty
        gap_ms = self.window.gap_ms
        open_ms = gap_ms + self.window.grace_ms
        serialize_key = context.store(self.store.name).serialize_key
        ids_of = context.store(self.store.name).ids_of
        get_entry = context.store(self.store.name).get_entry
        put_entry = context.store(self.store.name).put_entry
        count_null, count_late = context.counting("null"), context.counting("late")
        record_context = context.record_context
        stream_time = context.closing_time(self.store.name, open_ms, context.stream_time())
        emitter = WindowEmitter(forward, context, children, self.store)
        wanted, dirty, changed, delete = emitter.wanted, emitter.dirty, emitter.changed, emitter.delete
        tracked, before, change = emitter.tracked, emitter.before, emitter.change

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            time_ms = record_context.timestamp_ms
            if key is None or value is None or time_ms < 0:
                count_null()
                return
            key_bytes = serialize_key(key)
            open_from_ms = stream_time() - open_ms
            last_start_ms = time_ms + gap_ms
            candidates = ids_of(key_bytes, (max(open_from_ms, time_ms - gap_ms),))
            ids = [entry_id for entry_id in candidates if entry_id[1] <= last_start_ms]
            if not ids and time_ms < open_from_ms:
                count_late()
                return
            start_ms = end_ms = newest_ms = time_ms
            result = empty() if ids and empty is not None else None
            olds = {entry_id: before(entry_id, get_entry(entry_id)) for entry_id in ids} if tracked else {}
            for entry_id in ids:
                found, entry_ms = get_entry(entry_id)
                result = found if result is None else merge(key, result, found)
                start_ms = min(start_ms, entry_id[1])
                end_ms = max(end_ms, entry_id[0])
                newest_ms = max(newest_ms, entry_ms)
            result = begin(key, value) if result is None else add(key, value, result)
            merged_id = (end_ms, start_ms, key_bytes)
            for entry_id in ids:
                if entry_id != merged_id or result is None:
                    windowed = Windowed(key, entry_id[1], entry_id[0])
                    if tracked:
                        change(entry_id, windowed, olds[entry_id], None, entry_id[0])
                    else:
                        delete(entry_id, windowed, entry_id[0])
            if result is None:
                return
            if tracked:
                windowed = Windowed(key, start_ms, end_ms)
                change(merged_id, windowed, olds.get(merged_id), result, newest_ms)
                return
            put_entry(merged_id, (result, newest_ms))
            if wanted and merged_id not in dirty:
                windowed = Windowed(key, start_ms, end_ms)
                changed(merged_id, windowed, (result, newest_ms), born=merged_id not in ids)

        return run


def _advance_ms(window: TimeWindow) -> int:
    return window.advance_ms if isinstance(window, HoppingWindow) else window.size_ms


class WindowEmitter(TableEmitter):
    """Emits the changes of one task's windowed table, and deletes windows that expire.

    :param forward: function that hands a record to every child.
    :param context: the services of the table's node.
    :param children: the children of the table's node; if none of them wants updates, none are emitted.
    :param store: spec of the table's store.
    """

    def __init__(
        self, forward: Forward, context: NodeContext, children: dict[str, Forward], store: StoreSpec
    ) -> None:
        #: True if a child wants updates.
        self.wanted = any(child is not ignore_updates for child in children.values())
        super().__init__(forward, context, children, store=store.name, cached=store.cached and self.wanted)
        leaving = self._leaving(context, children) if self.cached else None
        bind_expiry(context, context.store(store.name), leaving)

    def changed(self, entry_id: EntryId, windowed: Windowed, entry: Entry, *, born: bool) -> None:
        """Emit a window that was not dirty yet, at once or at the next commit point.

        :param born: True if it was not in the table before.
        """
        if self.cached:
            self.dirty[entry_id] = windowed
            if born:
                self.born.add(entry_id)
        else:
            self.emit(windowed, entry[0], entry[1])

    def change(
        self, key_bytes: EntryId, key: Windowed, old: Entry | None, value: Any, timestamp_ms: int
    ) -> None:
        """Give a window another value and emit it, at once or at the next commit point."""
        super().change(key_bytes, key, old, value, timestamp_ms)
        if value is None and self.cached and self.olds.get(key_bytes, old) is None:
            self.olds.pop(key_bytes, None)
            self.dirty.pop(key_bytes, None)

    def delete(self, key_bytes: EntryId, key: Windowed, timestamp_ms: int) -> None:
        """Delete a window that is in the table."""
        if key_bytes in self.born:
            self._put_entry(key_bytes, None)
            self.born.discard(key_bytes)
            del self.dirty[key_bytes]
        else:
            super().delete(key_bytes, key, timestamp_ms)

    def _leaving(
        self, context: NodeContext, children: dict[str, Forward]
    ) -> Callable[[EntryId, Entry], None]:
        """Make the function that emits the last change of a window that has left the store."""
        code = context.flush_code(children, timestamp_ms="entry_ms")
        with code.block("def leave(entry_id, entry, _node=_node_of_line)"):
            code.line(f"key = {code.name(self.dirty, 'dirty')}.pop(entry_id, None)")
            with code.block("if key is None"):
                code.line("return")
            code.line("value, entry_ms = entry")
            write_copy(
                code, self._handed_on, "value", flat_copy(self._store)
            )  # another store may keep the closed window
            code.line("latest_ms = context.timestamp_ms")
            with code.counted():
                if self.tracked:
                    change, olds = code.name(OldAndNew, "Change"), code.name(self.olds, "olds")
                    absent = code.name(ABSENT, "absent")
                    code.line(f"change = {change}(value, *({olds}.pop(entry_id) or {absent}))")
                    code.place()
                    self.deliveries.write(code, "key", "change", "value")
                else:
                    code.line(f"{code.name(self.born, 'born')}.discard(entry_id)")
                    code.place(for_closures=True)
                    code.forward("key", "value")
            code.line("context.timestamp_ms = latest_ms")
        leave: Callable[[EntryId, Entry], None] = code.function("leave")
        return leave
