"""Reads the metadata topic, follows it, and folds its records into the state of a run; the fold is pure.

States and what makes them (KIP-95)::

    NEW ------ begin ------> RUNNING ------ finish ------> FINISHED
                                ^                              |
                                +------------ begin -----------+

    NEW       no live marker; stop offsets without a completed marker do not count
    RUNNING   completed marker live, with the stop set its hash names
    FINISHED  finished marker live, alone is enough

Invariant: the fold depends only on each key's last record among the visible ones, except that a key's
tombstone removes it. So compaction, which keeps at least each key's last record, cannot change it.

Crash argument: begin writes tombstones, stop offsets and the completed marker in one transaction; a crash
anywhere in it shows a read_committed reader the state before. A foreign writer without transactions, in the
spec's order, crashes into: some tombstones (marker still live: FINISHED as before), all tombstones or some
stops (no marker: NEW), all stops (NEW), marker (RUNNING).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.protocol.checked_reading import (
    LARGEST,
    UnreadableError,
    read_json,
    read_number,
    read_text,
)
from airflow_kstreams.batch.protocol.logs.log_read import (
    OPEN_TRANSACTION_TIMEOUT_MS,
    LogContent,
    LogFacts,
    read_log,
)
from airflow_kstreams.batch.protocol.slice.metadata_records import (
    COMPLETED,
    DONE,
    FINISHED,
    H_END_EPOCH,
    H_GENERATION,
    H_GROUP,
    H_KIND,
    H_OWNER,
    H_PARTITION,
    H_PLAN,
    H_RUN,
    H_START,
    H_SUBTOPOLOGY,
    H_TOPIC,
    H_VERSION,
    KIND_DONE,
    KIND_INTERMEDIATE_STOP,
    KIND_STOP,
    VERSION,
    headers_of,
    joined,
    pieces_of,
    reported_key,
    stop_hash,
)
from airflow_kstreams.batch.protocol.slice.slice import FrozenPartition, RunPlan, Slice
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.naming.commands import drop_slice_command
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, ReaderPort, Record, TopicPartition

#: Number of times that a torn stop set is read before it is an error.
READS = 3
#: A partition or an offset as the format writes it: no sign, no leading zero, at most 64 bits.
_NUMBER = "(0|[1-9][0-9]{0,18})"
_ANY_TOPIC = "([A-Za-z0-9._-]{1,249})"
#: A tombstone stays for ``delete.retention.ms``, a day unless set; one that a view has missed is found again.
_TRUSTED_SECONDS = 3_600
#: (input partition, intermediate partition) -> offset.
Notifications = Mapping[tuple[TopicPartition, TopicPartition], int]


class RunState(enum.Enum):
    """State of an application, folded from its metadata topic (KIP-95).

    ``NEW -> RUNNING -> FINISHED -> RUNNING -> ...``: begin enters RUNNING, finish enters FINISHED.
    """

    NEW = "new"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """The state that the records of the metadata topic give.

    :param state: state of the application.
    :param slice: slice of the run that is under way or was finished last; None when NEW, or when a foreign
        writer wrote it.
    :param owner: writer of the marker, for messages.
    :param done: (subtopology id, group) of each task of this slice, of any generation, that has notified.
    :param intermediate_stops: the stops that coordinators of this slice, of any generation, froze.
    :param intermediate_epochs: leader epoch at the end of each of those logs at that time, -1 when not known.
    :param notifications: KIP-95's own notifications, of pairs of partitions, which only a foreign writer
        writes.
    :param foreign_stops: stop offsets of a marker without our headers; the start offsets are not known in
        that case.
    :param live_keys: every key that holds a value, for which the next begin writes a tombstone; without that
        of reported failures, which wait until a begin or a finish has put them into the ledger.
    :param reported: failures that Airflow tasks have reported, as text; empty without any. Decides nothing.
    :param torn: whether the stop set, or the plan, is not the one that the marker names, so that the topic
        must be read again. Without its plan there is no slice.
    :param cleared: whether a tombstone of the marker is in the log.
    :param log: bounds of the log that was read.
    """

    state: RunState
    slice: Slice | None = None
    owner: str = ""
    done: frozenset[tuple[int, int]] = frozenset()
    intermediate_stops: Mapping[TopicPartition, int] = field(default_factory=dict)
    intermediate_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    notifications: Notifications = field(default_factory=dict)
    foreign_stops: Mapping[TopicPartition, int] = field(default_factory=dict)
    live_keys: tuple[bytes, ...] = ()
    reported: bytes = b""
    torn: bool = False
    cleared: bool = False
    log: LogFacts = field(default=LogFacts(), compare=False)

    @property
    def reached(self) -> dict[TopicPartition, int]:
        """The end of the records written to each intermediate partition for this slice, where it is known."""
        found: dict[TopicPartition, int] = {}
        for (_, intermediate), offset in self.notifications.items():
            found[intermediate] = max(found.get(intermediate, 0), offset)
        return {**found, **self.intermediate_stops}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """The last record of a key."""

    key: bytes
    value: bytes
    headers: Mapping[str, bytes]
    place: str

    @property
    def ours(self) -> bool:
        """Whether it carries our headers, of a version this package reads."""
        return self.headers.get(H_VERSION) == VERSION

    @property
    def run(self) -> bytes:
        """Id of the run that wrote it, in UTF-8 where it is one of ours."""
        return self.headers.get(H_RUN, b"")

    def number(self, name: str, *, most: int = LARGEST, default: bytes | None = None) -> int:
        """Return the number in a header.

        :raises UnreadableError: there is none.
        """
        return read_number(self.headers.get(name, default), most=most)

    def partition(self, plan: RunPlan) -> TopicPartition:
        """Return the partition that it is about.

        :raises UnreadableError: the run that froze the plan reads no such partition.
        """
        topic = read_text(self.headers.get(H_TOPIC))
        count = plan.partitions.get(topic, 0)
        if not count:
            raise UnreadableError("a topic that its run does not read")
        return TopicPartition(topic, self.number(H_PARTITION, most=count - 1))


class LiveRecords:
    """The last record of each key that holds a value, kept up to date while a log is read in parts."""

    def __init__(self) -> None:
        self._entries: dict[bytes, _Entry] = {}
        #: Keys that were deleted and hold no value.
        self._deleted: set[bytes] = set()

    @property
    def keys(self) -> tuple[bytes, ...]:
        """Every key that holds a value, whether this version can read it or not."""
        return tuple(self._entries)

    def add(self, records: Iterable[Record]) -> None:
        """Take in the records that follow, in log order."""
        for record in records:
            key, value = record.key(), record.value()
            if key is None:
                continue
            self._entries.pop(key, None)
            if value is None:
                self._deleted.add(key)
            else:
                self._deleted.discard(key)
                place = f"{record.topic()}-{record.partition()}@{record.offset()}"
                self._entries[key] = _Entry(key=key, value=value, headers=headers_of(record), place=place)

    def fold(self, application_id: str, *, topics: Collection[str] = ()) -> Folded:
        """Fold them, see :func:`fold`."""
        reported = self._entries.get(reported_key(application_id))
        folded = self._fold(application_id, topics)
        return folded if reported is None else replace(folded, reported=reported.value)

    def _fold(self, application_id: str, topics: Collection[str]) -> Folded:
        live, marker_key = dict(self._entries), application_id.encode()
        live.pop(reported_key(application_id), None)
        keys = tuple(live)
        marker = live.pop(marker_key, None)
        if marker is None or marker.value not in (COMPLETED, FINISHED):
            return Folded(state=RunState.NEW, live_keys=keys, cleared=marker_key in self._deleted)
        state = RunState.RUNNING if marker.value == COMPLETED else RunState.FINISHED
        _refuse_other_format(marker)
        encoded = marker.headers.get(H_PLAN)
        if pieces_of(marker.headers):
            encoded = joined(marker.key, marker.headers, lambda key: live[key].value if key in live else None)
            if encoded is None:
                return Folded(state=state, live_keys=keys, torn=True)
        plan = _plan(marker, encoded)
        entries = list(live.values())
        if plan is None:
            return _foreign(state, entries, keys, topics)
        ours = [entry for entry in entries if entry.ours and entry.run == marker.run]
        found = _stops(ours, plan, KIND_STOP)
        inputs = tuple(sorted(found, key=lambda p: p.topic_partition))
        between = tuple(_stops(ours, plan, KIND_INTERMEDIATE_STOP))
        with _readable(marker, application_id):
            run_id = read_text(marker.run)
            generation = marker.number(H_GENERATION, default=b"0")
        return Folded(
            state=state,
            slice=Slice(run_id=run_id, generation=generation, plan=plan, inputs=inputs),
            owner=marker.headers.get(H_OWNER, b"").decode(errors="replace"),
            done=frozenset(_done(ours, plan)),
            intermediate_stops={part.topic_partition: part.stop_offset for part in between},
            intermediate_epochs={part.topic_partition: part.end_epoch for part in between},
            live_keys=keys,
            torn=stop_hash(inputs) != plan.stop_hash,
        )


def fold(records: Iterable[Record], application_id: str, *, topics: Collection[str] = ()) -> Folded:
    """Fold the topic's records, in log order.

    :param topics: the topology's own source topics, by which keys of records without headers are read; the
        marker's plan is used when it has one.
    """
    live = LiveRecords()
    live.add(records)
    return live.fold(application_id, topics=topics)


def live_keys(records: Iterable[Record]) -> tuple[bytes, ...]:
    """Return every key that holds a value, whether this version can read it or not."""
    live = LiveRecords()
    live.add(records)
    return live.keys


def read_metadata(
    cluster: ClusterPort,
    application_id: str,
    *,
    admin: AdminPort | None = None,
    reader: ReaderPort | None = None,
    topics: Collection[str] = (),
    wait_ms: int = OPEN_TRANSACTION_TIMEOUT_MS,
    clock: Clock | None = None,
) -> Folded:
    """Read an application's metadata topic and fold it; a missing topic is NEW.

    :param wait_ms: milliseconds to wait for open transactions that hide committed records; 0 takes what is
        visible already.
    :raises OpenTransactionError: a transaction that stays open hides committed records.
    :raises KafkaClientError: the topic cannot be read, or its stop set stays torn.
    """
    view = MetadataView(cluster, application_id, clock=clock)
    return view.read(admin=admin, reader=reader, topics=topics, wait_ms=wait_ms)


def torn(application_id: str) -> KafkaClientError:
    """Build the error for a stop set or a plan that stays torn."""
    return KafkaClientError(
        f"the stop offsets or the plan in {ProtocolTopics(application_id).metadata} are not those that the "
        f"marker names (read {READS} times)",
        fix=f"something else writes to this topic: stop it, then run {drop_slice_command(application_id)}",
        kafka_code="TORN_METADATA",
        retriable_code=True,
    )


def _refuse_other_format(marker: _Entry) -> None:
    """Refuse a marker of another version: its records are not in the spec's bare format.

    :raises KafkaClientError: this version cannot read it.
    """
    version = marker.headers.get(H_VERSION, VERSION)
    if version != VERSION:
        raise KafkaClientError(
            f"the run's marker is written in format {version.decode(errors='replace')!r}, expected "
            f"{VERSION.decode()!r}",
            fix="install the airflow_kstreams version that began the run, or drop its slice: "
            f"{drop_slice_command(marker.key.decode())}",
            kafka_code="BAD_METADATA",
        )


def _plan(marker: _Entry, encoded: bytes | None) -> RunPlan | None:
    """Return the plan that the marker's run froze; None for a marker in the spec's bare format.

    :param encoded: the plan as it was written; None where there is none.
    :raises KafkaClientError: the engine wrote it, and this version cannot read it.
    """
    if encoded is None:
        return None
    with _readable(marker, marker.key.decode(), "the plan in the run's marker"):
        plan = read_json(encoded, RunPlan)
        refuse_unfit(plan, marker.key.decode())
        return plan


@contextmanager
def _readable(entry: _Entry, application_id: str, what: str = "the record") -> Iterator[None]:
    """Turn what is unreadable in a record into an error that names the record and the cure.

    :raises KafkaClientError: the block meets a value that this version cannot read.
    """
    try:
        yield
    except UnreadableError as error:
        raise KafkaClientError(
            f"{entry.place}: {what} cannot be read: {error}",
            fix="install the airflow_kstreams version that began the run, or drop its slice: "
            f"{drop_slice_command(application_id)}",
            kafka_code="BAD_METADATA",
        ) from None


def refuse_unfit(plan: RunPlan, application_id: str) -> None:
    """Refuse a plan whose parts do not fit each other, as none that begin writes.

    :raises UnreadableError: it is another application's, would have topics of others deleted, or does not
        have what its topology reads.
    """
    topology = plan.topology
    if topology.application_id != application_id:
        raise UnreadableError("a plan of another application")
    if ProtocolTopics(application_id).others((*topology.changelogs, *topology.repartition_topics)):
        raise UnreadableError("a plan with topics of others among those that a reset or a finish deletes")
    if not {*topology.sources} <= plan.partitions.keys() & plan.topic_ids.keys():
        raise UnreadableError("a plan without the counts or ids of topics that its topology reads")
    numbers = {str(sub.id) for sub in topology.subtopologies}
    if not numbers >= plan.tasks.keys() | plan.groups.keys() | plan.grown.keys() | plan.processors.keys():
        raise UnreadableError("a plan for subtopologies that its topology does not have")


def _stops(entries: Iterable[_Entry], plan: RunPlan, kind: bytes) -> Iterator[FrozenPartition]:
    for entry in entries:
        if entry.headers.get(H_KIND) != kind:
            continue
        with _readable(entry, plan.topology.application_id):
            topic, partition = entry.partition(plan)
            found = FrozenPartition(
                topic=topic,
                partition=partition,
                start_offset=entry.number(H_START),
                stop_offset=read_number(entry.value),
                end_epoch=entry.number(H_END_EPOCH) if H_END_EPOCH in entry.headers else -1,
            )
        yield found


def _done(entries: Iterable[_Entry], plan: RunPlan) -> Iterator[tuple[int, int]]:
    for entry in entries:
        if entry.headers.get(H_KIND) == KIND_DONE and entry.value == DONE:
            with _readable(entry, plan.topology.application_id):
                found = (entry.number(H_SUBTOPOLOGY), entry.number(H_GROUP))
            yield found


def _foreign(
    state: RunState, entries: Collection[_Entry], keys: tuple[bytes, ...], topics: Collection[str]
) -> Folded:
    """Read a slice in the spec's bare format: keys parsed against the topology's own topic names.

    The topic may hold other records, too: one that is not written exactly as the format says is ignored. So
    are the records that the engine's own runs left there: only the engine's own markers say how far those
    came.
    """
    stops: dict[TopicPartition, int] = {}
    notifications: dict[tuple[TopicPartition, TopicPartition], int] = {}
    stop, notification = _bare_keys(f"({'|'.join(map(re.escape, sorted(topics)))})")
    for entry in entries if topics else ():
        if H_VERSION in entry.headers:
            continue
        key, value = entry.key.decode(errors="replace"), entry.value.decode(errors="replace")
        if not re.fullmatch(_NUMBER, value):
            continue
        if found := stop.fullmatch(key):
            stops[_partition(found[1], found[2])] = int(value)
        if found := notification.fullmatch(key):
            notifications[_partition(found[1], found[2]), _partition(found[3], found[4])] = int(value)
    return Folded(state=state, foreign_stops=stops, notifications=notifications, live_keys=keys)


def _bare_keys(topic: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return patterns for the keys of stop offsets and of notifications in the spec's bare format.

    :param topic: pattern that matches a topic, in a group.
    """
    partition = f"{topic}_{_NUMBER}"
    return re.compile(partition), re.compile(f"{partition}-{partition}")


def first_stranger(
    records: Iterable[Record], application_id: str, *, topics: Collection[str] | None
) -> Record | None:
    """Return the first record that neither the engine nor a program in the spec's bare format has written.

    A tombstone says nothing but its key: it may be of topics that earlier runs have read.

    :param topics: topics that keys in the bare format may name; None for any.
    """
    any_of_them = _ANY_TOPIC if topics is None else f"({'|'.join(map(re.escape, sorted(topics)))})"
    bare, deleted = _bare_keys(any_of_them), _bare_keys(_ANY_TOPIC)
    marker = re.compile(rf"{re.escape(application_id)}(#\d+|#reported)?")
    for record in records:
        key, value = record.key(), record.value()
        headers = headers_of(record)
        if key is not None and (H_VERSION in headers or H_KIND in headers):
            continue
        name = "" if key is None else key.decode(errors="replace")
        if value is None:
            fits = any(form.fullmatch(name) for form in (*deleted, marker))
        elif name == application_id:
            fits = value in (COMPLETED, FINISHED)
        else:
            number = re.fullmatch(_NUMBER, value.decode(errors="replace"))
            fits = number is not None and any(form.fullmatch(name) for form in bare)
        if not fits:
            return record
    return None


def _partition(topic: str, number: str) -> TopicPartition:
    return TopicPartition(topic, int(number))


class MetadataView:
    """The records that one reader of a metadata topic has seen, so that the next look reads only new ones.

    Records below the last stable offset never change, and compaction removes only those that a later record
    of the same key has replaced. So the records read so far, and those that follow, give the state that a
    read from the beginning would give; unless the topic was created again, its log begins or ends elsewhere,
    or the last look is so long ago that a tombstone may have come and gone. Then everything is read again.

    :param clock: clock to go by; the machine's unless given.
    """

    def __init__(self, cluster: ClusterPort, application_id: str, *, clock: Clock | None = None) -> None:
        self._cluster = cluster
        self._app = application_id
        self._clock = clock or SystemClock()
        self._live = LiveRecords()
        #: Bounds of the log at the last look.
        self.content = LogContent((), 0, LogFacts())
        self._position = 0
        self._looked = 0.0
        self._folded: tuple[Collection[str], Folded] | None = None

    def read(
        self,
        *,
        admin: AdminPort | None = None,
        reader: ReaderPort | None = None,
        topics: Collection[str] = (),
        wait_ms: int = OPEN_TRANSACTION_TIMEOUT_MS,
    ) -> Folded:
        """Read the new records, and fold them with those that were read before; as :func:`read_metadata`."""
        for _ in range(READS):
            self._read(admin, reader, wait_ms)
            if self._folded is None or self._folded[0] != topics:
                self._folded = (topics, self._live.fold(self._app, topics=topics))
            folded = replace(self._folded[1], log=self.content.log)
            if not folded.torn or (folded.state is RunState.FINISHED and folded.slice is not None):
                return folded
            self._forget()
        raise torn(self._app)

    def _read(self, admin: AdminPort | None, reader: ReaderPort | None, wait_ms: int) -> None:
        now = self._clock.monotonic_seconds()
        if now - self._looked > _TRUSTED_SECONDS:
            self._forget()
        self._looked = now
        for _ in range(2):
            content = read_log(
                self._cluster,
                ProtocolTopics(self._app).metadata,
                group_id=self._app,
                admin=admin,
                reader=reader,
                first=self._position,
                wait_ms=wait_ms,
                clock=self._clock,
            )
            log, known = content.log, self.content.log
            same = (log.topic_id, log.start) == (known.topic_id, known.start)
            if not self._position or (same and log.end >= self._position):
                break
            self._forget()
        self.content = content
        if content.records:
            self._live.add(content.records)
            self._folded = None
        self._position = max(self._position, content.stable_end)

    def _forget(self) -> None:
        self._live, self._position, self._folded = LiveRecords(), 0, None
