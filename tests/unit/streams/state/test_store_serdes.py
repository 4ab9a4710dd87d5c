"""An error of the engine's own that a serde raises, such as a registry that is away, stays what it is in
every store: its remedy is the right one, and a retry may help.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import SessionStoreSpec, StoreSpec, WindowStoreSpec, serdes
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.graph.store_specs import JoinStoreSpec
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.state.stores.making import make_store
from tests.support.topology.records import FakeRecord


def _is_away(_: object) -> Any:
    raise KafkaClientError("the registry is away", fix="start it", code="_TRANSPORT", retriable_code=True)


_JSON = serdes.json()
_SERIALIZER_AWAY = Serde(id="json", serialize=_is_away, deserialize=_JSON.deserialize)
_DESERIALIZER_AWAY = Serde(id="json", serialize=_JSON.serialize, deserialize=_is_away)


def _key_value(serde: Serde) -> StoreSpec:
    return StoreSpec(name="s", key_serde=serdes.string(), value_serde=serde)


def _window(serde: Serde) -> StoreSpec:
    return WindowStoreSpec(name="s", key_serde=serdes.string(), value_serde=serde, retention_ms=100)


def _session(serde: Serde) -> StoreSpec:
    return SessionStoreSpec(name="s", key_serde=serdes.string(), value_serde=serde, retention_ms=100)


def _join(serde: Serde) -> StoreSpec:
    return JoinStoreSpec(name="s", key_serde=serdes.string(), value_serde=serde, retention_ms=100)


STORES = pytest.mark.parametrize(
    ("spec", "put"),
    [
        (_key_value, lambda store: store.put("k", 1)),
        (_window, lambda store: store.put("k", 1, 0)),
        (_session, lambda store: store.put("k", 1, 0, 5)),
        (_join, lambda store: store.put(b"k", 0, 1, False)),
    ],
    ids=["key-value", "window", "session", "join"],
)
MakeSpec = Callable[[Serde], StoreSpec]


def _store(spec: StoreSpec) -> Any:
    return make_store(spec, TaskRecordContext(timestamp_ms=7))


@STORES
def test_error_of_the_engine_is_raised_as_it_is_when_changes_are_logged(
    spec: MakeSpec, put: Callable[[Any], object]
) -> None:
    store = _store(spec(_SERIALIZER_AWAY))
    put(store)

    with pytest.raises(KafkaClientError, match="the registry is away") as raised:
        list(store.drain_changes())

    assert raised.value.is_retriable


@STORES
def test_error_of_the_engine_is_raised_as_it_is_when_state_is_restored(
    spec: MakeSpec, put: Callable[[Any], object]
) -> None:
    written = _store(spec(_JSON))
    put(written)
    ((key, value, timestamp_ms),) = written.drain_changes()
    record = FakeRecord(at=0, key_bytes=key, value_bytes=value, timestamp_ms=timestamp_ms)

    with pytest.raises(KafkaClientError, match="the registry is away"):
        _store(spec(_DESERIALIZER_AWAY)).restore_batch([record])
