"""The operator that keeps a topic, or another table's values, as a table with versions.

Rule: each record is a version of its key from its own timestamp on, whatever order records come in; a null
value deletes the key from then on. A record from before the store's history is dropped and counted as late.
Every other one is emitted, as in Kafka Streams: the newest of its key with the value that was the latest one
before, and one between others as a :class:`~airflow_kstreams.streams.changes.LateChange`. What is not the
latest must not change a table below; a stream of the changes has it. What the store keeps is written in
:mod:`airflow_kstreams.streams.state.stores.versioned_store`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_kstreams.streams.changes import Change, LateChange
from airflow_kstreams.streams.graph.operator_traits import OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, NodeContext
from airflow_kstreams.streams.graph.store_specs import StoreSpec, VersionedStoreSpec
from airflow_kstreams.streams.kstream.operators.deliveries import ABSENT, Deliveries, Entry
from airflow_kstreams.streams.kstream.operators.tables.table_source import TableSource
from airflow_kstreams.streams.state.stores.versioned_store import LATEST_MS, VersionedStore


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionedSource:
    """Keeps the versions of each key; records without a key are dropped and counted."""

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

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            if key is None:
                count_null()
                return
            key_bytes = serialize_key(key)
            old, old_ms = latest(key_bytes) or ABSENT
            to_ms = put_version(key_bytes, value, record_context.timestamp_ms)
            if to_ms is None:
                count_late()
            elif to_ms == LATEST_MS:
                give(key, Change(value, old, old_ms))
            else:
                give(key, LateChange(value, old, old_ms))

        return run


def keeping(store: StoreSpec) -> TableSource | VersionedSource:
    """Return the operator that keeps a table in a store of a spec's kind."""
    return VersionedSource(store=store) if isinstance(store, VersionedStoreSpec) else TableSource(store=store)


class _StoredVersions:
    """A versioned table of a task, as other nodes read it."""

    def __init__(self, store: VersionedStore, deliveries: Deliveries) -> None:
        self._store, self._deliveries = store, deliveries

    def get(self, key: Any, child: str | None) -> Entry | None:
        """Return the latest entry of a key, as a child knows it."""
        before = self._deliveries.before(key, child)
        return before[0] if before is not None else self._store.latest(self._store.serialize_key(key))

    def get_as_of(self, key: Any, timestamp_ms: int) -> Entry | None:
        """Return the entry of a key as it was at a moment."""
        found = self._store.version_at(self._store.serialize_key(key), timestamp_ms)
        return None if found is None else found[:2]
