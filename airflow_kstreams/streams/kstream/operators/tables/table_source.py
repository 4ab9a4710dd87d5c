"""Defines the operators that keep a topic, or another table's values, as a table.

Rule: the record with the largest offset of a key is its entry, with that record's timestamp; a null value
deletes the entry, and so does one that the store's serde writes as None: what is below is given None then.
Emission follows the rule of :mod:`airflow_kstreams.streams.kstream.operators.table_emitter`.

A table whose changes go to no node has nothing to emit: it is then not cached, whatever its store says, and
asks for no commit points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_kstreams.streams.graph.nodes import OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, LoopCode, NodeContext
from airflow_kstreams.streams.graph.store_specs import StoreSpec, VersionedStoreSpec
from airflow_kstreams.streams.kstream.operators.table_emitter import (
    ABSENT,
    Deliveries,
    Entry,
    TableEmitter,
    flat_copy,
    handed_out,
    taken_in,
    write_copy,
)
from airflow_kstreams.streams.serde.internal_serdes import LateChange, OldAndNew
from airflow_kstreams.streams.state.stores.value_copies import same
from airflow_kstreams.streams.state.stores.versioned_store import LATEST_MS, VersionedStore


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """Keeps the newest value of each key; records without a key are dropped and counted."""

    store: StoreSpec

    type: ClassVar[str] = "table_source"
    traits: ClassVar[OperatorTraits] = OperatorTraits()

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        store = context.store(self.store.name)
        cached = self.store.cached and bool(children)
        emitter = TableEmitter(forward, context, children, store=self.store.name, cached=cached)
        looked_up = emitter.tracked or cached  # the entry before is needed
        count_null = context.counting("null")
        copied, deletes = None if context.alone else taken_in(store), store.deletes

        def delete(key: Any, key_bytes: bytes, timestamp_ms: int) -> None:
            entry = store.get_entry(key_bytes)
            if emitter.tracked:
                emitter.change(key_bytes, key, entry, None, timestamp_ms)
            elif entry is not None:
                emitter.delete(key_bytes, key, timestamp_ms)

        def write(code: LoopCode, key: str, value: str) -> None:
            key_bytes, entry = map(code.variable, ("key_bytes", "entry"))
            timestamp_ms = code.timestamp_ms
            with code.block(f"if {key} is None"):
                code.line(f"{code.name(count_null, 'count_null')}()")
            with code.block("else"):
                serialized = code.serialized(key, store.spec.key_serde, store.serialize_key)
                code.line(f"{key_bytes} = {serialized}")
                gone = f"{value} is None"
                if deletes is not None:
                    gone += f" or {code.name(deletes, 'deletes')}({value})"
                with code.block(f"if {gone}"):
                    code.place()
                    code.line(f"{code.name(delete, 'delete')}({key}, {key_bytes}, {timestamp_ms})")
                with code.block("else"):
                    if looked_up:
                        code.line(f"{entry} = {code.name(store.get_entry, 'get_entry')}({key_bytes})")
                    put_entry, held = code.name(store.put_entry, "put_entry"), value
                    if copied is not None:
                        held = code.variable("held")
                        code.line(f"{held} = {value}")
                        write_copy(code, copied, held, flat_copy(store))
                    code.line(f"{put_entry}({key_bytes}, ({held}, {timestamp_ms}))")
                    write_emission(code, key, key_bytes, value, entry)

        def write_emission(code: LoopCode, key: str, key_bytes: str, value: str, entry: str) -> None:
            """Write the lines that emit an entry after it was put."""
            if cached:
                dirty = code.name(emitter.dirty, "dirty")
                with code.block(f"if {key_bytes} not in {dirty}"):
                    code.line(f"{dirty}[{key_bytes}] = {key}")
                    if emitter.tracked:
                        code.line(f"{code.name(emitter.olds, 'olds')}[{key_bytes}] = {entry}")
                    else:
                        with code.block(f"if {entry} is None"):
                            code.line(f"{code.name(emitter.born, 'born')}.add({key_bytes})")
            elif children:
                code.place()
                emit = code.name(emitter.emit_change if emitter.tracked else emitter.emit, "emit")
                change = f"{value}, {entry}" if emitter.tracked else value
                code.line(f"{emit}({key}, {change}, {code.timestamp_ms})")

        return context.written(write, forward, children)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionedSource:
    """Keeps the versions of each key; records without a key are dropped and counted.

    Rule: each record is a version of its key from its own timestamp on, whatever order records come in; a
    null value deletes the key from then on. A record from before the store's history is dropped and counted
    as late. Every other one is emitted, as in Kafka Streams: the newest of its key with the value that was
    the latest one before, and one between others as a
    :class:`~airflow_kstreams.streams.serde.internal_serdes.LateChange`. A version that is not the latest must
    not change a table below; a stream of the changes has it. The rule of the store stands in
    :mod:`airflow_kstreams.streams.state.stores.versioned_store`.
    """

    store: VersionedStoreSpec

    type: ClassVar[str] = "versioned_source"
    traits: ClassVar[OperatorTraits] = OperatorTraits()

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        store: VersionedStore = context.store(self.store.name)
        serialize_key, latest, put_version = store.serialize_key, store.latest, store.put_version
        count_null, count_late = context.counting("null"), context.counting("late")
        record_context = context.record_context
        deliveries = Deliveries(forward, context, children)
        context.tables[context.node] = _StoredVersions(store, deliveries)
        give = deliveries.give
        held, handed = taken_in(store) or same, handed_out(store) or same
        deletes = store.deletes

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            if key is None:
                count_null()
                return
            key_bytes = serialize_key(key)
            if deletes is not None and deletes(value):
                value = None
            old, old_ms = latest(key_bytes) or ABSENT
            old = handed(old)
            to_ms = put_version(key_bytes, held(value), record_context.timestamp_ms)
            if to_ms is None:
                count_late()
            elif to_ms == LATEST_MS:
                give(key, OldAndNew(value, old, old_ms))
            else:
                give(key, LateChange(value, old, old_ms))

        return run


def keeping(store: StoreSpec) -> TableSource | VersionedSource:
    """Return the operator that keeps a table in a store of this spec."""
    return VersionedSource(store=store) if isinstance(store, VersionedStoreSpec) else TableSource(store=store)


class _StoredVersions:
    """A versioned table of a task, for other nodes to read."""

    def __init__(self, store: VersionedStore, deliveries: Deliveries) -> None:
        self._store, self._deliveries = store, deliveries

    def get(self, key: Any, child: str | None) -> Entry | None:
        """Return the latest entry of a key with the changes that ``child`` has been given; None for all."""
        before = self._deliveries.before(key, child)
        if before is not None:
            return before[0]
        return self._apart(self._store.latest(self._store.serialize_key(key)))

    def get_as_of(self, key: Any, timestamp_ms: int) -> Entry | None:
        """Return the entry of a key at a time, epoch milliseconds."""
        found = self._store.version_at(self._store.serialize_key(key), timestamp_ms)
        return self._apart(None if found is None else found[:2])

    def _apart(self, entry: Entry | None) -> Entry | None:
        return None if entry is None else ((handed_out(self._store) or same)(entry[0]), entry[1])
