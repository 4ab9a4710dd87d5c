"""Gives users a key-value store of Python objects, over entries by serialized key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from airflow_kstreams.streams.graph.services import CurrentRecord
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.hints.function_checks import shown_as
from airflow_kstreams.streams.hints.java_names import answers_java_names
from airflow_kstreams.streams.state.stores.store_serdes import (
    StoredValues,
    deletes_of,
    key_bytes_of,
    key_serializer,
)
from airflow_kstreams.streams.state.stores.value_copies import ValueCopies, copies_of, same

Entry = tuple[Any, int]


@answers_java_names
@shown_as("KeyValueStore")
class KeyedAccess(ABC):
    """The part of :class:`KeyValueStore` that is the same in memory and on disk.

    :param spec: the store's spec.
    :param record_context: the record being processed, whose timestamp entries take.
    """

    #: Closures and C functions, set in constructors: operators call them for every record.
    get_entry: Callable[[bytes], Entry | None]
    put_entry: Callable[[bytes, Entry | None], None]

    def __init__(self, spec: StoreSpec, record_context: CurrentRecord) -> None:
        self.spec = spec
        self.name = spec.name
        self.stored_values = StoredValues(spec)
        #: Copy values; None if these never change.
        self.copies = copies_of(spec)
        #: Says whether a value deletes its entry; None if none but None does.
        self.deletes = deletes_of(spec.value_serde)
        unchanged = ValueCopies(same, same, None)
        self._taken_in, self._handed_out, _ = self.copies or unchanged
        self.serialize_key = key_serializer(spec)
        self._context = record_context

    def get(self, key: Any) -> Any:
        """Return the value of a key, None if there is none."""
        entry = self.get_entry(key_bytes_of(self, key))
        return None if entry is None else self._handed_out(entry[0])

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key; None, or one that the serde writes as None, deletes it."""
        if self.deletes is not None and self.deletes(value):
            value = None
        entry = None if value is None else (self._taken_in(value), self._context.timestamp_ms)
        self.put_entry(key_bytes_of(self, key), entry)

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Set the value of a key that has none, else return the one it has."""
        found = self.get(key)
        if found is None:
            self.put(key, value)
        return found

    def delete(self, key: Any) -> Any:
        """Delete a key and return the value it had."""
        found = self.get(key)
        self.put_entry(key_bytes_of(self, key), None)
        return found

    def range(self, first: Any, last: Any) -> Iterator[tuple[Any, Any]]:
        """Iterate over (key, value) from first to last, both included, as they are now."""
        low = None if first is None else key_bytes_of(self, first)
        high = None if last is None else key_bytes_of(self, last)
        return self._between(low, high)

    def all(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over every (key, value), as they are now."""
        return self._between(None, None)

    @abstractmethod
    def _between(self, low: bytes | None, high: bytes | None) -> Iterator[tuple[Any, Any]]:
        """Iterate over (key, value) in the order of serialized keys; None leaves an end open."""


def in_bounds(key: bytes, low: bytes | None, high: bytes | None) -> bool:
    """Return True if a key lies between two others, both included; None leaves an end open."""
    return (low is None or low <= key) and (high is None or key <= high)
