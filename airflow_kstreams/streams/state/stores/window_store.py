"""Implements the window store: one value per key and window start.

A changelog key is the serialized key followed by the window's start, epoch milliseconds in 8 bytes, signed,
big-endian: what Kafka's ``TimeWindowedSerializer`` writes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Generic

from airflow_kstreams.streams.graph.services import CurrentRecord
from airflow_kstreams.streams.graph.store_specs import WindowStoreSpec
from airflow_kstreams.streams.serde.base import Serde, wrapped_for_topic
from airflow_kstreams.streams.state.stores.expiring_store import EntryId, ExpiringStore
from airflow_kstreams.streams.state.stores.store_serdes import key_deserializer
from airflow_kstreams.streams.type_variables import K, V

_START = struct.Struct(">q")


class WindowStore(ExpiringStore, Generic[K, V]):
    """One task's instance of a window store.

    Keys and values are Python objects, written in the serdes of the store's spec; a window is named by its
    start. A value handed out belongs to the store: change it only to ``put`` it back, else the change misses
    the changelog. Entries are deleted when stream time reaches their start plus the spec's ``retention_ms``.
    Iteration is over the entries at its beginning.

    Operators name an entry by the id ``(start_ms, serialized key)``.

    :param spec: name, serdes, retention.
    :param record_context: gives the timestamp of the record being processed.

    >>> class Largest(Processor):
    ...     def init(self, context):
    ...         self.context, self.hours = context, context.state_store("hours")
    ...
    ...     def process(self, record):
    ...         hour_ms = record.timestamp_ms // 3_600_000 * 3_600_000
    ...         largest = max(record.value, self.hours.get(record.key, hour_ms) or 0)
    ...         self.hours.put(record.key, largest, hour_ms)
    ...         self.context.forward(record.key, list(self.hours.range(record.key, from_ms=0)))
    >>> hours = WindowStoreSpec(
    ...     name="hours", key_serde=serdes.string(), value_serde=serdes.int64(), retention_ms=86_400_000
    ... )
    >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    >>> builder.stream("delays").process(Largest, hours).send_to("largest")
    >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
    ...     for delay, time_ms in ((7, 0), (9, 5), (3, 3_600_001)):
    ...         driver.pipe_input("delays", key="JFK", value=delay, timestamp_ms=time_ms)
    ...     driver.read_output("largest")[-1].value
    [[0, 9], [3600000, 3]]
    """

    times = 1

    def __init__(self, spec: WindowStoreSpec[K, V], record_context: CurrentRecord) -> None:
        super().__init__(spec, record_context, kept_ms=spec.retention_ms)

    def get(self, key: K, start_ms: int) -> V | None:
        """Return the value of a key in the window that starts at ``start_ms``, None if there is none."""
        found: V | None = self._value((start_ms, self._key_bytes(key)))
        return found

    def put(self, key: K, value: V | None, start_ms: int) -> None:
        """Set the value of a key in a window; None deletes it. The entry takes the timestamp of the record
        being processed.

        :raises StateStoreError: the key is None, or the start is no whole number.
        """
        self._set((start_ms, self._key_bytes(key, start_ms)), value)

    def put_if_absent(self, key: K, value: V, start_ms: int) -> V | None:
        """Set the value of a key in a window where it has none.

        :return: the value found, or None when there was none and the new one was set.
        """
        found = self.get(key, start_ms)
        if found is None:
            self.put(key, value, start_ms)
        return found

    def delete(self, key: K, start_ms: int) -> V | None:
        """Delete a key in a window and return the value it had, None if there was none."""
        entry_id = (start_ms, self._key_bytes(key))
        found: V | None = self._value(entry_id)
        self.put_entry(entry_id, None)
        return found

    def range(self, key: K, from_ms: int | None = None, to_ms: int | None = None) -> Iterator[tuple[int, V]]:
        """Iterate over (start_ms, value) of a key's windows that start from ``from_ms`` to ``to_ms``, both
        included, in order; None leaves an end open. Kafka Streams calls it ``fetch``.
        """
        key_bytes = self._key_bytes(key, from_ms, to_ms)
        return ((id_[0], value) for id_, value in self._of_key(key_bytes, from_ms, to_ms))

    def all(self) -> Iterator[tuple[tuple[K, int], V]]:
        """Iterate over every ((key, start_ms), value), by start, then by serialized key."""
        deserialize = key_deserializer(self.spec)
        return (((deserialize(key), start_ms), entry[0]) for (start_ms, key), entry in self.entries())

    def changelog_key(self, entry_id: EntryId) -> bytes:
        """Return the changelog key of an entry: its key, then its start.

        :param entry_id: (start_ms, serialized key).
        """
        key: bytes = entry_id[1]
        return key + _START.pack(entry_id[0])

    def entry_id(self, changelog_key: bytes) -> EntryId:
        """Return the id of a changelog key.

        :param changelog_key: serialized key and start.
        """
        (start_ms,) = _START.unpack(changelog_key[-8:])
        return start_ms, changelog_key[:-8]


def window_store_keys(key_serde: Serde) -> Serde:
    """Return the serde of a window store's changelog keys: ``(key, start_ms)``.

    :param key_serde: serde of the store's keys.
    """
    serialize, deserialize = key_serde.serialize, key_serde.deserialize

    def write(key: tuple[Any, int]) -> bytes:
        return serialize(key[0]) + _START.pack(key[1])

    def read(data: bytes) -> tuple[Any, int]:
        return deserialize(data[:-8]), _START.unpack(data[-8:])[0]

    return Serde(
        id=f"window_store_key({key_serde.id})",
        serialize=write,
        deserialize=read,
        for_topic=wrapped_for_topic(key_serde, window_store_keys),
    )
