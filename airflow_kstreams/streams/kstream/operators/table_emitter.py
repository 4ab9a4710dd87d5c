"""Emits the changes of a table that a task keeps in a store, with old and new values where a table below
takes them, and lets one table read another.

Rule: a cached table emits at each commit point, once per key changed since the last one, in order of first
change, the newest value with the entry's timestamp; an uncached one emits with every record. A deleted key is
emitted with None. A key that was not in the table at the last emission and is not now is not emitted: there
is nothing to take back. A table that is tracked, because a table below it takes changes, emits with each new
value the one that it emitted before.

**Changes.** A node that keeps or derives a table hands each child either the new value of a key or an
:class:`~airflow_kstreams.streams.serde.internal_serdes.OldAndNew` of new and old value. The trait
``old_values`` of the child's operator decides, so streams, sinks and ``suppress`` see new values only. Where
no node below needs old values, none are computed.

**Old values.** A table with a store has them there: the entry before the record. A cached
table emits once per key and commit point; its old value is the one of the last emission, which it remembers
from the key's first change after that (``TableEmitter.olds``) until it emits the key. A table without a store
computes its old value from its parent's: the function of ``map_values`` runs on both. Aggregators may change
their aggregate in place, so of an aggregate a copy is remembered.

**Copies.** A table hands on a copy of the value in its store, except to sinks: functions below may change it
(:mod:`airflow_kstreams.streams.state.stores.value_copies`). Children that share a value share one copy, as in
Kafka Streams.

**Null is deletion.** A change whose new value is None deletes the key; one without old value adds it. A table
without a store never emits a change from None to None where Kafka Streams would not.

**Reading a table.** A join needs the other table's value of a key, whether that table has a store or not.
Every table therefore answers ``get`` (Java's ``KTableValueGetter``): from its store, or by its function from
its parent's answer. The difference to Java: Java answers with the table's present value, cached changes
included. Here a join sees the other table **with the changes that it has been given**: without those that
wait for a commit point, and without a change that has not reached it yet.

Invariant: at every moment, the changes that a child has been given add up to what its parent's ``get``
answers for that child. So a result that is taken back is always one that was given before, and sums of new
minus old values are right for tables of any shape, also where two tables that are joined have cached stores,
or come from one table. (Kafka Streams takes back results that it never gave in both cases, KAFKA-4609.) The
price is an intermediate result: of two changes that Java would join with each other twice, the first is
joined with the other side's earlier value here. The last result is the same, and where each record is
committed alone and the tables come from different topics, so is every other.

A join of a stream with a table without a store reads the table with all changes, as with a store.

**Crash argument.** Dirty keys, and values remembered between two commit points, are never saved: at a commit
point every cached table has emitted, in topological order, so no value is remembered there, and a table's
store holds the emitted entries. A crash loses the dirty keys together with the uncommitted records that made
them so; the attempt that resumes reads those records again and, since commit points are counted in records,
emits the same keys in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow_kstreams.streams.graph.services import Forward, LoopCode, NodeContext
from airflow_kstreams.streams.serde.internal_serdes import OldAndNew
from airflow_kstreams.streams.state.stores.keyed_access import KeyedAccess
from airflow_kstreams.streams.state.stores.memory.in_memory import InMemoryKeyValueStore
from airflow_kstreams.streams.state.stores.value_copies import (
    IMMUTABLE,
    FlatCopy,
    ValueCopies,
    all_immutable,
    is_unchanged,
    kept_if_copyable,
)

#: (value, timestamp_ms) of a key.
Entry = tuple[Any, int]
#: The value and timestamp for a key without entry.
ABSENT: tuple[None, int] = (None, -1)


class TableEmitter:
    """Emits the changes of one task's table.

    :param forward: function that hands a record to every child.
    :param context: the services of the table's node.
    :param children: the children of the table's node.
    :param store: name of the table's store.
    :param cached: True to emit at commit points only, for which the emitter then registers itself.

    :ivar tracked: True if a child takes changes; every change must then go through :meth:`change`.
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
        #: Serialized key (in a window store, the entry's id) -> key, of each key that changed since the last
        #: commit point; operators write it themselves.
        self.dirty: dict[Any, Any] = {}
        #: The changed keys that were not in the table at the last commit point, serialized.
        self.born: set[Any] = set()
        #: In a tracked table: changed key, serialized -> its entry at the last commit point.
        self.olds: dict[Any, Entry | None] = {}
        self._deleted: dict[Any, int] = {}
        self._forward = forward
        self._record_context = context.record_context
        self._store = context.store(store)
        self._store_name = store
        self._put_entry = self._store.put_entry
        #: Copies a value of the store; None if values never change.
        self._copied = handed_out(self._store)
        #: Copies a value to emit; None if values never change, or go to sinks only.
        self._handed_on = self._copied if context.hands_to_functions else None
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
        """Return the entry of a key of a tracked table.

        :param child: name of the child whose changes so far count; None for all changes.
        """
        key_bytes = self._store.serialize_key(key)
        if child is not None:
            before = self.deliveries.before(key, child)
            if before is not None:
                return before[0]
            if key_bytes in self.olds:
                return self._apart(self.olds[key_bytes])
        return self._apart(self._store.get_entry(key_bytes))

    def _apart(self, entry: Entry | None) -> Entry | None:
        return entry if entry is None or self._copied is None else (self._copied(entry[0]), entry[1])

    def before(self, key_bytes: Any, entry: Entry | None) -> Entry | None:
        """Return an entry for :meth:`change`, copied where a function may change its value in place."""
        if entry is None or not self.tracked or key_bytes in self.olds:
            return entry
        return self._apart(entry)

    def change(self, key_bytes: Any, key: Any, old: Entry | None, value: Any, timestamp_ms: int) -> None:
        """Give a key another value and emit it, at once or at the next commit point.

        :param old: the key's entry before; in a tracked table the result of :meth:`before`.
        :param value: the new value; None deletes the key.
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
        self._forward(key, value if self._handed_on is None else self._handed_on(value))
        # The record may still have to visit other children of this node's parent.
        record_context.timestamp_ms = before

    def emit_change(self, key: Any, value: Any, old: Entry | None, timestamp_ms: int) -> None:
        """Emit one change of a tracked table at once, with a timestamp of its own."""
        record_context = self._record_context
        before = record_context.timestamp_ms
        record_context.timestamp_ms = timestamp_ms
        if self._handed_on is not None:
            value = self._handed_on(value)
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
        """Emit the changes since the last commit point."""
        record_context = self._record_context
        latest_ms = record_context.timestamp_ms
        record_context.emitting = self._store_name
        self._emit_dirty(latest_ms)
        # An error that ends the task leaves the name: its explanation names the store.
        record_context.emitting = ""
        record_context.timestamp_ms = latest_ms
        self.dirty.clear()
        self.born.clear()
        self._deleted.clear()

    def _changes_emission(
        self, context: NodeContext, children: Mapping[str, Forward]
    ) -> Callable[[int], None]:
        """Make the function that emits each changed key of a tracked table, given the time of the last
        record.
        """
        code = context.flush_code(children, timestamp_ms="entry_ms")
        with self._each_dirty(code):
            code.line(f"old = {code.name(self.olds, 'olds')}.pop(key_bytes)")
            _write_reading(code, self._store)
            with code.block("elif old is None"):
                code.line("continue")
            self._write_deleted(code)
            write_copy(code, self._handed_on, "value", flat_copy(self._store))
            change, absent = code.name(OldAndNew, "Change"), code.name(ABSENT, "absent")
            code.line(f"change = {change}(value, *(old or {absent}))")
            code.place()
            self.deliveries.write(code, "key", "change", "value")
        emit_dirty: Callable[[int], None] = code.function("emit_dirty")
        return emit_dirty

    def _emission(
        self, context: NodeContext, children: Mapping[str, Forward], store: Any
    ) -> Callable[[int], None]:
        """Make the function that emits each changed key, given the time of the last record."""
        code = context.flush_code(children, timestamp_ms="entry_ms")
        with self._each_dirty(code):
            _write_reading(code, store)
            with code.block(f"elif key_bytes in {code.name(self.born, 'born')}"):
                code.line("continue")
            self._write_deleted(code)
            write_copy(code, self._handed_on, "value", flat_copy(self._store))
            code.place(for_closures=True)
            code.forward("key", "value")
        emit_dirty: Callable[[int], None] = code.function("emit_dirty")
        return emit_dirty

    @contextmanager
    def _each_dirty(self, code: LoopCode) -> Iterator[None]:
        """Write the loop over changed keys; the lines written in the ``with`` block are its body."""
        with (
            code.block("def emit_dirty(latest_ms, _node=_node_of_line)"),
            code.counted(),
            code.block(f"for key_bytes, key in {code.name(self.dirty, 'dirty')}.items()"),
        ):
            yield

    def _write_deleted(self, code: LoopCode) -> None:
        """Write the value and the time of a deleted entry."""
        with code.block("else"):
            # A processor that shares the store may have deleted the key: the last record's time must do.
            code.line(
                f"value, entry_ms = None, {code.name(self._deleted, 'deleted')}.get(key_bytes, latest_ms)"
            )


class Deliveries:
    """Hands a table's changes to its children, one after another, and keeps the place of the current one.

    :param forward: function that hands a value to every child.
    :param context: the services of the table's node.
    :param children: the children of the table's node.
    """

    def __init__(self, forward: Forward, context: NodeContext, children: Mapping[str, Forward]) -> None:
        taking = context.taking_changes
        if taking.isdisjoint(children):
            self._edges: tuple[tuple[Forward, bool], ...] = ((forward, False),)
        else:
            self._edges = tuple((child, name in taking) for name, child in children.items())
        self._places = {name: place for place, name in enumerate(children)}
        self._place = len(self._edges)
        self._key: Any = None
        self._change: OldAndNew | None = None
        #: Hands one change to every child, in build order. An only child gets each change at once.
        self.give: Callable[[Any, OldAndNew], None] = self._to_all
        if len(self._edges) == 1:
            ((child, takes),) = self._edges
            self.give = child if takes else lambda key, change: child(key, change.new)

    def _to_all(self, key: Any, change: OldAndNew) -> None:
        self._key = key
        self._change = change
        for place, (child, takes) in enumerate(self._edges):
            self._place = place
            child(key, change if takes else change.new)
        self._place = len(self._edges)

    def write(self, code: LoopCode, key: str, change: str, new: str) -> None:
        """Write the lines that hand one change to every child.

        :param key: name of the variable that holds the key.
        :param change: name of the variable that holds the change.
        :param new: name of the variable that holds the change's new value.
        """
        if len(self._edges) == 1:
            ((_, takes),) = self._edges
            code.forward(key, change if takes else new)
        else:
            code.line(f"{code.name(self.give, 'give')}({key}, {change})")

    def before(self, key: Any, child: str | None) -> tuple[Entry | None] | None:
        """Return, in a tuple, the entry before the current change of a key that a child has not been given
        yet; None if there is no such change.
        """
        change = self._change
        if child is None or change is None or self._place >= self._places[child]:
            return None
        if key is not self._key and not is_unchanged(key, self._key):
            return None
        return (None,) if change.old is None else ((kept_if_copyable(change.old), change.old_ms),)


def taken_in(store: Any) -> Callable[[Any], Any] | None:
    """Return the function that copies a value into a store; None if its values never change."""
    copies: ValueCopies | None = store.copies
    return None if copies is None else copies.taken_in


def handed_out(store: Any) -> Callable[[Any], Any] | None:
    """Return the function that copies a value out of a store; None if its values never change."""
    copies: ValueCopies | None = store.copies
    return None if copies is None else copies.handed_out


def flat_copy(store: Any) -> FlatCopy | None:
    """Return the flat copy that is enough for most values of a store; None if there is none."""
    copies: ValueCopies | None = store.copies
    return None if copies is None else copies.flat


def write_copy(
    code: LoopCode, copied: Callable[[Any], Any] | None, variable: str, flat: FlatCopy | None
) -> None:
    """Write the lines that replace a variable's object by a copy.

    :param copied: function that makes the copy; None to write nothing.
    :param variable: name of the variable.
    :param flat: the flat copy that is enough for most objects, which the lines make themselves.
    """
    if copied is None:
        return
    if flat is not None:
        with code.block(f"if type({variable}) is {code.name(flat.cls, 'flat_class')}"):
            code.line(f"{variable} = {code.name(flat.copied, 'copied_flat')}({variable})")
    else:
        plain = f"type({variable}) is dict and {code.name(all_immutable, 'all_immutable')}"
        with code.block(f"if {plain}(map(type, {variable}.values()))"):
            code.line(f"{variable} = {variable}.copy()")
    with code.block(f"elif type({variable}) not in {code.name(IMMUTABLE, 'immutable')}"):
        code.line(f"{variable} = {code.name(copied, 'copied')}({variable})")


def _write_reading(code: LoopCode, store: Any) -> None:
    """Write ``if`` with the lines that read ``value`` and ``entry_ms`` of the entry of ``key_bytes``.

    :param store: the table's store, of any kind.
    """
    if isinstance(store, KeyedAccess):
        code.has_bytes("key", "key_bytes", store.spec.key_serde)
    if isinstance(store, InMemoryKeyValueStore):
        code.line(f"entry = {code.name(store.cells.get, 'find')}(key_bytes)")
    else:
        code.line(f"entry = {code.name(store.get_entry, 'get_entry')}(key_bytes)")
    with code.block("if entry is not None"):
        if isinstance(store, InMemoryKeyValueStore):
            code.line("entry.noted = False")
            code.line("value, entry_ms = entry.value, entry.timestamp_ms")
        else:
            code.line("value, entry_ms = entry")
