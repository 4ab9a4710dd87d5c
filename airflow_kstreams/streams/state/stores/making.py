"""Makes stores: one instance per store and task, of the class registered for its spec.

A new class of stores registers itself where it is defined: ``make_store.register(ItsSpec, ItsStore)``.
"""

from __future__ import annotations

from functools import singledispatch

from airflow_kstreams.streams.graph.services import CurrentRecord
from airflow_kstreams.streams.graph.store_specs import (
    JoinStoreSpec,
    SessionStoreSpec,
    StoreSpec,
    VersionedStoreSpec,
    WindowStoreSpec,
)
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.windowed import session_windowed
from airflow_kstreams.streams.state.stores.expiring_store import SessionStore, WindowStore, window_store_keys
from airflow_kstreams.streams.state.stores.join_store import JoinStore
from airflow_kstreams.streams.state.stores.memory.in_memory import InMemoryKeyValueStore
from airflow_kstreams.streams.state.stores.rocksdb.rocksdb import RocksDBKeyValueStore
from airflow_kstreams.streams.state.stores.rocksdb.rocksdb_join_store import RocksDBJoinStore
from airflow_kstreams.streams.state.stores.state_store import KeyValueStore, StateStore
from airflow_kstreams.streams.state.stores.versioned_store import VersionedStore, versioned_store_values


@singledispatch
def make_store(spec: StoreSpec, record_context: CurrentRecord) -> StateStore:
    """Make a task's instance of a store: of the class registered for the spec's class, else a key-value
    store.

    :param spec: the store's spec.
    :param record_context: the record being processed, whose timestamp users' entries take.
    :raises ConfigError: a package that the store's storage needs is not installed.
    """
    return make_key_value_store(spec, record_context)


def make_key_value_store(spec: StoreSpec, record_context: CurrentRecord) -> KeyValueStore:
    """Make a task's instance of a key-value store, in the storage of its spec.

    :raises ConfigError: a package that the store's storage needs is not installed.
    """
    if spec.storage == "rocksdb":
        return RocksDBKeyValueStore(spec, record_context)
    return InMemoryKeyValueStore(spec, record_context)


@singledispatch
def changelog_keys(spec: StoreSpec) -> Serde:
    """Return the serde of a store's changelog keys: its keys, or ``(key, start_ms)``, or ``Windowed``."""
    return spec.key_serde


@singledispatch
def changelog_values(spec: StoreSpec) -> Serde:
    """Return the serde of a store's changelog values."""
    return spec.value_serde


make_store.register(
    JoinStoreSpec,
    lambda spec, _: RocksDBJoinStore(spec) if spec.storage == "rocksdb" else JoinStore(spec),
)
make_store.register(WindowStoreSpec, WindowStore)
make_store.register(SessionStoreSpec, SessionStore)
make_store.register(VersionedStoreSpec, VersionedStore)
changelog_keys.register(WindowStoreSpec, lambda spec: window_store_keys(spec.key_serde))
changelog_keys.register(SessionStoreSpec, lambda spec: session_windowed(spec.key_serde))
# A version's end follows its key, as a window's start follows its key.
changelog_keys.register(VersionedStoreSpec, lambda spec: window_store_keys(spec.key_serde))
changelog_values.register(VersionedStoreSpec, lambda spec: versioned_store_values(spec.value_serde))
