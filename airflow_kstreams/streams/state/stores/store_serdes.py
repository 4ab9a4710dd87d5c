"""How a store uses the serdes of its spec: which keys it refuses, and what it raises when a serde fails."""

from __future__ import annotations

from typing import Any

from airflow_kstreams.streams.errors import StateStoreError
from airflow_kstreams.streams.graph.store_specs import StoreSpec

_FIX = "give the store the serde of what is put into it; after a change of format, a new name"


def key_bytes_of(spec: StoreSpec, key: Any) -> bytes:
    """Serialize a key that a user gave.

    :raises StateStoreError: the key is None.
    """
    if key is None:
        raise StateStoreError(
            f"store {spec.name!r} was asked for the key None",
            fix="check for null keys before using the store",
        )
    return spec.key_serde.serialize(key)


def serde_error(spec: StoreSpec, what: str, error: Exception, *, fix: str = _FIX) -> StateStoreError:
    """Describe a value that the value serde of a store does not take.

    :param what: what was found, up to the name of the serde: ``a value that does not fit``.
    :param error: what the serde raised.
    """
    return StateStoreError(
        f"store {spec.name!r}: found {what} {spec.value_serde!r}: {type(error).__name__}: {error}", fix=fix
    )
