"""Implements the versioned store: every version of a key's value within a history, as in Kafka Streams
(KIP-889).

**Rule.** A version is valid from its own time to the time of the key's next version; the latest one has no
end. A version put between others ends the one before it, and ends at the next one's time. A version None
means that the key was deleted then. A second put with the same time replaces the first. The store's time is
the largest time of all versions ever put; a put from more than ``history_ms`` before it is refused, and a
read as of such a time finds only a latest version that is older still.

**History is bounded.** A version is removed, with a tombstone in the changelog, when the store's time has
passed its end by more than ``history_ms``: no read reaches it then. Looking for such versions costs time on
disk, so it is done when the store's time enters another 64th of the history. The latest version of a key is
never removed, unless it is a deletion.

**Entries.** The id of a version is ``(its end, serialized key)``, its value the user's value and the time
from which it is valid; the latest one's end is the largest possible time. So ids sort by the time of removal,
as :mod:`.expiring_store` requires: memory, RocksDB, restore, drain and expiry are those of windows. The
versions of a key do not overlap, so no two end at the same time. A deletion is an entry if another version
follows it. A deletion that is the latest shows as the end of the version before it; if there is none, as an
entry that begins and ends at the time of the deletion.

**Changelog.** A key is the serialized key and the version's end, a value the time from which the version is
valid, one byte (0 for a deletion, 1) and the value in its serde. The record's timestamp is that time, too,
except that Kafka's client cannot write 0. Kafka Streams writes each put under its key alone, and asks
compaction to wait (``min.compaction.lag.ms``) until the history has passed. Compaction measures that by
timestamps against the clock: records of last year are compacted at once, history and all, and if the last one
was late, the latest value is lost with it. This package is made for runs over old records, so here each
version has a changelog key of its own, and compaction may come at any time. A put writes two records, the
version that ended and the latest; several puts of one key between two commits write the latest once.

**Crash argument.** The store's time is the largest time in its entries: the put of that time is the latest
version of its key, or its deletion, and neither is removed before a larger time was put. So all depends on
the entries, and a store restored from its changelog, at any drain, goes on as if it had never stopped. Files
on disk hold that time in a row of its own, written with each drain.

**Difference to Kafka Streams.** There, if the latest version is deleted by a put of the same time and no
version was before it, the deletion is not kept: an older put then brings the key back. Here it stays deleted.
"""

from __future__ import annotations

import dataclasses
import enum
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple

from airflow_kstreams.streams.errors import StateStoreError
from airflow_kstreams.streams.graph.services import CurrentRecord
from airflow_kstreams.streams.graph.store_specs import VersionedStoreSpec
from airflow_kstreams.streams.ports import Record
from airflow_kstreams.streams.serde.base import Serde, wrapped_for_topic
from airflow_kstreams.streams.state.stores.expiring_store import EntryId, ExpiringStore
from airflow_kstreams.streams.state.stores.rocksdb.entries_in_rocksdb import EntriesInRocksDB
from airflow_kstreams.streams.state.stores.store_serdes import deletes_of, key_deserializer
from airflow_kstreams.streams.state.stores.value_copies import copies_of
from airflow_kstreams.streams.type_variables import K, V

#: The end of a latest version.
LATEST_MS = 2**63 - 1
_TIME = struct.Struct(">q")
#: Bytes before each value: the time from which it is valid, and False for a deletion.
_HEAD = struct.Struct(">q?")
#: A value, or ``Deleted.DELETED``, and the moment it is valid from.
Held = tuple[Any, int]
_NOTHING_PUT_MS = -1
#: Number of steps in which the versions of a history are removed.
_STEPS = 64


class Deleted(enum.Enum):
    """The value of a version that is a deletion."""

    DELETED = enum.auto()


class Version(NamedTuple):
    """A version by serialized key.

    :ivar value: the value, never None.
    :ivar from_ms: time from which it is valid, epoch milliseconds.
    :ivar to_ms: time at which it ends, epoch milliseconds; ``LATEST_MS`` for the latest one.
    """

    value: Any
    from_ms: int
    to_ms: int


@dataclass(frozen=True, slots=True)
class VersionedRecord(Generic[V]):
    """A version of a key's value.

    :param value: the value.
    :param timestamp_ms: time from which it is valid, epoch milliseconds.
    :param valid_to_ms: time at which it ends, epoch milliseconds; None for the latest version.
    """

    value: V
    timestamp_ms: int
    valid_to_ms: int | None = None


class VersionedStore(ExpiringStore, Generic[K, V]):
    """One task's instance of a versioned store.

    Keys and values are Python objects, written in the serdes of the store's spec.

    :param spec: name, serdes, history.
    :param record_context: the record being processed.

    >>> class Prices(Processor):
    ...     def init(self, context):
    ...         self.context, self.prices = context, context.state_store("prices")
    ...
    ...     def process(self, record):
    ...         self.prices.put(record.key, record.value, record.timestamp_ms)
    ...         self.context.forward(record.key, self.prices.get(record.key, as_of_ms=5).value)
    >>> prices = VersionedStoreSpec(
    ...     name="prices", key_serde=serdes.string(), value_serde=serdes.int64(), history_ms=60_000
    ... )
    >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    >>> builder.stream("prices").process(Prices, prices).send_to("old-prices")
    >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
    ...     for price, time_ms in ((7, 0), (9, 10), (8, 4)):
    ...         driver.pipe_input("prices", key="tea", value=price, timestamp_ms=time_ms)
    ...     [record.value for record in driver.read_output("old-prices")], driver.store("prices").get("tea")
    ([7, 7, 8], VersionedRecord(value=9, timestamp_ms=10, valid_to_ms=None))
    """

    times = 1

    def __init__(self, spec: VersionedStoreSpec[K, V], record_context: CurrentRecord) -> None:
        # A version that ended exactly a history ago may hold the store's time, hence + 1.
        stored = dataclasses.replace(spec, value_serde=versioned_store_values(spec.value_serde))
        super().__init__(stored, record_context, kept_ms=spec.history_ms + 1, put=_value_of)
        self.copies = copies_of(spec)
        self.deletes = deletes_of(spec.value_serde)
        self._history_ms = spec.history_ms
        self._step_ms = max(1, spec.history_ms // _STEPS)
        self._deserialize_key = key_deserializer(stored)
        self._time_ms = self._marked_ms = _NOTHING_PUT_MS
        if isinstance(self.held, EntriesInRocksDB):
            self.open = self._open

    def get(self, key: K, as_of_ms: int | None = None) -> VersionedRecord[V] | None:
        """Return the version of a key that was valid at a moment, the latest one if none is given; None if
        there was none, or the moment is older than the history.
        """
        key_bytes = self._key_bytes(key, as_of_ms)
        if as_of_ms is not None:
            found = self.version_at(key_bytes, as_of_ms)
            return None if found is None else self._record(found)
        latest = self.latest(key_bytes)
        return None if latest is None else self._record(Version(*latest, LATEST_MS))

    def put(self, key: K, value: V | None, timestamp_ms: int) -> bool:
        """Add a version of a key's value; None deletes the key from then on.

        :return: True if it was added; False if its time is older than the history.
        :raises StateStoreError: the key is None, or the time is no whole number that Kafka takes.
        """
        key_bytes = self._key_bytes(key, timestamp_ms)
        return self.put_version(key_bytes, self._taken_in(value), timestamp_ms) is not None

    def delete(self, key: K, timestamp_ms: int) -> VersionedRecord[V] | None:
        """Delete a key from a moment on, and return the version that was valid at it; None if there was none,
        or the moment is older than the history.
        """
        key_bytes = self._key_bytes(key, timestamp_ms)
        if timestamp_ms < self._time_ms - self._history_ms:
            return None
        found = self.version_at(key_bytes, timestamp_ms)
        self.put_version(key_bytes, None, timestamp_ms)
        return None if found is None else self._record(found)

    def all(self) -> Iterator[tuple[K, VersionedRecord[V]]]:
        """Iterate over every version of every key: by end, the latest ones last, then by serialized key."""
        return (
            (self._deserialize_key(key), self._record(Version(held[0], held[1], to_ms)))
            for (to_ms, key), (held, _) in self.entries()
            if held[0] is not Deleted.DELETED
        )

    def latest(self, key: bytes) -> Held | None:
        """Return (value, valid from) of the latest version of a serialized key."""
        return self._held_at((LATEST_MS, key))

    def version_at(self, key: bytes, as_of_ms: int) -> Version | None:
        """Return the version of a serialized key that was valid at a time.

        :param key: serialized key.
        :param as_of_ms: the time, epoch milliseconds.
        :return: None if there was none, or it has been removed.
        """
        latest = self._held_at((LATEST_MS, key))
        if latest is not None and latest[1] <= as_of_ms:
            return Version(*latest, LATEST_MS)
        if as_of_ms < self._time_ms - self._history_ms:
            return None
        entry_id = self.held.first_id(key, as_of_ms + 1)
        held = None if entry_id is None else self._held_at(entry_id)
        if entry_id is None or held is None or held[1] > as_of_ms or held[0] is Deleted.DELETED:
            return None
        return Version(*held, entry_id[0])

    def put_version(self, key: bytes, value: Any, timestamp_ms: int) -> int | None:
        """Add a version of a serialized key.

        :param key: serialized key.
        :param value: the value; None is a deletion.
        :param timestamp_ms: time from which it is valid, epoch milliseconds.
        :return: its end, ``LATEST_MS`` if it is the latest one; None if it is older than the history and was
            not added.
        """
        if timestamp_ms < self._time_ms - self._history_ms:
            return None
        if timestamp_ms >= LATEST_MS:
            raise StateStoreError(
                f"store {self.name!r} was given a version of the time {timestamp_ms}, the largest there is",
                fix="give epoch milliseconds",
            )
        to_ms = self._add(key, value, timestamp_ms)
        before_ms = self._time_ms
        if timestamp_ms > before_ms:
            self._time_ms = timestamp_ms
            if timestamp_ms // self._step_ms > before_ms // self._step_ms:
                self.expire(timestamp_ms)
        return to_ms

    def _add(self, key: bytes, value: Any, timestamp_ms: int) -> int:
        latest = self._held_at((LATEST_MS, key))
        if latest is not None and timestamp_ms >= latest[1]:
            if timestamp_ms > latest[1]:
                self._hold((timestamp_ms, key), latest)
            return self._set_latest(key, value, timestamp_ms)
        next_id = self.held.first_id(key, timestamp_ms + 1)
        following = None if next_id is None else self._held_at(next_id)
        if next_id is None or following is None:
            return self._set_latest(key, value, timestamp_ms)
        to_ms: int = next_id[0]
        if following[1] > timestamp_ms:
            # The next version begins later, so the new version ends there.
            to_ms = following[1]
        elif following[1] < timestamp_ms:
            self._hold((timestamp_ms, key), following)
        self._hold((to_ms, key), (Deleted.DELETED if value is None else value, timestamp_ms))
        return to_ms

    def _set_latest(self, key: bytes, value: Any, timestamp_ms: int) -> int:
        if value is not None:
            self._hold((LATEST_MS, key), (value, timestamp_ms))
            return LATEST_MS
        self.put_entry((LATEST_MS, key), None)
        if self._held_at((timestamp_ms, key)) is None:
            self._hold((timestamp_ms, key), (Deleted.DELETED, timestamp_ms))
        return LATEST_MS

    def _held_at(self, entry_id: EntryId) -> Held | None:
        entry = self.get_entry(entry_id)
        return None if entry is None else entry[0]

    def _hold(self, entry_id: EntryId, held: Held) -> None:
        self.put_entry(entry_id, (held, held[1]))

    def drain_changes(self) -> Iterator[tuple[bytes, bytes | None, int]]:
        """Yield (changelog key, value or None, timestamp_ms) once per version that changed."""
        yield from self.held.drain_changes()
        self._mark()

    def restore(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        """Apply one changelog record; it is not a change.

        :param key: a key of :meth:`changelog_key`.
        :param value: None deletes the version.
        :param timestamp_ms: timestamp of the record, epoch milliseconds.
        :raises StateStoreError: the record is not of the store's format.
        """
        self.held.restore(key, value, timestamp_ms)
        if value is not None:
            self._see(key, value)
        self._mark()

    def restore_batch(self, records: Sequence[Record]) -> int:
        """Apply changelog records in their order, and return their size in bytes."""
        size_bytes = self.held.restore_batch(records)
        for record in records:
            value = record.value()
            if value is not None:
                self._see(record.key() or b"", value)
        self._mark()
        return size_bytes

    def _record(self, version: Version) -> VersionedRecord[V]:
        value, from_ms, to_ms = version
        return VersionedRecord(self._handed_out(value), from_ms, None if to_ms == LATEST_MS else to_ms)

    def _see(self, changelog_key: bytes, value: bytes) -> None:
        """Raise the store's time to that of a restored version."""
        (to_ms,) = _TIME.unpack(changelog_key[-_TIME.size :])
        put_ms = _TIME.unpack_from(value)[0] if to_ms == LATEST_MS else to_ms
        self._time_ms = max(self._time_ms, put_ms)

    def _open(self, folder: Path, mark: bytes | None = None) -> None:
        held = self._on_disk()
        held.open(folder, mark)
        time = held.read_mark()
        self._time_ms = self._marked_ms = _NOTHING_PUT_MS if time is None else _TIME.unpack(time)[0]

    def _mark(self) -> None:
        """Write the store's time beside the entries on disk."""
        if self._time_ms > self._marked_ms and isinstance(self.held, EntriesInRocksDB):
            self.held.write_mark(_TIME.pack(self._time_ms))
            self._marked_ms = self._time_ms

    def _on_disk(self) -> EntriesInRocksDB:
        if not isinstance(self.held, EntriesInRocksDB):
            raise TypeError(f"store {self.name!r} has no files")
        return self.held


def versioned_store_values(value_serde: Serde) -> Serde:
    """Return the serde of a versioned store's changelog values: a value, or ``Deleted.DELETED``, and the time
    from which it is valid.

    :param value_serde: serde of the store's values.
    """
    serialize, deserialize = value_serde.serialize, value_serde.deserialize

    def write(held: Held) -> bytes:
        value, from_ms = held
        if value is Deleted.DELETED:
            return _HEAD.pack(from_ms, False)
        return _HEAD.pack(from_ms, True) + serialize(value)

    def read(data: bytes) -> Held:
        from_ms, valued = _HEAD.unpack_from(data)
        return deserialize(data[_HEAD.size :]) if valued else Deleted.DELETED, from_ms

    return Serde(
        id=f"version({value_serde.id})",
        serialize=write,
        deserialize=read,
        for_topic=wrapped_for_topic(value_serde, versioned_store_values),
    )


def _value_of(held: Held) -> Any:
    """Return the user's value."""
    return held[0]
