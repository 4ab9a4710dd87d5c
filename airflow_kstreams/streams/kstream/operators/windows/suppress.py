"""Defines the operator that holds back the results of windows until they close.

Rule: a window is emitted when it closes, once, with its final value and its entry's timestamp; in the order
of closing, then of the window's start, then of the serialized key. It closes by stream time, so also when its
own key sees no more records.

This node holds no windows: they wait as entries of the fold's own store. That store keeps an entry exactly
until its window closes, and hands it over when it expires. So an entry in the store has not been emitted, and
one that was emitted is not in the store, whatever stream time a task starts with.

With ``flush``, the end of each run also emits the windows still open that were not emitted with their present
value yet. A second store holds a mark for each window that readers know: it is set when a run's end emits the
window, outdated by the window's next change, and deleted with the window. A window whose mark is up to date
when it closes is not emitted again. A marked window that is deleted, e.g. a session that grows, is emitted
with None at once, since no later window would take it back.

Crash argument: the output, the tombstones of expired entries and the marks belong to one transaction,
together with the offsets and the stream time that made windows close. A crash before the commit undoes all of
them, so the next attempt closes the same windows after the same records; after the commit the entries are
deleted. The same holds between two runs: the end of a run neither loses nor doubles a window. It can change
which records are late for a window, as it ends the look-ahead of stream time (record_queue.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow_kstreams.streams.graph.nodes import OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, NodeContext, ignore_updates
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.kstream.operators.table_emitter import Deliveries, handed_out
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.internal_serdes import OldAndNew
from airflow_kstreams.streams.state.stores.expiring_store import Entry, EntryId, ExpiringStore

#: Values of a mark: readers know the window's present value, or a former one.
_UP_TO_DATE = 1
_OUTDATED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppress:
    """Emits each window of a table when it closes.

    :param store: spec of the table's store, which keeps entries exactly until their window closes.
    :param windowed_keys: serde of windowed keys; it writes the same bytes as the store's changelog keys.
    :param marks: spec of the store of marks; None with ``hold``.
    """

    store: StoreSpec
    windowed_keys: Serde
    marks: StoreSpec | None

    @property
    def traits(self) -> OperatorTraits:
        """The facts about the operator that the engine uses."""
        return OperatorTraits(closing={self.store.name: "close" if self.marks is None else "run end"})

    @property
    def type(self) -> str:
        """Kind of node."""
        return "suppress" if self.marks is None else "suppress_and_flush"

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Listen to the store; a change that the table forwards only outdates marks."""
        store: ExpiringStore = context.store(self.store.name)
        windowed_key = self.windowed_keys.deserialize
        changelog_key = store.changelog_key
        record_context = context.record_context
        # Each window is emitted once, so there is no old value: with ``flush``, tables below are refused.
        give = Deliveries(forward, context, children).give
        copied = handed_out(store) if context.hands_to_functions else None

        def emit(key: bytes, entry: Entry) -> None:
            before = record_context.timestamp_ms
            record_context.timestamp_ms = entry[1]
            # Another node may keep closed windows, and open ones stay in the store at the end of a run.
            value = entry[0] if copied is None else copied(entry[0])
            give(windowed_key(key), OldAndNew(value, None))
            record_context.timestamp_ms = before

        if self.marks is not None:
            return self._bind_flush(forward, context, self.marks, emit)

        def closed(entry_id: EntryId, entry: Entry, _node: str = context.node) -> None:
            emit(changelog_key(entry_id), entry)

        store.expiry_listeners.append(closed)
        return ignore_updates

    def _bind_flush(
        self,
        forward: Forward,
        context: NodeContext,
        marks: StoreSpec,
        emit: Callable[[bytes, Entry], None],
    ) -> Forward:
        store: ExpiringStore = context.store(self.store.name)
        serialize = self.windowed_keys.serialize
        changelog_key = store.changelog_key
        get_mark = context.store(marks.name).get_entry
        put_mark = context.store(marks.name).put_entry
        marked = context.store(marks.name).approximate_count

        def known(key: bytes) -> bool:
            mark = get_mark(key)
            return mark is not None and mark[0] == _UP_TO_DATE

        def closed(entry_id: EntryId, entry: Entry, _node: str = context.node) -> None:
            key = changelog_key(entry_id)
            if not known(key):
                emit(key, entry)
            put_mark(key, None)

        def at_run_end(_node: str = context.node) -> None:
            for entry_id, entry in store.entries():
                key = changelog_key(entry_id)
                if not known(key):
                    emit(key, entry)
                    put_mark(key, (_UP_TO_DATE, entry[1]))

        def changed(key: Any, value: Any, _node: str = context.node) -> None:
            if not marked():
                return
            windowed_key = serialize(key)
            mark = get_mark(windowed_key)
            if mark is None:
                return
            if value is None:
                put_mark(windowed_key, None)
                forward(key, None)
            elif mark[0] == _UP_TO_DATE:
                put_mark(windowed_key, (_OUTDATED, mark[1]))

        store.expiry_listeners.append(closed)
        context.on_close(at_run_end)
        return changed
