"""The key-value store in memory.

Rule: an entry is kept as the object the application gave and becomes bytes only when its change is drained,
so that a key updated a thousand times between two commit points is serialized once.

Invariant: after a drain, folding every change drained so far gives exactly the entries. Deleting an absent
key is no change: the fold does not hold it either, or its tombstone is waiting to be drained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from airflow_kstreams.streams.errors import KStreamsError, StateStoreError
from airflow_kstreams.streams.topology.nodes import RecordContext, StoreSpec


class InMemoryKeyValueStore:
    """A dict with a memory of what changed; see :class:`KeyValueStore`.

    :param spec: name, serdes, and whether changes are logged; a store that is not logged does not collect
        them.
    :param record_context: gives the timestamp of the record being processed.
    """

    #: Bound to closures and C functions in the constructor: operators call them for every record.
    get_entry: Callable[[bytes], tuple[Any, int] | None]
    put_entry: Callable[[bytes, tuple[Any, int] | None], None]

    def __init__(self, spec: StoreSpec, record_context: RecordContext) -> None:
        self.spec = spec
        self.name = spec.name
        self._context = record_context
        self._entries: dict[bytes, tuple[Any, int]] = {}
        #: Changed key -> timestamp of its deletion, which holds as long as the key is absent.
        self._changed: dict[bytes, int] = {}
        self.get_entry = self._entries.get
        self.put_entry = self._logged_put() if spec.logged else self._unlogged_put()

    def get(self, key: Any) -> Any:
        """Return the value of a key, None if there is none; it belongs to the store."""
        entry = self._entries.get(self._key_bytes(key))
        return None if entry is None else entry[0]

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key; None deletes it."""
        self.put_entry(self._key_bytes(key), None if value is None else (value, self._context.timestamp_ms))

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Set the value of a key that has none, else return the one it has."""
        found = self.get(key)
        if found is None:
            self.put(key, value)
        return found

    def delete(self, key: Any) -> Any:
        """Delete a key and return the value it had."""
        found = self.get(key)
        self.put_entry(self._key_bytes(key), None)
        return found

    def range(self, first: Any, last: Any) -> Iterator[tuple[Any, Any]]:
        """Iterate over (key, value) from first to last, both included, as they are now."""
        low = None if first is None else self._key_bytes(first)
        high = None if last is None else self._key_bytes(last)
        return self._iterate(
            sorted(
                key for key in self._entries if (low is None or low <= key) and (high is None or key <= high)
            )
        )

    def all(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over every (key, value), as they are now."""
        return self._iterate(sorted(self._entries))

    def approximate_count(self) -> int:
        """Return the number of keys."""
        return len(self._entries)

    def drain_changes(self) -> Iterator[tuple[bytes, bytes | None, int]]:
        """Yield what changed since the last drain, once per key, in order of first change."""
        changed = list(self._changed.items())
        self._changed.clear()
        serialize = self.spec.value_serde.serialize
        get_entry = self._entries.get
        for key, deleted_ms in changed:
            entry = get_entry(key)
            if entry is None:
                yield key, None, deleted_ms
                continue
            try:
                data = serialize(entry[0])
            except KStreamsError:  # such as a schema registry that is away
                raise
            except Exception as error:
                raise self._serde_error("a value that does not fit", error) from error
            yield key, data, entry[1]

    def restore(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        """Apply one changelog record."""
        if value is None:
            self._entries.pop(key, None)
            return
        try:
            restored = self.spec.value_serde.deserialize(value)
        except KStreamsError:  # such as a schema registry that is away
            raise
        except Exception as error:
            raise self._serde_error("a changelog record that is not", error) from error
        self._entries[key] = (restored, timestamp_ms)

    def _iterate(self, keys: list[bytes]) -> Iterator[tuple[Any, Any]]:
        deserialize = self.spec.key_serde.deserialize
        snapshot = [(key, self._entries[key][0]) for key in keys]
        return ((deserialize(key), value) for key, value in snapshot)

    def _key_bytes(self, key: Any) -> bytes:
        if key is None:
            raise StateStoreError(
                f"store {self.name!r} was asked for the key None",
                fix="check for null keys before using the store",
            )
        return self.spec.key_serde.serialize(key)

    def _logged_put(self) -> Callable[[bytes, tuple[Any, int] | None], None]:
        entries = self._entries
        changed = self._changed
        context = self._context

        def put_entry(key: bytes, entry: tuple[Any, int] | None) -> None:
            if entry is not None:
                entries[key] = entry
                changed[key] = 0
            elif entries.pop(key, None) is not None:
                changed[key] = context.timestamp_ms

        return put_entry

    def _unlogged_put(self) -> Callable[[bytes, tuple[Any, int] | None], None]:
        entries = self._entries

        def put_entry(key: bytes, entry: tuple[Any, int] | None) -> None:
            if entry is None:
                entries.pop(key, None)
            else:
                entries[key] = entry

        return put_entry

    def _serde_error(self, what: str, error: Exception) -> StateStoreError:
        return StateStoreError(
            f"store {self.name!r}: found {what} {self.spec.value_serde!r}: {type(error).__name__}: {error}",
            fix="give the store the serde of what is put into it; after a change of format, a new name",
        )
