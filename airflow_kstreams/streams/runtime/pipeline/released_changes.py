"""Keeps the changes of released records to stores of early stages, until a commit logs them, once per key."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from airflow_kstreams.streams.runtime.pipeline.in_flight_record import StoreChanges
from airflow_kstreams.streams.state.stores.state_store import Change


class ReleasedChanges:
    """Holds the released changes of one task.

    :param stores: names of the stores of all stages but the last.
    """

    def __init__(self, stores: Collection[str]) -> None:
        self._changes: dict[str, dict[bytes, tuple[bytes | None, int]]] = {name: {} for name in stores}

    def add(self, changes: Iterable[StoreChanges]) -> None:
        """Add the changes of a released record."""
        for name, entries in changes:
            merged = self._changes[name]
            for key, value, timestamp_ms in entries:
                merged[key] = (value, timestamp_ms)

    def keeps(self, store: str) -> bool:
        """Return True if a store is in a stage before the last."""
        return store in self._changes

    def drain(self, store: str) -> Iterator[Change]:
        """Return the changes of a store, and forget them."""
        changed, self._changes[store] = self._changes[store], {}
        return ((key, value, timestamp_ms) for key, (value, timestamp_ms) in changed.items())

    def count(self, store: str) -> int:
        """Return the number of changes of a store that no commit has logged."""
        return len(self._changes.get(store, ()))
