"""State stores: one instance per store and task, logged to a changelog topic."""

from __future__ import annotations

from airflow_kstreams.streams.state.in_memory import InMemoryKeyValueStore
from airflow_kstreams.streams.state.key_value_store import KeyValueStore
from airflow_kstreams.streams.topology.nodes import RecordContext, StoreSpec

__all__ = ["InMemoryKeyValueStore", "KeyValueStore", "make_store"]


def make_store(spec: StoreSpec, record_context: RecordContext) -> KeyValueStore:
    """Make a task's instance of a store.

    :param spec: what to make.
    :param record_context: the task's; entries that users put take their timestamp from it.
    """
    return InMemoryKeyValueStore(spec, record_context)
