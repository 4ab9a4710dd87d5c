"""State stores: one instance per store and task, logged to a changelog topic."""

from __future__ import annotations

from typing import cast

from airflow_kstreams.streams.state.in_memory import InMemoryKeyValueStore
from airflow_kstreams.streams.state.join_store import JoinStore
from airflow_kstreams.streams.state.key_value_store import KeyValueStore
from airflow_kstreams.streams.topology.nodes import JoinStoreSpec, RecordContext, StoreSpec

__all__ = ["InMemoryKeyValueStore", "JoinStore", "KeyValueStore", "make_store"]


def make_store(spec: StoreSpec, record_context: RecordContext) -> KeyValueStore:
    """Make a task's instance of a store.

    :param spec: what to make.
    :param record_context: the task's; entries that users put take their timestamp from it.
    """
    if isinstance(spec, JoinStoreSpec):
        # Tasks and tests use what all stores have in common; the rest is for the join's own nodes.
        return cast("KeyValueStore", JoinStore(spec))
    return InMemoryKeyValueStore(spec, record_context)
