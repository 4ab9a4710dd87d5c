"""State stores: one instance per store and task, logged to a changelog topic."""

from __future__ import annotations

from airflow_kstreams.streams.state.in_memory import InMemoryKeyValueStore
from airflow_kstreams.streams.state.key_value_store import KeyValueStore, PersistentStore, restore_each
from airflow_kstreams.streams.state.rocksdb import RocksDBKeyValueStore
from airflow_kstreams.streams.topology.nodes import RecordContext, StoreSpec

__all__ = [
    "InMemoryKeyValueStore",
    "KeyValueStore",
    "PersistentStore",
    "RocksDBKeyValueStore",
    "make_store",
    "restore_each",
]


def make_store(spec: StoreSpec, record_context: RecordContext) -> KeyValueStore:
    """Make a task's instance of a store.

    :param spec: what to make.
    :param record_context: the task's; entries that users put take their timestamp from it.
    :raises ConfigError: a package that the store's storage needs is not installed.
    """
    if spec.storage == "rocksdb":
        return RocksDBKeyValueStore(spec, record_context)
    return InMemoryKeyValueStore(spec, record_context)
