"""Applies the serdes of a store's spec: refuses keys, explains errors of serdes, and checks that values come
back as they were written.

Rule: a store keeps objects while a task lives, and a later task restores them from bytes. A value that its
serde does not give back unchanged would therefore give other results in the next run, without an error. So
each value is read back before its commit, unless its serde is known to give back all of its type.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from airflow_kstreams.streams.errors import KStreamsError, StateStoreError, StoreSerdeError
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.hints.hidden_values import without_values
from airflow_kstreams.streams.state.stores.survival import kept_types, serde_for, survives

FIX = "give the store the serde of its objects; after a change of format, a new name"

log = logging.getLogger(__name__)


class UnfitKeyError(ValueError):
    """A key that the key serde of a store does not take, or stored bytes that it does not read.

    Unlike a value, which is written later, it belongs to the record being processed: the processing handler
    decides about that, and its error names the record, too.
    """

    own_words = True  # their texts hold no values to hide


def key_serializer(spec: StoreSpec) -> Callable[[Any], bytes]:
    """Return the serializer of a store's keys; it raises UnfitKeyError for others."""
    serialize = spec.key_serde.serialize

    def serialize_key(key: Any) -> bytes:
        try:
            return serialize(key)
        except KStreamsError:
            raise
        except Exception as error:
            raise UnfitKeyError(
                f"store {spec.name!r}: a key of type {_type_name(key)} does not fit its key serde "
                f"{spec.key_serde!r}: {_text_of(error, key)}"
            ) from error

    return serialize_key


def key_deserializer(spec: StoreSpec) -> Callable[[bytes], Any]:
    """Return the deserializer of a store's keys; it raises UnfitKeyError for others."""
    deserialize = spec.key_serde.deserialize

    def deserialize_key(data: bytes) -> Any:
        try:
            return deserialize(data)
        except KStreamsError:
            raise
        except Exception as error:
            raise UnfitKeyError(
                f"store {spec.name!r}: a stored key of {len(data)} B is not of its key serde "
                f"{spec.key_serde!r}: {_text_of(error)}"
            ) from error

    return deserialize_key


class KeyedStore(Protocol):
    """A store that is read by key.

    :ivar serialize_key: the function of :func:`key_serializer`.
    """

    name: str
    serialize_key: Callable[[Any], bytes]


def key_bytes_of(store: KeyedStore, key: Any) -> bytes:
    """Serialize a key that a user gave.

    :raises StateStoreError: the key is None.
    :raises UnfitKeyError: the store's key serde does not take it.
    """
    if key is None:
        raise StateStoreError(
            f"store {store.name!r} was asked for the key None",
            fix="check for null keys before using the store",
        )
    return store.serialize_key(key)


class StoredValues:
    """Serializes and deserializes the values of one store of a task.

    An error of the engine that a serde raises, such as an unreachable registry, is passed on unchanged.

    :param spec: name and serdes.
    :param fix: remedy for a value that does not fit.
    :param put: returns the user's object of a stored value, for messages.
    :ivar kept: types of values that need not be read back.
    """

    __slots__ = ("_fix", "_put", "_spec", "kept")

    def __init__(self, spec: StoreSpec, *, fix: str = FIX, put: Callable[[Any], Any] | None = None) -> None:
        self._spec = spec
        self._put = put
        self._fix = fix
        self.kept = kept_types(spec.value_serde)

    def serialize(self, key: bytes, value: Any) -> bytes:
        """Return a value as bytes.

        :param key: serialized; for the log at DEBUG.
        :raises StoreSerdeError: the serde does not take the value or does not give it back.
        """
        try:
            data = self._spec.value_serde.serialize(value)
        except KStreamsError:
            raise
        except Exception as error:
            raise self.error(key, "a value that does not fit", error, value) from error
        if type(value) not in self.kept:
            self.check(key, value, data)
        return data

    def deserialize(self, key: bytes, data: bytes) -> Any:
        """Return a value that was stored.

        :param key: serialized; for the log at DEBUG.
        :raises StoreSerdeError: the bytes are not of the serde's format.
        """
        try:
            return self._spec.value_serde.deserialize(data)
        except KStreamsError:
            raise
        except Exception as error:
            raise self.error(key, "a changelog record that is not", error) from error

    def check(self, key: bytes, value: Any, data: bytes) -> None:
        """Read back a value.

        :param key: serialized; for the log at DEBUG.
        :param data: the serde's bytes.
        :raises StoreSerdeError: the value that is read back differs.
        """
        try:
            same = survives(value, data, self._spec.value_serde)
        except KStreamsError:
            raise
        except Exception as error:
            raise self.error(key, "a value that cannot be read back by", error, value) from error
        if same:
            return
        if self._put is not None:
            value = self._put(value)
        fitting = serde_for(value)
        serde = f"such as {fitting!r}" if fitting is not None else "such as a Serde of your own"
        raise StoreSerdeError(
            f"{self._place(key)}: found a value of type {_type_name(value)} that {self._spec.value_serde!r} "
            "does not give back as it was: a later run would restore another value",
            fix=f"give the store a serde that keeps the types inside the value, {serde}, and a new name if "
            "it has a changelog already; or put what its serde gives back",
        )

    def error(self, key: bytes, what: str, error: Exception, value: Any = None) -> StoreSerdeError:
        """Return the error of a value that the serde does not take.

        :param key: serialized.
        :param what: the finding, up to the name of the serde: ``a value that does not fit``.
        :param error: the serde's error.
        :param value: the value if there is one; only its type is shown.
        """
        if self._put is not None and value is not None:
            value = self._put(value)
        kind = "" if value is None else f" (type {_type_name(value)})"
        return StoreSerdeError(
            f"{self._place(key)}: found {what} {self._spec.value_serde!r}{kind}: {_text_of(error, value)}",
            fix=self._fix,
        )

    def _place(self, key: bytes) -> str:
        """Return the store and the key's size; only the log at DEBUG shows the key."""
        log.debug("store %r: at the key %r", self._spec.name, key)
        return f"store {self._spec.name!r}, at a key of {len(key)} B"


def _text_of(error: Exception, given: Any = None) -> str:
    """Return the text of a serde's error, without parts of a record.

    :param given: the serde's argument, if that is an object.
    """
    return f"{type(error).__name__}: {without_values(str(error), own=_type_name(given))}"


def _type_name(value: Any) -> str:
    return type(value).__qualname__
