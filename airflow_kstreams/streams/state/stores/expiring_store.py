"""Implements the stores whose entries expire by stream time: window store and session store.

Rule: an entry's id is a tuple that begins with the time at which its age begins (the start of a window, the
end of a session) and ends with the serialized key, so ids sort by age. An entry expires when stream time
reaches that time plus the time for which the store keeps its entries; ``expire`` then deletes it, oldest
first, with a tombstone in the changelog. The rule is the same in memory and in RocksDB.

Crash argument: expiry depends on the entries alone; a store restored from its changelog, at any drain,
expires the same entries at the same stream times.

A window store has one value per key and window start, a session store one per key and session, which runs
from the time of its first record to that of its last, both included. A changelog key is the serialized key
followed by the window's start, or by the session's end and start, epoch milliseconds in 8 bytes each, signed,
big-endian: what Kafka's ``TimeWindowedSerializer`` and ``SessionWindowedSerializer`` write.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Generic

from airflow_kstreams.streams.errors import StateStoreError
from airflow_kstreams.streams.graph.services import NEVER, CurrentRecord, NodeContext
from airflow_kstreams.streams.graph.store_specs import SessionStoreSpec, StoreSpec, WindowStoreSpec
from airflow_kstreams.streams.hints.java_names import answers_java_names
from airflow_kstreams.streams.ports import Record
from airflow_kstreams.streams.serde.base import Serde, wrapped_for_topic
from airflow_kstreams.streams.state.stores.held_entries import Entry, EntryId, HeldEntries, HeldForm
from airflow_kstreams.streams.state.stores.memory.entries_in_memory import EntriesInMemory
from airflow_kstreams.streams.state.stores.rocksdb.entries_in_rocksdb import EntriesInRocksDB
from airflow_kstreams.streams.state.stores.store_serdes import (
    StoredValues,
    deletes_of,
    key_bytes_of,
    key_deserializer,
    key_serializer,
)
from airflow_kstreams.streams.state.stores.value_copies import copies_of
from airflow_kstreams.streams.type_variables import K, V
from airflow_kstreams.streams.windows import Windowed

__all__ = ["Entry", "EntryId", "ExpiringStore", "bind_expiry"]


@answers_java_names
class ExpiringStore:
    """The task's side of a store whose entries expire.

    A store in RocksDB is a :class:`PersistentStore`, too, by the methods of its entries.

    :param spec: the store's spec.
    :param record_context: the record being processed, whose timestamp entries take.
    :param kept_ms: milliseconds, after the first part of an entry's id, at which it expires by stream time.
    :param put: function that returns the user's object of a stored value; None if they are the same.
    """

    # Number of times at the beginning of an id.
    times: ClassVar[int]
    # Bound to closures and C functions in the constructor: operators call them for every record.
    get_entry: Callable[[EntryId], Entry | None]
    put_entry: Callable[[EntryId, Entry | None], None]
    ids_of: Callable[..., list[EntryId]]
    # Set for a store in RocksDB only.
    open: Callable[..., None]
    close: Callable[..., None]
    store_format: str

    def __init__(
        self,
        spec: StoreSpec,
        record_context: CurrentRecord,
        *,
        kept_ms: int,
        put: Callable[[Any], Any] | None = None,
    ) -> None:
        self.spec = spec
        self.name = spec.name
        self.kept_ms = kept_ms
        self._times = struct.Struct(f">{self.times}q")
        self.stored_values = StoredValues(spec, put=put)
        #: Copy values; None if these never change.
        self.copies = copies_of(spec)
        #: Says whether a value deletes its entry; None if none but None does.
        self.deletes = deletes_of(spec.value_serde)
        self.serialize_key = key_serializer(spec)
        #: Called with each entry that expired, in order, when the node that keeps the store expires it.
        self.expiry_listeners: list[Callable[[EntryId, Entry], None]] = []
        #: Called with the moment an entry expires when that comes before all others.
        self.on_earliest: Callable[[int], None] = _no_keeper
        self._context = record_context
        form = HeldForm(
            spec=spec,
            values=self.stored_values,
            times=self.times,
            changelog_key=self.changelog_key,
            entry_id=self.entry_id,
            on_earliest=lambda aging_ms: self.on_earliest(aging_ms + kept_ms),
        )
        # The entries.
        self.held: HeldEntries = (
            EntriesInRocksDB(form, record_context)
            if spec.storage == "rocksdb"
            else EntriesInMemory(form, record_context)
        )
        self.get_entry, self.put_entry, self.ids_of = (
            self.held.get_entry,
            self.held.put_entry,
            self.held.ids_of,
        )
        if isinstance(self.held, EntriesInRocksDB):
            self.open, self.close = self.held.open, self.held.close
            self.store_format = self.held.store_format

    def changelog_key(self, entry_id: EntryId) -> bytes:
        """Return the changelog key of an entry: its serialized key, then the times of its id.

        :param entry_id: id of an entry, present or not.
        """
        key: bytes = entry_id[-1]
        return key + self._times.pack(*entry_id[:-1])

    def entry_id(self, changelog_key: bytes) -> EntryId:
        """Return the id of a changelog key.

        :param changelog_key: a key of :meth:`changelog_key`.
        """
        at = -self._times.size
        return *self._times.unpack(changelog_key[at:]), changelog_key[:at]

    def approximate_count(self) -> int:
        """Return the number of entries; an estimate in RocksDB."""
        return self.held.count()

    def entries(self) -> Iterable[tuple[EntryId, Entry]]:
        """Return all present entries, oldest first."""
        return self.held.entries()

    def expire(self, stream_time_ms: int, leave: Callable[[EntryId, Entry], None] | None = None) -> None:
        """Delete expired entries, oldest first.

        :param stream_time_ms: stream time of the node that keeps the store.
        :param leave: function called with id and entry of each deleted entry.
        """
        self.held.expire(stream_time_ms - self.kept_ms, leave or _unseen)

    def next_expiry_ms(self) -> int | None:
        """Return the stream time at which the oldest entry expires, None if there is no entry."""
        oldest_ms = self.held.oldest_ms()
        return None if oldest_ms is None else oldest_ms + self.kept_ms

    def undrained_count(self) -> int:
        """Return the number of entries changed since the last drain."""
        return self.held.undrained_count()

    def undrained_at_least(self) -> int:
        """Return the number of changes that the next drain gives at least."""
        return self.held.undrained_at_least()

    def drain_changes(self) -> Iterator[tuple[bytes, bytes | None, int]]:
        """Yield (changelog key, value or None, timestamp_ms) once per entry changed since the last drain, in
        order of first change; where very many expire at once in RocksDB, their tombstones come last.

        :raises StateStoreError: a value does not fit the store's serde.
        """
        return self.held.drain_changes()

    def restore(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        """Apply one changelog record; it is not a change.

        :param key: a key of :meth:`changelog_key`.
        :param value: None deletes the entry.
        :param timestamp_ms: timestamp of the record, which becomes the entry's.
        :raises StateStoreError: the record is not of the store's format.
        """
        self.held.restore(key, value, timestamp_ms)

    def restore_batch(self, records: Sequence[Record]) -> int:
        """Apply changelog records in their order, and return their size in bytes."""
        return self.held.restore_batch(records)

    def _of_key(
        self, key: bytes, first_ms: int | None, last_ms: int | None = None
    ) -> Iterator[tuple[EntryId, Any]]:
        """Iterate over (id, value) of a key's present entries, oldest first.

        :param key: serialized key.
        :param first_ms: first part of the first id; None to begin at the oldest.
        :param last_ms: first part of the last id; None to end at the newest.
        """
        ids = self.ids_of(key, () if first_ms is None else (first_ms,), last_ms)
        found = [(entry_id, self.get_entry(entry_id)) for entry_id in ids]
        return ((entry_id, self._handed_out(entry[0])) for entry_id, entry in found if entry is not None)

    def _taken_in(self, value: Any) -> Any:
        """Return what the store keeps of a value that a user puts, None if it deletes the entry."""
        if self.deletes is not None and self.deletes(value):
            return None
        return value if self.copies is None else self.copies.taken_in(value)

    def _handed_out(self, value: Any) -> Any:
        return value if self.copies is None else self.copies.handed_out(value)

    def _set(self, entry_id: EntryId, value: Any) -> None:
        held = self._taken_in(value)
        self.put_entry(entry_id, None if held is None else (held, self._context.timestamp_ms))

    def _value(self, entry_id: EntryId) -> Any:
        entry = self.get_entry(entry_id)
        return None if entry is None else self._handed_out(entry[0])

    def _key_bytes(self, key: Any, *times_ms: int | None) -> bytes:
        """Serialize a user's key, and check times.

        :param times_ms: the user's times, epoch milliseconds.
        """
        key_bytes = key_bytes_of(self, key)
        for time_ms in times_ms:
            if time_ms is not None and (not isinstance(time_ms, int) or abs(time_ms) >= 2**63):
                raise StateStoreError(
                    f"store {self.name!r} was given {time_ms!r} as a time, expected epoch milliseconds",
                    fix="give whole numbers",
                )
        return key_bytes


def bind_expiry(
    context: NodeContext,
    store: ExpiringStore,
    leaving: Callable[[EntryId, Entry], None] | None = None,
) -> None:
    """Make a node expire its store as its stream time goes on; one node per store.

    Expiry alone starts a run only if listeners use the expired entries: all other waiting results of the node
    have left it by each commit.

    :param context: context of the node, which is being bound.
    :param store: the store.
    :param leaving: function called with id and entry of each expired entry, before the store's listeners.
    """

    def expire(stream_time_ms: int, _node: str = context.node) -> None:
        try:
            store.expire(stream_time_ms, leave if store.expiry_listeners else leaving)
        finally:
            wait_for(store.next_expiry_ms())

    def wait_for(expiry_ms: int | None) -> None:
        timer.set(expiry_ms, needed_ms=None if store.expiry_listeners else NEVER)

    def leave(entry_id: EntryId, entry: Entry, _node: str = context.node) -> None:
        if leaving is not None:
            leaving(entry_id, entry)
        for listener in store.expiry_listeners:
            listener(entry_id, entry)

    timer = context.stream_timer(expire)
    store.on_earliest = wait_for
    # Entries from the changelog, at whatever stream time the last run ended.
    context.on_open(lambda: wait_for(store.next_expiry_ms()))


def _no_keeper(expiry_ms: int) -> None:
    """Ignore a moment while no node keeps the store yet."""


def _unseen(entry_id: EntryId, entry: Entry) -> None:
    """Ignore an expired entry of a store without listeners."""


class SessionStore(ExpiringStore, Generic[K, V]):
    """One task's instance of a session store.

    Keys and values are Python objects, written in the serdes of the store's spec; a session is named by its
    start and end. The store takes copies and gives copies: only ``put`` changes it. Entries
    are deleted when stream time has passed their end by more than the spec's
    ``retention_ms``. Iteration is over the entries at its beginning.

    Operators name an entry by the id ``(end_ms, start_ms, serialized key)``.

    :param spec: name, serdes, retention.
    :param record_context: the record being processed, whose timestamp entries take.

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

        :return: the value found; None if there was none and the new one was set.
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
            (Windowed(deserialize(key), start_ms, end_ms), self._handed_out(entry[0]))
            for (end_ms, start_ms, key), entry in self.entries()
        )


_START = struct.Struct(">q")


class WindowStore(ExpiringStore, Generic[K, V]):
    """One task's instance of a window store.

    Keys and values are Python objects, written in the serdes of the store's spec; a window is named by its
    start. The store takes copies and gives copies: only ``put`` changes it.
    Entries are deleted when stream time reaches their start plus the spec's ``retention_ms``.
    Iteration is over the entries at its beginning.

    Operators name an entry by the id ``(start_ms, serialized key)``.

    :param spec: name, serdes, retention.
    :param record_context: the record being processed, whose timestamp entries take.

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

        :return: the value found; None if there was none and the new one was set.
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
        out = self._handed_out
        return (((deserialize(key), start_ms), out(entry[0])) for (start_ms, key), entry in self.entries())


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
