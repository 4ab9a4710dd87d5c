"""State stores: one instance per store and task, logged to a changelog topic."""

from __future__ import annotations

from airflow_kstreams.streams.graph.services import RecordContext
from airflow_kstreams.streams.graph.store_specs import (
    JoinStoreSpec,
    SessionStoreSpec,
    StoreSpec,
    WindowStoreSpec,
)
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.windowed import session_windowed
from airflow_kstreams.streams.state.stores.in_memory import InMemoryKeyValueStore
from airflow_kstreams.streams.state.stores.join_store import JoinStore
from airflow_kstreams.streams.state.stores.key_value_store import KeyValueStore
from airflow_kstreams.streams.state.stores.rocksdb import RocksDBKeyValueStore
from airflow_kstreams.streams.state.stores.session_store import SessionStore
from airflow_kstreams.streams.state.stores.state_store import PersistentStore, StateStore, restore_each
from airflow_kstreams.streams.state.stores.window_store import WindowStore, window_store_keys

__all__ = [
    "InMemoryKeyValueStore",
    "JoinStore",
    "KeyValueStore",
    "PersistentStore",
    "RocksDBKeyValueStore",
    "SessionStore",
    "StateStore",
    "WindowStore",
    "changelog_keys",
    "make_key_value_store",
    "make_store",
    "restore_each",
]


def make_store(spec: StoreSpec, record_context: RecordContext) -> StateStore:
    """Make a task's instance of a store: for a window or session spec, a store of that kind.

    :param spec: what to make.
    :param record_context: the task's; entries that users put take their timestamp from it.
    :raises ConfigError: a package that the store's storage needs is not installed.
    """
    if isinstance(spec, JoinStoreSpec):
        return JoinStore(spec)
    if isinstance(spec, WindowStoreSpec):
        return WindowStore(spec, record_context)
    if isinstance(spec, SessionStoreSpec):
        return SessionStore(spec, record_context)
    return make_key_value_store(spec, record_context)


def make_key_value_store(spec: StoreSpec, record_context: RecordContext) -> KeyValueStore:
    """Make a task's instance of a key-value store, in memory or on disk as its spec says.

    :raises ConfigError: a package that the store's storage needs is not installed.
    """
    if spec.storage == "rocksdb":
        return RocksDBKeyValueStore(spec, record_context)
    return InMemoryKeyValueStore(spec, record_context)


def changelog_keys(spec: StoreSpec) -> Serde:
    """Return the serde of a store's changelog keys: its keys, or ``(key, start_ms)``, or ``Windowed``."""
    if isinstance(spec, WindowStoreSpec):
        return window_store_keys(spec.key_serde)
    return session_windowed(spec.key_serde) if isinstance(spec, SessionStoreSpec) else spec.key_serde
