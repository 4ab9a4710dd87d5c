"""State stores: one instance per store and task, logged to a changelog topic."""

from __future__ import annotations

from typing import cast

from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.windowed import session_windowed
from airflow_kstreams.streams.state.in_memory import InMemoryKeyValueStore
from airflow_kstreams.streams.state.join_store import JoinStore
from airflow_kstreams.streams.state.key_value_store import KeyValueStore
from airflow_kstreams.streams.state.session_store import SessionStore
from airflow_kstreams.streams.state.window_store import WindowStore, window_store_keys
from airflow_kstreams.streams.topology.nodes import (
    JoinStoreSpec,
    RecordContext,
    SessionStoreSpec,
    StoreSpec,
    WindowStoreSpec,
)

__all__ = [
    "InMemoryKeyValueStore",
    "JoinStore",
    "KeyValueStore",
    "SessionStore",
    "WindowStore",
    "changelog_keys",
    "make_store",
]


def make_store(spec: StoreSpec, record_context: RecordContext) -> KeyValueStore:
    """Make a task's instance of a store: for a window or session spec, a store of that kind.

    :param spec: what to make.
    :param record_context: the task's; entries that users put take their timestamp from it.
    """
    if isinstance(spec, JoinStoreSpec):
        # Tasks and tests use what all stores have in common; the rest is for the join's own nodes.
        return cast("KeyValueStore", JoinStore(spec))
    if isinstance(spec, WindowStoreSpec):
        return cast("KeyValueStore", WindowStore(spec, record_context))
    if isinstance(spec, SessionStoreSpec):
        return cast("KeyValueStore", SessionStore(spec, record_context))
    return InMemoryKeyValueStore(spec, record_context)


def changelog_keys(spec: StoreSpec) -> Serde:
    """Return the serde of a store's changelog keys: its keys, or ``(key, start_ms)``, or ``Windowed``."""
    if isinstance(spec, WindowStoreSpec):
        return window_store_keys(spec.key_serde)
    return session_windowed(spec.key_serde) if isinstance(spec, SessionStoreSpec) else spec.key_serde
