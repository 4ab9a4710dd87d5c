"""Defines key-value stores for users, operators, and the task that logs and restores them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from airflow_kstreams.streams.state.stores.state_store import StateStore
from airflow_kstreams.streams.type_variables import K, V


class KeyValueStore(StateStore, Protocol[K, V]):
    """One task's instance of a store of one value per key.

    Keys and values are Python objects, written in the serdes of the store's spec. A value handed out by
    ``get``, ``range`` or ``all`` belongs to the store: change it only to ``put`` it back, else the change
    misses the changelog. Order is that of the serialized keys, so that it is the same after a restore.
    """

    def get(self, key: K) -> V | None:
        """Return the value of a key, None if there is none."""
        ...

    def put(self, key: K, value: V | None) -> None:
        """Set the value of a key; None deletes it. The entry takes the timestamp of the record being
        processed.
        """
        ...

    def put_if_absent(self, key: K, value: V) -> V | None:
        """Set the value of a key that has none.

        :return: the value found, or None when there was none and the new one was set.
        """
        ...

    def delete(self, key: K) -> V | None:
        """Delete a key and return the value it had, None if there was none."""
        ...

    def range(self, first: K | None, last: K | None) -> Iterator[tuple[K, V]]:
        """Iterate over (key, value) from first to last, both included; None leaves an end open."""
        ...

    def all(self) -> Iterator[tuple[K, V]]:
        """Iterate over every (key, value)."""
        ...

    def get_entry(self, key: bytes) -> tuple[Any, int] | None:
        """Return (value, timestamp_ms) of a serialized key, None if there is none."""
        ...

    def put_entry(self, key: bytes, entry: tuple[Any, int] | None) -> None:
        """Set (value, timestamp_ms) of a serialized key; None deletes it."""
        ...
