"""Implements the session store: one value per key and session.

A session runs from the time of its first record to that of its last, both included. A changelog key is the
serialized key followed by the session's end and start, epoch milliseconds in 8 bytes each, signed,
big-endian: what Kafka's ``SessionWindowedSerializer`` writes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Generic

from airflow_kstreams.streams.errors import StateStoreError
from airflow_kstreams.streams.graph.services import CurrentRecord
from airflow_kstreams.streams.graph.store_specs import SessionStoreSpec
from airflow_kstreams.streams.state.stores.expiring_store import EntryId, ExpiringStore
from airflow_kstreams.streams.state.stores.store_serdes import key_deserializer
from airflow_kstreams.streams.type_variables import K, V
from airflow_kstreams.streams.windows import Windowed

_END_AND_START = struct.Struct(">qq")


class SessionStore(ExpiringStore, Generic[K, V]):
    """One task's instance of a session store.

    Keys and values are Python objects, written in the serdes of the store's spec; a session is named by its
    start and end. A value handed out belongs to the store: change it only to ``put`` it back, else the change
    misses the changelog. Entries are deleted when stream time has passed their end by more than the spec's
    ``retention_ms``. Iteration is over the entries at its beginning.

    Operators name an entry by the id ``(end_ms, start_ms, serialized key)``.

    :param spec: name, serdes, retention.
    :param record_context: gives the timestamp of the record being processed.

    >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    >>> clicks = builder.stream("clicks").group_by_key()
    >>> visits = clicks.windowed_by(SessionWindow(gap_ms=1_800_000)).count(store="visits")
    >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
    ...     for minute in (0, 10, 50):
    ...         driver.pipe_input("clicks", key="ann", value={}, timestamp_ms=minute * 60_000)
    ...     driver.store("visits").get("ann", 0, 600_000), list(driver.store("visits").range("ann"))[1:]
    (2, [(Windowed(key='ann', start_ms=3000000, end_ms=3000000), 1)])
    """

    times = 2

    def __init__(self, spec: SessionStoreSpec[K, V], record_context: CurrentRecord) -> None:
        # A session's end lies in the session, while a window's end does not, hence + 1.
        super().__init__(spec, record_context, kept_ms=spec.retention_ms + 1)

    def get(self, key: K, start_ms: int, end_ms: int) -> V | None:
        """Return the value of a key's session, None if there is none."""
        found: V | None = self._value((end_ms, start_ms, self._key_bytes(key)))
        return found

    def put(self, key: K, value: V | None, start_ms: int, end_ms: int) -> None:
        """Set the value of a key's session; None deletes it. The entry takes the timestamp of the record
        being processed.

        :raises StateStoreError: the key is None, or the bounds are no whole numbers in order.
        """
        key_bytes = self._key_bytes(key, start_ms, end_ms)
        if start_ms > end_ms:
            raise StateStoreError(
                f"store {self.name!r} was given a session from {start_ms} to {end_ms}",
                fix="pass the start before the end",
            )
        self._set((end_ms, start_ms, key_bytes), value)

    def put_if_absent(self, key: K, value: V, start_ms: int, end_ms: int) -> V | None:
        """Set the value of a key's session that has none.

        :return: the value found, or None when there was none and the new one was set.
        """
        found = self.get(key, start_ms, end_ms)
        if found is None:
            self.put(key, value, start_ms, end_ms)
        return found

    def delete(self, key: K, start_ms: int, end_ms: int) -> V | None:
        """Delete a key's session and return the value it had, None if there was none."""
        entry_id = (end_ms, start_ms, self._key_bytes(key))
        found: V | None = self._value(entry_id)
        self.put_entry(entry_id, None)
        return found

    def range(
        self, key: K, from_ms: int | None = None, to_ms: int | None = None
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Iterate over (Windowed, value) of a key's sessions that end at ``from_ms`` or later and start at
        ``to_ms`` or earlier, by end; None leaves a side open. Kafka Streams calls it ``findSessions``.
        """
        found = self._of_key(self._key_bytes(key, from_ms, to_ms), from_ms)
        return (
            (Windowed(key, id_[1], id_[0]), value) for id_, value in found if to_ms is None or id_[1] <= to_ms
        )

    def all(self) -> Iterator[tuple[Windowed[K], V]]:
        """Iterate over every (Windowed, value), by end, then by start, then by serialized key."""
        deserialize = key_deserializer(self.spec)
        return (
            (Windowed(deserialize(key), start_ms, end_ms), entry[0])
            for (end_ms, start_ms, key), entry in self.entries()
        )

    def changelog_key(self, entry_id: EntryId) -> bytes:
        """Return the changelog key of an entry: its key, its end, its start.

        :param entry_id: (end_ms, start_ms, serialized key).
        """
        key: bytes = entry_id[2]
        return key + _END_AND_START.pack(entry_id[0], entry_id[1])

    def entry_id(self, changelog_key: bytes) -> EntryId:
        """Return the id of a changelog key.

        :param changelog_key: serialized key, end and start.
        """
        end_ms, start_ms = _END_AND_START.unpack(changelog_key[-16:])
        return end_ms, start_ms, changelog_key[:-16]
