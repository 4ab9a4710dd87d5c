"""Emits what changed in a table that a task keeps in a store.

Rule: a cached table emits at each commit point, once per key changed since the last one, in order of first
change, the newest value with the entry's timestamp; an uncached one emits with every record. A deleted key is
emitted with None. A key that was not in the table at the last emission and is not now is not emitted: there
is nothing to take back. A table that is tracked, because a table below it takes changes, emits with each new
value the one that it emitted before (:mod:`airflow_kstreams.streams.kstream.operators.deliveries`).

Crash argument: what is dirty is never saved. A crash loses the dirty keys together with the uncommitted
records that made them so; the attempt that resumes reads those records again and, since commit points are
counted in records, emits the same keys in the same order.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow_kstreams.streams.codegen.fold_code import write_reading
from airflow_kstreams.streams.graph.inlining import LoopCode
from airflow_kstreams.streams.graph.services import Forward, NodeContext
from airflow_kstreams.streams.kstream.operators.deliveries import ABSENT, Deliveries, Entry
from airflow_kstreams.streams.serde.changed import OldAndNew


class TableEmitter:
    """Emits what changed in one task's table.

    :param children: those of the table's node.
    :param store: name of the table's store.
    :param cached: whether to emit at commit points only; then registers itself for them.

    :ivar tracked: whether a child takes changes; every change must then be told to :meth:`change`.
    """

    def __init__(
        self,
        forward: Forward,
        context: NodeContext,
        children: Mapping[str, Forward],
        *,
        store: str,
        cached: bool,
    ) -> None:
        #: Serialized key (in a window store, the entry's id) -> key of what changed since the last commit
        #: point; operators write it themselves.
        self.dirty: dict[Any, Any] = {}
        #: Those among them that were not in the table at the last commit point.
        self.born: set[Any] = set()
        #: Of a tracked table: those among them -> their entry at the last commit point.
        self.olds: dict[Any, Entry | None] = {}
        self._deleted: dict[Any, int] = {}
        self._forward = forward
        self._record_context = context.record_context
        self._store = context.store(store)
        self._store_name = store
        self._put_entry = self._store.put_entry
        self.cached = cached
        self.tracked = not context.taking_changes.isdisjoint(children)
        if self.tracked:
            self.deliveries = Deliveries(forward, context, children)
            context.tables[context.node] = self
        if cached:
            self._emit_dirty = (
                self._changes_emission(context, children)
                if self.tracked
                else self._emission(context, children, self._store)
            )
            context.on_flush(self.flush)

    def get(self, key: Any, child: str | None) -> Entry | None:
        """Return the entry of a key of a tracked table, as a child knows it; None for as it is now."""
        key_bytes = self._store.serialize_key(key)
        if child is not None:
            before = self.deliveries.before(key, child)
            if before is not None:
                return before[0]
            if key_bytes in self.olds:
                return self.olds[key_bytes]
        entry: Entry | None = self._store.get_entry(key_bytes)
        return entry

    def before(self, key_bytes: Any, entry: Entry | None) -> Entry | None:
        """Return an entry for :meth:`change` before a function may change its value where it is."""
        if entry is None or not self.tracked or key_bytes in self.olds:
            return entry
        return copy.deepcopy(entry[0]), entry[1]

    def change(self, key_bytes: Any, key: Any, old: Entry | None, value: Any, timestamp_ms: int) -> None:
        """Give a key another value and emit it, at once or at the next commit point.

        :param old: the key's entry before; of a tracked table one whose value nothing changes.
        :param value: None deletes the key.
        """
        if value is None and old is None:
            return
        self._put_entry(key_bytes, None if value is None else (value, timestamp_ms))
        if not self.cached:
            if self.tracked:
                self.emit_change(key, value, old, timestamp_ms)
            else:
                self.emit(key, value, timestamp_ms)
            return
        if key_bytes not in self.dirty:
            self.dirty[key_bytes] = key
            if self.tracked:
                self.olds[key_bytes] = old
            elif old is None:
                self.born.add(key_bytes)
        if value is None:
            self._deleted[key_bytes] = timestamp_ms

    def emit(self, key: Any, value: Any, timestamp_ms: int) -> None:
        """Emit one change at once, with a timestamp of its own."""
        record_context = self._record_context
        before = record_context.timestamp_ms
        record_context.timestamp_ms = timestamp_ms
        self._forward(key, value)
        # The record may still have to visit other children of this node's parent.
        record_context.timestamp_ms = before

    def emit_change(self, key: Any, value: Any, old: Entry | None, timestamp_ms: int) -> None:
        """Emit one change of a tracked table at once, with a timestamp of its own."""
        record_context = self._record_context
        before = record_context.timestamp_ms
        record_context.timestamp_ms = timestamp_ms
        self.deliveries.give(key, OldAndNew(value, *(old or ABSENT)))
        record_context.timestamp_ms = before

    def delete(self, key_bytes: Any, key: Any, timestamp_ms: int) -> None:
        """Delete a key that is in the table."""
        self._put_entry(key_bytes, None)
        if self.cached:
            self.dirty[key_bytes] = key
            self._deleted[key_bytes] = timestamp_ms
        else:
            self.emit(key, None, timestamp_ms)

    def flush(self) -> None:
        """Emit what changed since the last commit point."""
        record_context = self._record_context
        latest_ms = record_context.timestamp_ms
        record_context.emitting = self._store_name
        self._emit_dirty(latest_ms)
        # An error that ends the task leaves the name: what explains it asks for it.
        record_context.emitting = ""
        record_context.timestamp_ms = latest_ms
        self.dirty.clear()
        self.born.clear()
        self._deleted.clear()

    def _changes_emission(
        self, context: NodeContext, children: Mapping[str, Forward]
    ) -> Callable[[int], None]:
        """Make the loop over what is dirty in a tracked table, given the time of the last record."""
        code = context.flush_code(children, timestamp_ms="entry_ms")
        with self._each_dirty(code):
            code.line(f"old = {code.name(self.olds, 'olds')}.pop(key_bytes)")
            write_reading(code, self._store)
            with code.block("elif old is None"):
                code.line("continue")
            self._write_deleted(code)
            change, absent = code.name(OldAndNew, "Change"), code.name(ABSENT, "absent")
            code.line(f"change = {change}(value, *(old or {absent}))")
            code.place()
            self.deliveries.write(code, "key", "change", "value")
        emit_dirty: Callable[[int], None] = code.function("emit_dirty")
        return emit_dirty

    def _emission(
        self, context: NodeContext, children: Mapping[str, Forward], store: Any
    ) -> Callable[[int], None]:
        """Make the loop over what is dirty, given the time of the last record."""
        code = context.flush_code(children, timestamp_ms="entry_ms")
        with self._each_dirty(code):
            write_reading(code, store)
            with code.block(f"elif key_bytes in {code.name(self.born, 'born')}"):
                code.line("continue")
            self._write_deleted(code)
            code.place(for_closures=True)
            code.forward("key", "value")
        emit_dirty: Callable[[int], None] = code.function("emit_dirty")
        return emit_dirty

    @contextmanager
    def _each_dirty(self, code: LoopCode) -> Iterator[None]:
        """Write the loop; what is written meanwhile is its body."""
        with (
            code.block("def emit_dirty(latest_ms, _node=_node_of_line)"),
            code.counted(),
            code.block(f"for key_bytes, key in {code.name(self.dirty, 'dirty')}.items()"),
        ):
            yield

    def _write_deleted(self, code: LoopCode) -> None:
        """Write the value and the time of an entry that is not there."""
        with code.block("else"):
            # A processor that shares the store may have deleted the key: the last record's time must do.
            code.line(
                f"value, entry_ms = None, {code.name(self._deleted, 'deleted')}.get(key_bytes, latest_ms)"
            )
