"""The operator that keeps a topic as a table.

Rule: the record with the largest offset of a key is its entry, with that record's timestamp; a null value
deletes the entry. What is emitted, and when, is the rule of
:mod:`airflow_kstreams.streams.kstream.operators.aggregation`.

A table whose changes go to no node has nothing to emit: it is then not cached, whatever its store says, and
asks for no commit points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_kstreams.streams.graph.nodes import Forward
from airflow_kstreams.streams.graph.services import NodeContext
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.kstream.operators.aggregation import TableEmitter


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """Keeps the newest value of each key; records without a key are dropped and counted."""

    store: StoreSpec

    type: ClassVar[str] = "table_source"

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        cached = self.store.cached and bool(children)
        serialize_key = context.store(self.store.name).serialize_key
        get_entry = context.store(self.store.name).get_entry
        put_entry = context.store(self.store.name).put_entry
        count_null = context.counting("null")
        record_context = context.record_context
        emitter = TableEmitter(forward, context, children, store=self.store.name, cached=cached)
        dirty, born, emit, delete = emitter.dirty, emitter.born, emitter.emit, emitter.delete
        change = emitter.change

        def run_tracked(key: Any, value: Any, _node: str = context.node) -> None:
            if key is None:
                count_null()
                return
            key_bytes = serialize_key(key)
            change(key_bytes, key, get_entry(key_bytes), value, record_context.timestamp_ms)

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            if key is None:
                count_null()
                return
            key_bytes = serialize_key(key)
            timestamp_ms = record_context.timestamp_ms
            present = get_entry(key_bytes) is not None
            if value is None:
                if present:
                    delete(key_bytes, key, timestamp_ms)
                return
            put_entry(key_bytes, (value, timestamp_ms))
            if not cached:
                emit(key, value, timestamp_ms)
                return
            if not present and key_bytes not in dirty:
                born.add(key_bytes)
            dirty[key_bytes] = key

        return run_tracked if emitter.tracked else run
