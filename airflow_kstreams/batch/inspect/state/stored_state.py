"""Reads a store of an application outside a run, from its changelog.

Rule: the store of a task is the fold of the task's partition of the changelog, less the entries whose keys
have moved to another processor. Both are what a restore does, so the same code decides it
(``growing/state_copy.py``).

A partition is read to its last stable offset, and on until it ends where it was read to: what compaction
removes in front of a reader has been replaced behind it. Its writer is one task, which commits whole
transactions, so the entries that were read of it are as of one of its commits.

Memory is bounded: a single key leaves everything else out, and of everything one task's partition at a time
is folded into a temporary database of SQLite, whose pages move to a nameless file of the temporary folder
(``TMPDIR``) when they are more than its cache holds. The file is removed when the process ends in any way,
and no other process can open it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import cached_property
from itertools import chain
from typing import Any, Self

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.evidence.known_applications import refuse_unknown_application
from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.growing.state_copy import Homes, placing_hash
from airflow_kstreams.batch.inspect.state.entry_form import (
    EntryForm,
    StateEntry,
    entry_form,
    key_bytes_of_text,
    read_entry,
)
from airflow_kstreams.batch.inspect.state.moment import AsOf, as_of
from airflow_kstreams.batch.ledger.facts import GroupedPartitions
from airflow_kstreams.batch.protocol.logs.data_loss import changelog_deleted, changelog_truncated, data_loss
from airflow_kstreams.streams.bounded_read import BoundedRead
from airflow_kstreams.streams.errors import ConfigError, StateStoreError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.graph.nodes import bound_to
from airflow_kstreams.streams.graph.store_specs import StoreSpec, VersionedStoreSpec
from airflow_kstreams.streams.partitioning.partition_groups import group_of_partition
from airflow_kstreams.streams.partitioning.processors import Processors
from airflow_kstreams.streams.partitioning.topic_growth import places
from airflow_kstreams.streams.plan import SubtopologyPlan
from airflow_kstreams.streams.ports import Clock, ClusterPort, ReaderPort, Record, TopicPartition
from airflow_kstreams.streams.topology.topology import Topology

#: Pages that stay in memory.
CACHE_BYTES = 32 * 1024 * 1024
_PAGE_BYTES = 16_384
_WINDOW_SIZE = "size_ms="
#: Called with the number of offsets read so far, and the number to read in all.
Progress = Callable[[int, int], None]


class StoredState:
    """The content of an application's store now: as its last finished run left it, or, while a run is under
    way, as of the last commit of each of its tasks. A context manager that closes its clients.

    It reads the store's changelog and writes nothing. Keys and values are Python objects, as the topology
    puts them. ``all`` gives every entry, task by task; ``find`` those of one key: one entry of a key-value
    store, several windows, sessions or elements of a join in other stores.

    :param cluster: the cluster where the application runs, e.g. ``KafkaHook("kafka_default").cluster()``.
    :param topology: the topology of the application file, which has the serdes.
    :param application_id: id of the application.
    :param store: name of the store.
    :param clock: clock to go by; the machine's unless given.
    :param progress: called with the number of offsets read so far, and the number to read in all.
    :param seconds: longest time for all reading, from now on; None for no bound.
    :raises ConfigError: the topology has no such store, or the store has no changelog, or no run has created
        it yet.
    :raises StateStoreError: its runs have written it with other serdes, or as another kind of store; or the
        time is over, when it is read.
    :raises DataLossError: a part of the changelog was deleted or truncated; when it is read.
    :raises KafkaClientError: the broker does not answer, or does not let this user read the topics.

    >>> from airflow_kstreams.streams import KStreamBuilder, serdes
    >>> from airflow_kstreams.testing import InMemoryKafka
    >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    >>> orders = builder.table("orders", store="newest")
    >>> StoredState(InMemoryKafka(), builder.build(), "shop", "newst")
    Traceback (most recent call last):
        ...
    airflow_kstreams.streams.errors.ConfigError: the topology has no store 'newst' [KS-APP-001]
    What to do: name one of its stores: newest
    """

    def __init__(
        self,
        cluster: ClusterPort,
        topology: Topology,
        application_id: str,
        store: str,
        *,
        clock: Clock | None = None,
        progress: Progress | None = None,
        seconds: float | None = None,
    ) -> None:
        self._cluster = cluster
        self._plan = topology.plan(application_id)
        spec, self._sub = _found(topology, self._plan.subtopologies, store)
        #: Its name.
        self.store = store
        self._changelog = self._sub.changelogs[store]
        self._versioned = isinstance(spec, VersionedStoreSpec)
        self._form = _form(bound_to(self._changelog, spec), self._sub.state_kinds[self._changelog])
        self._clock = clock or SystemClock()
        self._progress = progress or _unseen
        self._done = self._total = 0
        self._seconds = seconds
        self._end = None if seconds is None else self._clock.monotonic_seconds() + seconds
        self._topic_id = ""
        with ExitStack() as clients:
            self._admin = clients.enter_context(closing(cluster.admin()))
            self._first = self._look()
            self._groups = self._written_groups()
            self._clients = clients.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the clients. Iterators end."""
        self._clients.close()

    def as_of(self) -> AsOf:
        """Return the moment that all entries read so far belong to.

        :raises StateStoreError: a run that began meanwhile has moved keys to more processors.
        """
        now = self._look()
        if _tasks(_recorded(now, self._changelog)) != _tasks(self._recorded):
            raise StateStoreError(
                f"store {self.store!r}: application {self._plan.application_id!r} got other tasks while the "
                "store was read, so entries may be missing",
                fix="read it again",
            )
        return as_of(self._first, now)

    def get(self, key: Any, *window_ms: int) -> Any:
        """Return the value of a key, None if there is none; of a versioned store the latest one, or the one
        of a moment.

        :param window_ms: the window's start; for a session its start and end; for a versioned store a moment;
            for the store of a join the time of an element; all in epoch milliseconds.
        :raises ConfigError: the store has windows, and none is named, or there are several elements; more is
            named than the store's entries have.
        """
        if len(window_ms) > self._form.moments:
            raise ConfigError(
                f"store {self.store!r} was asked for the key {key!r} with {window_ms}, but {self._named}",
                fix="leave out what its entries do not have",
            )
        entries = self.find(key)
        if self._versioned:
            found = [entry for entry in entries if _valid(entry, *window_ms)]
        else:
            found = [
                entry for entry in entries if (entry.start_ms, entry.end_ms)[: len(window_ms)] == window_ms
            ]
        if len(found) > 1:
            raise ConfigError(
                f"store {self.store!r} holds {counted(len(found), 'entry')} of the key {key!r}",
                fix="name the window: get(key, start_ms), or get(key, start_ms, end_ms); or take find(key)",
            )
        return found[0].value if found else None

    @property
    def _named(self) -> str:
        """The parts that name an entry of the store, in words."""
        if self._versioned:
            return "its versions are named by the key and one moment"
        moments = ("", " and a time", " and the start and end of a window")[self._form.moments]
        return f"its entries are named by the key{moments or ' alone'}"

    def find(self, key: Any) -> list[StateEntry]:
        """Return the entries of a key, in the order of windows or times; empty if the key has none.

        :param key: the key as an object, without a window.
        :raises StateStoreError: the store's key serde cannot encode the key, or entries are not in its
            serdes.
        """
        try:
            wanted = self._form.serialize_key(key)
        except Exception as error:
            raise StateStoreError(
                f"store {self.store!r} was asked for the key {key!r} (type {type(key).__qualname__}), which "
                f"its key serde does not take: {type(error).__name__}: {error}",
                fix="ask with keys as the topology puts them",
            ) from error
        return self.find_serialized(wanted)

    def find_text(self, text: str) -> list[StateEntry]:
        """Return the entries of a key that is given as text: as it is where keys are text, else as JSON.

        :raises ConfigError: the store has no keys that the text could mean.
        """
        return self.find_serialized(key_bytes_of_text(self._form, self.store, text))

    def find_serialized(self, key: bytes) -> list[StateEntry]:
        """Return the entries of a serialized key, see :meth:`find`.

        The key is looked for where producers place it, and in all other tasks if it is not there.
        """
        likely = self._likely(key)
        others = [group for group in self._groups if group not in likely]
        for groups in (likely, others):
            found = list(chain.from_iterable(self._read(group, groups, key) for group in groups))
            if found:
                return found
        return []

    def all(self) -> Iterator[StateEntry]:
        """Iterate over every entry: task by task, in the order of serialized keys. A task's part of the store
        is read when the one before it has been taken.

        :raises StateStoreError: an entry is not in the store's serdes.
        """
        for group in self._groups:
            yield from self._read(group, self._groups)

    def _look(self) -> RunFacts:
        app = self._plan.application_id
        with closing(self._cluster.reader(group_id=app)) as reader:
            return RunFacts.read(self._cluster, app, admin=self._admin, reader=reader, clock=self._clock)

    def _written_groups(self) -> list[int]:
        """Return the groups whose changelog partition holds a part of the store.

        :raises ConfigError: there is no changelog, or the cluster has nothing of the application.
        :raises StateStoreError: the changelog is not the one that the topology describes.
        """
        topic = self._admin.describe_topics([self._changelog]).get(self._changelog)
        if topic is None:
            refuse_unknown_application(self._admin, self._plan.application_id)
            raise ConfigError(
                f"store {self.store!r} has no changelog: topic {self._changelog!r} does not exist",
                fix="check the application id; the first run that has records makes the topic",
            )
        self._topic_id = topic.topic_id
        recorded = self._recorded
        if recorded is None:
            return list(range(topic.partitions))
        if recorded.changelogs[self._changelog] != topic.topic_id:
            raise StateStoreError(
                f"store {self.store!r}: topic {self._changelog!r} was deleted and created again: it is not "
                "the one that the runs have written",
                fix="see airflow-kstreams doctor for the ways out",
            )
        for what, written, ours in (
            ("as", recorded.state_kinds, self._sub.state_kinds),
            ("with the serdes", recorded.store_serdes, self._sub.store_serdes),
        ):
            before, now = written.get(self._changelog), ours.get(self._changelog)
            if before and before != now:
                raise StateStoreError(
                    f"store {self.store!r}: its runs have written it {what} {before!r}, the application file "
                    f"has {now!r}",
                    fix="name the file, and the version of it, whose runs wrote the store",
                )
        return list(range(min(len(recorded.by_group), topic.partitions)))

    @cached_property
    def _recorded(self) -> GroupedPartitions | None:
        """The groups that the store's state depends on; None before the first run with records."""
        return _recorded(self._first, self._changelog)

    @cached_property
    def _homes(self) -> Homes | None:
        processors = None if self._recorded is None else self._recorded.processors
        return None if processors is None else Homes(processors, self._sub.entry_keys)

    @cached_property
    def _reader(self) -> ReaderPort:
        reader = self._cluster.reader(group_id=self._plan.application_id)
        return self._clients.enter_context(closing(reader))

    def _likely(self, key: bytes) -> list[int]:
        """Return the groups that may hold a key, if its producers place keys as Kafka does.

        :param key: bytes of the key, without a window.
        """
        keys = self._sub.entry_keys.get(self._changelog)
        recorded = self._recorded
        if recorded is None or keys is None or keys.unfit:
            return []
        hashed = placing_hash(type(keys)(), key)
        if hashed is None:
            return []
        if recorded.processors is not None:
            return [recorded.processors.of_hash(hashed)]
        groups = group_of_partition(recorded.by_group)
        found: dict[int, None] = {}
        for topic, count in recorded.partitions.items():
            growth = recorded.grown.get(topic)
            numbers = {hashed % count}
            if growth is not None:
                numbers = {at for kind in growth.kinds for at in places(hashed, growth.history, kind)}
            for number in sorted(numbers):
                group = groups.get(TopicPartition(topic, number))
                if group is not None and group in self._groups:
                    found[group] = None
        return list(found)

    def _read(self, group: int, groups: Sequence[int], wanted: bytes | None = None) -> Iterator[StateEntry]:
        """Read a task's part of the store.

        :param groups: all groups that are to be read, for the progress.
        :param wanted: bytes of the only key whose entries are wanted; None for all entries.
        """
        partition = TopicPartition(self._changelog, group)
        if group == groups[0]:
            self._expect(groups)
        task_id = f"{self._sub.id}_{group}"
        with LogFold(self._form.key_part) as fold:
            self._fold(partition, fold, wanted)
            for key, value, timestamp_ms in fold.entries():
                content = read_entry(self._form, self.store, key, value)
                yield StateEntry(**content._asdict(), timestamp_ms=timestamp_ms, task_id=task_id)

    def _fold(self, partition: TopicPartition, fold: LogFold, wanted: bytes | None) -> None:
        position = self._admin.start_offsets([partition])[partition]
        self._refuse_lost(partition, position)
        while (end := self._ends([partition])[partition]) > position:
            read = BoundedRead(self._reader, {partition: (position, end)}, clock=self._clock)
            for fetched in read:
                self._refuse_to_read_on(partition)
                fold.add(self._own(partition, fetched.get(partition, ())), wanted)
                self._step(read.positions[partition] - position)
                position = read.positions[partition]
            position = end

    def _refuse_to_read_on(self, partition: TopicPartition) -> None:
        """Refuse to read longer than the bound. What was read of this partition is no state: a later record
        may replace it.

        :raises StateStoreError: the time is over.
        """
        if self._end is not None and self._clock.monotonic_seconds() >= self._end:
            raise StateStoreError(
                f"store {self.store!r}: the time of {self._seconds:g} s was over at {partition}, when "
                f"{self._done:,} of {counted(self._total, 'offset')} had been read",
                fix="give it more time (--timeout SECONDS, 0 for no bound), or ask for one key",
            )

    def _refuse_lost(self, partition: TopicPartition, log_start: int) -> None:
        """Refuse a part of the changelog that does not hold all records that runs have written.

        :raises DataLossError: records are gone, as a run would refuse them.
        """
        recorded = self._first.ledger.changelog_ends
        read = self._first.ledger.assignment.topics
        state = None if recorded is None else recorded.changelogs.get(partition.topic)
        ends = () if state is None or state.id != self._topic_id else state.ends
        known = ends[partition.partition] if partition.partition < len(ends) else 0
        log_end = self._admin.end_offsets([partition], isolation="read_uncommitted")[partition]
        if log_start:
            loss = changelog_deleted(self._plan, partition, log_start=log_start, read=read)
        elif log_end < known:
            why = "the ledger says that a finished run left it at"
            loss = changelog_truncated(
                self._plan, partition, log_end=log_end, expected=known, why=why, read=read
            )
        else:
            return
        raise data_loss([loss], self._plan.application_id, run_id=self._first.run_id)

    def _own(self, partition: TopicPartition, records: Sequence[Record]) -> Sequence[Record]:
        """Return the records of keys that the task still has."""
        if self._homes is None:
            return records
        return self._homes.at_home(partition.topic, records, partition.partition)

    def _ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._admin.end_offsets(partitions, isolation="read_committed")

    def _expect(self, groups: Sequence[int]) -> None:
        """Add the offsets that are to be read to the progress."""
        self._total += sum(self._ends([TopicPartition(self._changelog, group) for group in groups]).values())

    def _step(self, offsets: int) -> None:
        self._done += offsets
        self._total = max(self._total, self._done)
        self._progress(self._done, self._total)


def _found(
    topology: Topology, subtopologies: Sequence[SubtopologyPlan], store: str
) -> tuple[StoreSpec, SubtopologyPlan]:
    spec = next((spec for spec in topology.stores if spec.name == store), None)
    names = sorted(spec.name for spec in topology.stores if spec.logged)
    there = f"name one of its stores: {', '.join(names)}" if names else "it keeps no state that is logged"
    if spec is None:
        raise ConfigError(f"the topology has no store {store!r}", fix=there)
    sub = next((sub for sub in subtopologies if store in sub.changelogs), None)
    if sub is None:
        raise ConfigError(
            f"store {store!r} has no changelog (logged=False): its content goes with each task", fix=there
        )
    return spec, sub


def _valid(entry: StateEntry, as_of_ms: int | None = None) -> bool:
    """Return whether a version is the one of a moment; without a moment, whether it is the latest."""
    if as_of_ms is None:
        return entry.end_ms is None
    return (entry.start_ms or 0) <= as_of_ms and (entry.end_ms is None or as_of_ms < entry.end_ms)


def _form(spec: StoreSpec, state_kind: str) -> EntryForm:
    """Return the form of a store's entries.

    :param state_kind: state kind as the plan has it: the kind of store, and the windows it was folded by.
    """
    sizes = [int(word.removeprefix(_WINDOW_SIZE)) for word in state_kind.split() if _WINDOW_SIZE in word]
    return entry_form(spec, sizes[0] if sizes else None)


def _recorded(seen: RunFacts, changelog: str) -> GroupedPartitions | None:
    entries = seen.ledger.assignment.current
    return next((entry for entry in entries if changelog in entry.changelogs), None)


def _tasks(recorded: GroupedPartitions | None) -> tuple[int, Processors | None]:
    """Return the facts that decide in which partition an entry lies: number of groups, and processors."""
    return (0, None) if recorded is None else (len(recorded.by_group), recorded.processors)


def _unseen(done: int, total: int) -> None:
    """Show no progress."""


class LogFold:
    """The newest value of each key of a log, in a temporary database; a context manager that frees its space.

    :param key_part: returns the part of a record's key that :meth:`add` compares.
    """

    def __init__(self, key_part: Callable[[bytes], bytes | None]) -> None:
        self._key_part = key_part
        self._database = sqlite3.connect("", isolation_level=None)
        for pragma in (
            f"page_size = {_PAGE_BYTES}",
            f"cache_size = -{CACHE_BYTES // 1024}",
            "journal_mode = OFF",
            "synchronous = OFF",
        ):
            self._database.execute(f"PRAGMA {pragma}")
        self._database.execute("CREATE TABLE entry (key BLOB PRIMARY KEY, value BLOB, ms INTEGER)")
        self._database.execute("BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def add(self, records: Sequence[Record], wanted: bytes | None = None) -> None:
        """Apply records in their order.

        :param wanted: the part that keys must have for their records to be applied; None for all records.
        :raises StateStoreError: the temporary folder has no room.
        """
        newest: dict[bytes, tuple[bytes | None, int]] = {}
        part = self._key_part
        for record in records:
            key = record.key() or b""
            if wanted is None or part(key) == wanted:
                newest[key] = (record.value(), record.timestamp()[1])
        gone = [(key,) for key, (value, _) in newest.items() if value is None]
        there = [(key, value, ms) for key, (value, ms) in newest.items() if value is not None]
        try:
            self._database.executemany("DELETE FROM entry WHERE key = ?", gone)
            self._database.executemany("INSERT OR REPLACE INTO entry VALUES (?, ?, ?)", there)
        except sqlite3.Error as error:
            raise _no_room(error) from error

    def entries(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Iterate over (key, value, timestamp_ms) in the order of keys; nothing is added meanwhile.

        :raises StateStoreError: the temporary folder cannot be read.
        """
        try:
            yield from self._database.execute("SELECT key, value, ms FROM entry ORDER BY key")
        except sqlite3.Error as error:
            raise _no_room(error) from error


def _no_room(error: sqlite3.Error) -> StateStoreError:
    return StateStoreError(
        f"what was read of the changelog cannot be kept in the temporary folder: {error}",
        fix="let TMPDIR name a folder with room for the largest task of the store",
    )
