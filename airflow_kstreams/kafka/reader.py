"""Reads assigned partitions from given offsets.

The reader never subscribes, joins a group, commits by itself or resets a position. The broker's group
protocol plays no part: the transactional writer does the fencing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import Message as ClientMessage
from confluent_kafka import TopicPartition as ClientPartition

from airflow_kstreams.kafka.client_errors import (
    Access,
    attempt,
    convert,
    from_kafka_error,
    guarded,
    kafka_error_of,
    unreachable,
    unreadable_batch,
)
from airflow_kstreams.kafka.configuration.code_settings import with_callback
from airflow_kstreams.kafka.connection import (
    BoundedCaller,
    FirstContact,
    RequestTime,
    await_connection,
    bootstrap_of,
)
from airflow_kstreams.kafka.events import ClientEvents
from airflow_kstreams.kafka.record_columns import ColumnQueue, FetchFault, columns_of
from airflow_kstreams.streams.bounded_read import partition_portions, portions
from airflow_kstreams.streams.errors import KafkaClientError, KStreamsError
from airflow_kstreams.streams.naming.permissions import Operation, Permission, Resource
from airflow_kstreams.streams.ports import (
    CommittedOffset,
    Fetched,
    Isolation,
    Record,
    TimedRecords,
    TopicPartition,
)

#: Unless the user says otherwise. Queue memory is bounded because the client's own default is 64 MiB and more
#: per partition; the fetch wait is short because a bounded read waits for its end once per partition (10 ms
#: where a reader follows a log); half of the first pause between connections passes before a new client is of
#: use.
_DEFAULTS: Mapping[str, str] = {
    "queued.max.messages.kbytes": "32768",
    "queued.min.messages": "100000",
    "fetch.message.max.bytes": "4194304",
    "fetch.wait.max.ms": "1",
    "fetch.queue.backoff.ms": "5",
    "fetch.error.backoff.ms": "100",
    "reconnect.backoff.ms": "20",
    "reconnect.backoff.max.ms": "2000",
    "check.crcs": "true",
}
#: The client's default.
_RECEIVE_MAX_BYTES = "100000000"
_FOLLOWING = {"fetch.wait.max.ms": "10"}
#: The client warns of one that is not longer by a second than ``fetch.wait.max.ms``.
_LEAST_SOCKET_TIMEOUT_MS = int(_FOLLOWING["fetch.wait.max.ms"]) + 1_000
_SERVED_AT_ONCE = 1
#: Longest wait for records between two looks at the client's callbacks, and the first one where a partition
#: may have to be forwarded again.
_WAIT_SECONDS, _FIRST_WAIT_SECONDS = 0.1, 0.005
#: The client's default; it refuses one below ``session.timeout.ms``. Neither means anything without a group.
_MAX_POLL_INTERVAL_MS = 300_000
_COORDINATOR_MOVING = frozenset(
    {
        "NOT_COORDINATOR",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "UNSTABLE_OFFSET_COMMIT",
        "_TIMED_OUT",
    }
)
_FIRST_TRY_SECONDS = 1.0
_ERRORS_AT_ONCE = 100
_COORDINATOR_PAUSE_SECONDS = 0.1

_Taken = tuple[dict[TopicPartition, Sequence[Record]], list[FetchFault]]


class BoundedReader:
    """The port ``ReaderPort`` on the real client. One thread at a time.

    :param client_config: checked client settings.
    :param group_id: the group whose committed offsets it reads and writes.
    :param isolation: ``read_committed`` or ``read_uncommitted``.
    :param request_time: bound of every request, and of all requests and reads together, where it has one.
    :param follows: whether it waits for records that nobody may have written yet.
    :param small: whether it reads little, so that records cross one by one.
    """

    def __init__(
        self,
        client_config: Mapping[str, str],
        *,
        group_id: str,
        isolation: Isolation,
        request_time: RequestTime,
        follows: bool = False,
        small: bool = False,
    ) -> None:
        self._bootstrap = bootstrap_of(client_config)
        self._config = client_config
        self._access = Access(client_config)
        self._group_id = group_id
        self._time = request_time
        timeout_ms = request_time.request_ms
        self._events = ClientEvents(client_config)
        self._assigned: tuple[TopicPartition, ...] = ()
        self._paused: set[TopicPartition] = set()
        self._connected = False
        #: Partitions that were assigned while others were, and from which nothing has come yet.
        self._unheard: set[TopicPartition] = set()
        self._assigned_before = False
        self._known_topics: set[str] = set()
        self._caller = BoundedCaller(f"commits-of-{group_id}", timeout_seconds=request_time.request_seconds)
        self._consumer: Consumer = guarded(
            "creating a consumer",
            self._bootstrap,
            Consumer,
            {
                **_DEFAULTS,
                **(_FOLLOWING if follows else {}),
                "socket.timeout.ms": str(max(timeout_ms, _LEAST_SOCKET_TIMEOUT_MS)),
                **with_callback(client_config),
                "allow.auto.create.topics": "false",
                "group.id": group_id,
                "isolation.level": isolation,
                "enable.auto.commit": "false",
                "enable.auto.offset.store": "false",
                "enable.partition.eof": "true",
                "auto.offset.reset": "error",
                # Time for which the client keeps a commit that finds no coordinator. Kept longer than the
                # caller waits, it could reach the broker after a later commit of another client, and undo
                # that.
                "session.timeout.ms": str(timeout_ms),
                "max.poll.interval.ms": str(max(timeout_ms, _MAX_POLL_INTERVAL_MS)),
                **self._events.callbacks(),
            },
        )
        #: From which records are taken in batches; None if they come one by one.
        self._columns = None if small else columns_of(self._consumer, client_config)
        self._contact = FirstContact(self._consumer, client_config)

    @property
    def group_id(self) -> str:
        """The group whose committed offsets it reads and writes."""
        return self._group_id

    def group_metadata(self) -> object:
        """Return this reader's group in the client's own form, for a transaction that commits its offsets."""
        return guarded("naming the group", self._bootstrap, self._consumer.consumer_group_metadata)

    def connect(self) -> None:
        """Connect to the cluster, unless it is connected.

        :raises KStreamsError: it does not answer, or refuses the settings.
        """
        if not self._connected:
            await_connection(
                self._consumer,
                self._events,
                config=self._config,
                timeout_seconds=self._time.to_connect(),
                contact=self._contact,
            )
            self._connected = True

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read these partitions, each from its offset; replaces what was assigned before."""
        self.connect()
        # The client would remember what was paused, and never fetch it when it is assigned again.
        if self._paused:
            self.resume(tuple(self._paused))
        self._unheard = set(starts) if self._assigned_before else set()
        self._assigned_before = self._assigned_before or bool(starts)
        self._assigned = tuple(starts)
        for topic in sorted({tp.topic for tp in starts} - self._known_topics):
            # Without this the client looks for the partitions' leaders in its own time, which can be half a
            # second.
            guarded("reading metadata", self._bootstrap, self._consumer.list_topics, topic, self._time.left())
            self._known_topics.add(topic)
        if self._columns is not None:
            self._columns.forward(starts)
        guarded(
            "assigning partitions",
            self._bootstrap,
            self._consumer.assign,
            [ClientPartition(tp.topic, tp.partition, offset) for tp, offset in starts.items()],
        )

    def poll(self, *, max_records: int, timeout_seconds: float) -> Fetched:
        """Return what has arrived, waiting up to the timeout only if nothing has.

        :raises KafkaClientError: a partition cannot be read, every broker has been gone for the client
            timeout, or the time of all requests together is over.
        """
        columns = self._columns
        take = self._take_one_by_one if columns is None else partial(self._take_in_columns, columns)
        records, faults = take(max_records, 0)
        # Checked also when records come: the end of a read needs more than one answer.
        timeout_seconds = self._time.left(timeout_seconds)
        if not records and not faults and timeout_seconds > 0:
            # One record ends the wait; records that came with it are taken without waiting again.
            records, faults = take(_SERVED_AT_ONCE, timeout_seconds)
            if (records or faults) and max_records > _SERVED_AT_ONCE:
                more, more_faults = take(max_records - _SERVED_AT_ONCE, 0)
                records, faults = _followed_by(records, more), faults + more_faults
        if not records and not faults:
            self._refuse_lost_cluster()
            return Fetched({}, {})
        self._events.seen_connected()
        return Fetched(records, self._ends_among(faults) if faults else {})

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching these partitions; they stay assigned."""
        guarded("pausing partitions", self._bootstrap, self._consumer.pause, _client_partitions(partitions))
        self._paused.update(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Fetch these partitions again."""
        guarded("resuming partitions", self._bootstrap, self._consumer.resume, _client_partitions(partitions))
        self._paused.difference_update(partitions)

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the group's committed offsets with their metadata; partitions without one are absent.

        Under read_committed the broker answers only once no transaction with a pending offset commit is open.
        With its metadata an answer is kilobytes a partition, so many partitions are asked for in portions.
        """
        asked = list(partitions)
        if not asked:
            return {}
        self.connect()
        result: dict[TopicPartition, CommittedOffset] = {}
        for portion in partition_portions(asked):
            result |= self._committed(portion)
        return result

    def _committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        found = self._until_coordinated(
            "reading committed offsets", partial(self._consumer.committed, _client_partitions(partitions))
        )
        result: dict[TopicPartition, CommittedOffset] = {}
        for partition in found:
            self._raise_for(partition, "reading the committed offset")
            if partition.offset >= 0:
                key = TopicPartition(partition.topic, partition.partition)
                result[key] = CommittedOffset(partition.offset, partition.metadata or "")
        return result

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit outside any transaction and wait for the broker, portion after portion."""
        if not offsets:
            return
        self.connect()
        for portion in portions(offsets):
            self._commit(portion)

    def _commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        committed = self._until_coordinated(
            "committing offsets",
            lambda _: self._consumer.commit(offsets=client_offsets(offsets), asynchronous=False),
            attempt=self._caller.attempt,
        )
        for partition in committed or ():
            self._raise_for(partition, "committing the offset")

    @property
    def _limit(self) -> str:
        """Bytes that a batch of zstd may unpack to."""
        return self._config.get("receive.message.max.bytes", _RECEIVE_MAX_BYTES)

    def close(self) -> None:
        """Close the client. Closing twice is harmless.

        A client that is stuck in a commit is left alone: closing it would wait for the commit.
        """
        self._caller.close()
        if self._caller.stuck:
            return
        self._contact.made()
        if self._columns is not None:
            self._columns.close()
        guarded("closing the consumer", self._bootstrap, self._consumer.close)

    def _consume(self, count: int, timeout_seconds: float) -> list[ClientMessage]:
        return guarded("reading", self._bootstrap, self._consumer.consume, count, timeout_seconds)

    def _take_one_by_one(self, count: int, timeout_seconds: float) -> _Taken:
        messages = self._consume(count, timeout_seconds)
        records = [message for message in messages if message.error() is None]
        faults = [] if len(records) == len(messages) else _faults_of(messages)
        return self._grouped(records), faults

    def _take_in_columns(self, columns: ColumnQueue, count: int, timeout_seconds: float) -> _Taken:
        deadline = time.monotonic() + timeout_seconds
        wait_seconds = _FIRST_WAIT_SECONDS if self._unheard else _WAIT_SECONDS
        while True:
            faults = self._served()
            left = 0.0 if faults else max(0.0, deadline - time.monotonic())
            records, more = columns.take(count, min(left, wait_seconds))
            faults += more
            if self._unheard:
                self._unheard -= records.keys()
                self._unheard.difference_update((fault.topic, fault.partition) for fault in faults)
            if not records and not faults:
                columns.forward(self._unheard)
            if records or faults or left <= wait_seconds:
                return records, faults
            wait_seconds = min(2 * wait_seconds, _WAIT_SECONDS)

    def _served(self) -> list[FetchFault]:
        """Serve the client's callbacks, and return the errors that belong to no fetched record.

        :raises KafkaClientError: a record came that should have come in a batch.
        """
        faults: list[FetchFault] = []
        while (message := guarded("reading", self._bootstrap, self._consumer.poll, 0)) is not None:
            if message.error() is None:
                place = f"{_partition_of(message)}@{_offset_of(message)}"
                raise KafkaClientError(
                    f"reading {place} at {self._bootstrap}: the record did not come where the library "
                    "airflow-kstreams-columns takes records",
                    fix="run it again: the task reads from its committed offsets; if it comes again, set the "
                    "environment variable KSTREAMS_COLUMNS to off where tasks run, and report it",
                    kafka_code="_FAIL",
                    retriable_code=True,
                )
            faults += _faults_of([message])
        return faults

    def _until_coordinated(
        self,
        what: str,
        call: Callable[[float], list[ClientPartition]],
        *,
        attempt: Callable[[Callable[[], None]], Any] = attempt,
    ) -> list[ClientPartition]:
        """Repeat a request while the group's coordinator is being elected or moved, within the client
        timeout.

        The client itself gives up at the first answer without a coordinator, which a young or restarted
        broker gives for moments. But it waits for ever for a coordinator that the user may not see, so the
        first try is short.

        :param call: the request; takes the seconds it may last.
        :param attempt: makes a call and returns its error, None if none.
        """
        patience = self._time.left()
        deadline = time.monotonic() + patience
        seconds = min(_FIRST_TRY_SECONDS, patience)
        while True:
            outcome: list[list[ClientPartition]] = []
            error = attempt(lambda: outcome.append(call(seconds)))  # noqa: B023 - called at once
            if error is None:
                return outcome[0]
            if not self._caller.stuck:
                self._refuse_group(what)
            kafka_error = kafka_error_of(error)
            passing = kafka_error is not None and kafka_error.name() in _COORDINATOR_MOVING
            if not passing or time.monotonic() >= deadline:
                raise self._refused(kafka_error, what) or convert(error, what=what, where=self._bootstrap)
            time.sleep(_COORDINATOR_PAUSE_SECONDS)
            seconds = self._time.left(max(deadline - time.monotonic(), _FIRST_TRY_SECONDS))

    def _refuse_group(self, what: str) -> None:
        """Raise if the broker has refused the group to the user: the client reports that once, in a poll."""
        if not self._assigned:  # a record that is polled here would be lost
            for fault in _faults_of(self._consume(_ERRORS_AT_ONCE, 0)):
                self._events.note_group_error(fault.error)
        refused = self._refused(self._events.group_error, what)
        if refused is not None:
            raise refused

    def _ends_among(self, faults: Sequence[FetchFault]) -> dict[TopicPartition, int]:
        ends: dict[TopicPartition, int] = {}
        for fault in faults:
            error, tp = fault.error, TopicPartition(fault.topic, fault.partition)
            if self._events.note_group_error(error):
                continue
            if error.code() != KafkaError._PARTITION_EOF:
                what = f"reading {tp}@{fault.offset}"
                raise (
                    self._refused(error, what, fault.topic)
                    or unreadable_batch(error, (*tp, fault.offset), limit=self._limit)
                    or from_kafka_error(error, what=what, where=self._bootstrap)
                )
            ends[tp] = fault.offset
        return ends

    def _grouped(self, records: list[ClientMessage]) -> dict[TopicPartition, Sequence[Record]]:
        if not records:
            return {}
        if len(self._assigned) == 1:
            return {self._assigned[0]: records}  # type: ignore[dict-item]
        grouped: dict[Any, list[Any]] = {}
        by_number = len({tp.topic for tp in self._assigned}) == 1
        for record in records:
            key = record.partition() if by_number else (record.topic(), record.partition())
            group = grouped.get(key)
            if group is None:
                grouped[key] = [record]
            else:
                group.append(record)
        return {_partition_of(group[0]): group for group in grouped.values()}

    def _refuse_lost_cluster(self) -> None:
        """Raise when no broker has been seen for the client timeout.

        The client reports when the last connection is lost but not when one is back, so a request decides.
        """
        lost = self._events.all_down_since
        if lost is None or not self._assigned or time.monotonic() - lost < self._time.request_seconds:
            return
        try:
            first = self._assigned[0]
            guarded(
                "asking for an offset",
                self._bootstrap,
                self._consumer.get_watermark_offsets,
                ClientPartition(first.topic, first.partition),
                self._time.left(1.0),
            )
        except KafkaClientError:
            detail = self._events.last_error or "all brokers are down"
            raise unreachable(self._bootstrap, f"{detail} (for {self._time.request_seconds:g} s)") from None
        self._events.seen_connected()

    def _raise_for(self, partition: ClientPartition, what: str) -> None:
        if partition.error is not None:
            what = f"{what} of {partition.topic}-{partition.partition}"
            raise self._refused(partition.error, what, partition.topic) or from_kafka_error(
                partition.error, what=what, where=self._bootstrap
            )

    def _refused(self, error: KafkaError | None, what: str, topic: str | None = None) -> KStreamsError | None:
        """Return the error for a missing permission, None for any other error.

        :param topic: topic of the request; None if it was about the group.
        """
        if error is None:
            return None
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED or topic is None:
            needed = Permission(operation=Operation.READ, resource=Resource.GROUP, name=self._group_id)
        else:
            needed = Permission(operation=Operation.READ, resource=Resource.TOPIC, name=topic)
        return self._access.denied(error, what, needed)


def client_offsets(offsets: Mapping[TopicPartition, CommittedOffset]) -> list[ClientPartition]:
    """Return offsets in the client's own form."""
    return [
        ClientPartition(tp.topic, tp.partition, committed.offset, committed.metadata)
        for tp, committed in offsets.items()
    ]


def _client_partitions(partitions: Collection[TopicPartition]) -> list[ClientPartition]:
    return [ClientPartition(tp.topic, tp.partition) for tp in partitions]


def _followed_by(
    first: dict[TopicPartition, Sequence[Record]], more: dict[TopicPartition, Sequence[Record]]
) -> dict[TopicPartition, Sequence[Record]]:
    """Return the records of two takes that followed each other; one record at most is in the first."""
    for tp, records in first.items():
        behind = more.get(tp, ())
        if isinstance(records, TimedRecords) and isinstance(behind, TimedRecords):
            behind[:0] = records
            behind.timestamps_ms[:0] = records.timestamps_ms
        else:
            more[tp] = [*records, *behind] if behind else records
    return more


def _faults_of(messages: Iterable[ClientMessage]) -> list[FetchFault]:
    return [
        FetchFault(*_partition_of(message), _offset_of(message), error)
        for message in messages
        if (error := message.error()) is not None
    ]


def _partition_of(message: ClientMessage) -> TopicPartition:
    topic, partition = message.topic(), message.partition()
    return TopicPartition(topic or "", -1 if partition is None else partition)


def _offset_of(message: ClientMessage) -> int:
    offset = message.offset()
    return -1 if offset is None else offset
