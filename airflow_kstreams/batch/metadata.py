"""What the metadata topic says: the fold of its records, pure, and the read that feeds it.

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

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from airflow_kstreams.batch.log_read import OPEN_TRANSACTION_TIMEOUT_MS, LogContent, read_log
from airflow_kstreams.batch.metadata_records import (
    COMPLETED,
    FINISHED,
    H_GENERATION,
    H_INTERMEDIATE,
    H_INTERMEDIATE_PARTITION,
    H_KIND,
    H_OWNER,
    H_PARTITION,
    H_PLAN,
    H_RUN,
    H_START,
    H_TOPIC,
    H_VERSION,
    KIND_NOTIFICATION,
    VERSION,
    metadata_topic,
    notification_key,
    notification_record,
    stop_hash,
    stop_key,
)
from airflow_kstreams.batch.model import FrozenPartition, RunPlan, RunState, Slice
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, ReaderPort, Record, TopicPartition

__all__ = ["Folded", "fold", "notification_record", "read_metadata"]

_READS = 3

#: (input partition, intermediate partition) -> offset.
Notifications = Mapping[tuple[TopicPartition, TopicPartition], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """What the metadata topic says.

    :param state: of the application.
    :param slice: of the run that is running or was finished last; None when NEW, or written by a foreign
        writer.
    :param owner: who wrote the marker, for messages.
    :param notifications: of this slice, whatever generation wrote them.
    :param foreign_stops: stop offsets of a marker without our headers; the start offsets are not known then.
    :param live_keys: every key that holds a value, to be tombstoned by the next begin.
    :param torn: whether the stop set is not the one the marker names, so that the topic must be read again.
    """

    state: RunState
    slice: Slice | None = None
    owner: str = ""
    notifications: Notifications = field(default_factory=dict)
    foreign_stops: Mapping[TopicPartition, int] = field(default_factory=dict)
    live_keys: tuple[bytes, ...] = ()
    torn: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """The last record of a key."""

    key: bytes
    value: bytes
    headers: Mapping[str, bytes]

    @property
    def ours(self) -> bool:
        """Whether it carries our headers, of a version this package reads."""
        return self.headers.get(H_VERSION) == VERSION

    @property
    def run_id(self) -> str:
        """The run that wrote it."""
        return self.headers.get(H_RUN, b"").decode()


def fold(records: Iterable[Record], application_id: str, *, topics: Collection[str] = ()) -> Folded:
    """Fold the topic's records, in log order.

    :param topics: the topology's own source topics, to read keys of records without headers; the marker's
        plan is used when it has one.
    """
    live: dict[bytes, _Entry] = {}
    for record in records:
        key, value = record.key(), record.value()
        if key is None:
            continue
        live.pop(key, None)
        if value is not None:
            live[key] = _Entry(key=key, value=value, headers=_headers(record))
    keys = tuple(live)
    marker = live.pop(application_id.encode(), None)
    if marker is None or marker.value not in (COMPLETED, FINISHED):
        return Folded(state=RunState.NEW, live_keys=keys)
    state = RunState.RUNNING if marker.value == COMPLETED else RunState.FINISHED
    plan = _plan(marker)
    entries = list(live.values())
    if plan is None:
        return _foreign(state, entries, keys, topics)
    inputs = tuple(sorted(_stops(entries, marker.run_id), key=lambda p: p.topic_partition))
    return Folded(
        state=state,
        slice=Slice(
            run_id=marker.run_id,
            generation=int(marker.headers.get(H_GENERATION, b"0")),
            plan=plan,
            inputs=inputs,
        ),
        owner=marker.headers.get(H_OWNER, b"").decode(),
        notifications=_notifications(entries, marker.run_id),
        live_keys=keys,
        torn=stop_hash(inputs) != plan.stop_hash,
    )


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

    :param wait_ms: how long to wait for transactions that hide committed records; 0 takes what is stable.
    :raises OpenTransactionError: a transaction that stays open hides committed records.
    :raises KafkaClientError: the topic cannot be read, or its stop set stays torn.
    """
    folded, _ = read_metadata_with_content(
        cluster, application_id, admin=admin, reader=reader, topics=topics, wait_ms=wait_ms, clock=clock
    )
    return folded


def read_metadata_with_content(
    cluster: ClusterPort,
    application_id: str,
    *,
    admin: AdminPort | None = None,
    reader: ReaderPort | None = None,
    topics: Collection[str] = (),
    wait_ms: int = OPEN_TRANSACTION_TIMEOUT_MS,
    clock: Clock | None = None,
) -> tuple[Folded, LogContent]:
    """As :func:`read_metadata`, with the records themselves."""
    topic = metadata_topic(application_id)
    for _ in range(_READS):
        content = read_log(
            cluster, topic, group_id=application_id, admin=admin, reader=reader, wait_ms=wait_ms, clock=clock
        )
        folded = fold(content.records, application_id, topics=topics)
        if not folded.torn or folded.state is RunState.FINISHED:
            return folded, content
    raise KafkaClientError(
        f"the stop offsets in {topic} are not the ones that the completed marker names (read {_READS} times)",
        fix="something else writes to this topic: stop it, then reset the application",
        code="TORN_METADATA",
        retriable_code=True,
    )


def _headers(record: Record) -> dict[str, bytes]:
    return {name: value for name, value in record.headers() or () if value is not None}


def _plan(marker: _Entry) -> RunPlan | None:
    encoded = marker.headers.get(H_PLAN)
    if not marker.ours or encoded is None:
        return None
    try:
        return msgspec.json.decode(encoded, type=RunPlan)
    except msgspec.MsgspecError as error:
        raise KafkaClientError(
            f"the plan in the run's marker cannot be read: {error}",
            fix="install the airflow_kstreams version that began the run, or reset the application",
            code="BAD_METADATA",
        ) from None


def _stops(entries: Iterable[_Entry], run_id: str) -> Iterable[FrozenPartition]:
    for entry in entries:
        if entry.ours and entry.run_id == run_id and H_START in entry.headers:
            yield FrozenPartition(
                topic=entry.headers[H_TOPIC].decode(),
                partition=int(entry.headers[H_PARTITION]),
                start_offset=int(entry.headers[H_START]),
                stop_offset=int(entry.value),
            )


def _notifications(entries: Iterable[_Entry], run_id: str) -> Notifications:
    return {
        (
            TopicPartition(entry.headers[H_TOPIC].decode(), int(entry.headers[H_PARTITION])),
            TopicPartition(
                entry.headers[H_INTERMEDIATE].decode(), int(entry.headers[H_INTERMEDIATE_PARTITION])
            ),
        ): int(entry.value)
        for entry in entries
        if entry.ours and entry.run_id == run_id and entry.headers.get(H_KIND) == KIND_NOTIFICATION
    }


def _foreign(
    state: RunState, entries: Collection[_Entry], keys: tuple[bytes, ...], topics: Collection[str]
) -> Folded:
    """Read a slice in the spec's bare format: keys parsed against the topology's own topic names."""
    stops: dict[TopicPartition, int] = {}
    partitions: list[TopicPartition] = []
    for entry in entries:
        partition = _parse_stop_key(entry.key, topics)
        if partition is not None and entry.value.isdigit():
            stops[partition] = int(entry.value)
    for topic in topics:
        partitions += [TopicPartition(topic, number) for number in _numbers(entries, topic)]
    named = {notification_key(a, b).encode(): (a, b) for a in partitions for b in partitions}
    notifications = {
        named[entry.key]: int(entry.value)
        for entry in entries
        if entry.key in named and entry.value.isdigit()
    }
    return Folded(state=state, foreign_stops=stops, notifications=notifications, live_keys=keys)


def _parse_stop_key(key: bytes, topics: Collection[str]) -> TopicPartition | None:
    topic, _, number = key.decode(errors="replace").rpartition("_")
    if topic not in topics or not number.isdigit():
        return None
    partition = TopicPartition(topic, int(number))
    return partition if stop_key(partition).encode() == key else None


def _numbers(entries: Iterable[_Entry], topic: str) -> list[int]:
    """Return every partition number that any key could mean for a topic."""
    numbers: set[int] = set()
    for entry in entries:
        text = entry.key.decode(errors="replace")
        for part in text.split(f"{topic}_")[1:]:
            digits = part.split("-", 1)[0]
            if digits.isdigit():
                numbers.add(int(digits))
    return sorted(numbers)
