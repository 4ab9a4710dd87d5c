"""Defines the port of entries that expire, which are held in memory or in RocksDB.

An id is a tuple: the time at which an entry's age begins, any further distinction, the serialized key. Ids
sort by age.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.ports import Record
from airflow_kstreams.streams.state.stores.store_serdes import StoredValues

#: Id of an entry: the time at which its age begins, any further distinction, the serialized key.
EntryId = tuple[Any, ...]
#: (value, timestamp_ms).
Entry = tuple[Any, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldForm:
    """The form of the entries of a kind of store.

    :param spec: the store's spec.
    :param values: the serializer of its values.
    :param times: number of times at the beginning of an id.
    :param changelog_key: id -> key of its changelog's records.
    :param entry_id: key of its changelog's records -> id.
    :param on_earliest: function called with the first part of an id that is before all others.
    """

    spec: StoreSpec
    values: StoredValues
    times: int
    changelog_key: Callable[[EntryId], bytes]
    entry_id: Callable[[bytes], EntryId]
    on_earliest: Callable[[int], None]

    def restored_id(self, key: bytes) -> EntryId:
        """Return the id of a record of the changelog.

        :raises StateStoreError: its key is not of the store's format.
        """
        try:
            return self.entry_id(key)
        except Exception as error:
            raise self.values.error(key, "a changelog record that is not", error) from error


class HeldEntries(Protocol):
    """The entries of one task's store, with their changes since the last drain.

    :ivar get_entry: function that returns the entry of an id; None if there is none.
    :ivar put_entry: function that sets the entry of an id; None deletes it.
    """

    get_entry: Callable[[EntryId], Entry | None]
    put_entry: Callable[[EntryId, Entry | None], None]

    def count(self) -> int:
        """Return the number of entries; an estimate on disk."""
        ...

    def entries(self) -> Iterable[tuple[EntryId, Entry]]:
        """Return all present entries, oldest first."""
        ...

    def expire(self, latest_ms: int, leave: Callable[[EntryId, Entry], None]) -> None:
        """Delete the entries that age from a moment up to ``latest_ms``, oldest first; pass each to ``leave``
        then.
        """
        ...

    def oldest_ms(self) -> int | None:
        """Return the moment the oldest entry ages from, None if there is none."""
        ...

    def ids_of(self, key: bytes, first: EntryId = (), last_ms: int | None = None) -> list[EntryId]:
        """Return the ids of a serialized key, oldest first.

        :param key: serialized key.
        :param first: first part of the id to begin at, as a tuple; empty to begin at the oldest.
        :param last_ms: first part of the last id; None to end at the newest.
        """
        ...

    def first_id(self, key: bytes, first_ms: int) -> EntryId | None:
        """Return the oldest id of a serialized key whose first part is ``first_ms`` or later."""
        ...

    def undrained_count(self) -> int:
        """Return the number of entries changed since the last drain."""
        ...

    def undrained_at_least(self) -> int:
        """As :meth:`StateStore.undrained_at_least`."""
        ...

    def drain_changes(self) -> Iterator[tuple[bytes, bytes | None, int]]:
        """As :meth:`StateStore.drain_changes`."""
        ...

    def restore(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        """As :meth:`StateStore.restore`."""
        ...

    def restore_batch(self, records: Sequence[Record]) -> int:
        """As :meth:`StateStore.restore_batch`."""
        ...
