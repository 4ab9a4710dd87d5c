"""Implements the port ``WriterPort`` in memory: transactional and idempotent writers.

Records wait in the writer until ``flush``, ``send_offsets`` or ``commit``; with a random source they may
leave earlier, as if a client's own thread sent them. Records that wait when a process dies are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, runtime_checkable

from airflow_kstreams.streams.bounded_read import portions
from airflow_kstreams.streams.errors import (
    ConfigError,
    KafkaClientError,
    KStreamsError,
    RecordError,
    SuspectWriterError,
    TaskFencedError,
    TransactionAbortedError,
    record_refused,
)
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.ports import CommittedOffset, Headers, ReaderPort, TopicPartition
from airflow_kstreams.streams.records.first_place import content_id
from airflow_kstreams.streams.records.topic_limits import (
    CLIENT_LIMITS,
    WriterLimits,
    shown_time,
)
from airflow_kstreams.testing.in_memory_kafka.broker import (
    Broker,
    Claim,
    ConcurrentError,
    FencedError,
    InvalidTransactionError,
    Topic,
    missing,
)
from airflow_kstreams.testing.in_memory_kafka.log import Content, PartitionLog, is_too_large, request_bytes

_SENT_EARLY = 0.25


@runtime_checkable
class InMemoryGroupReader(Protocol):
    """A reader that names the group for which offsets are committed."""

    def group_metadata(self) -> str: ...


class InMemoryIdempotentWriter:
    """The port ``WriterPort`` without transactions.

    :param broker: the broker to write to.
    :param limits: limits of its records and batches.
    :param timeout_seconds: bound of every request.
    """

    def __init__(
        self, broker: Broker, *, limits: WriterLimits = CLIENT_LIMITS, timeout_seconds: float
    ) -> None:
        self._broker = broker
        self._limits = limits
        self._timeout_seconds = timeout_seconds
        self._waiting: list[tuple[TopicPartition, Content]] = []
        self._failure: KStreamsError | None = None
        self._suspect = False
        self._closed = False

    @property
    def produce(self) -> Callable[..., None]:
        """Hand over one record, see ``WriterPort``."""
        return self._produce

    @property
    def suspect(self) -> bool:
        """True if this writer must not be used again."""
        return self._suspect

    def spoil(self) -> None:
        """Lose the connection: a request may have been repeated."""

    def init_transactions(self) -> None:
        """Connect to the cluster; there is no transactional id to claim."""

    def begin(self) -> None:
        """Forget former delivery failures."""
        self._failure = None

    def flush(self) -> None:
        """Deliver every record.

        :raises RecordError: a record was refused for itself, e.g. for its size.
        """
        self._refuse_closed()
        self._broker.catch_up()
        self._send()
        if self._failure is not None:
            self._suspect = True
            raise self._failure

    def send_offsets(self, offsets: Mapping[TopicPartition, CommittedOffset], reader: ReaderPort) -> None:
        """Commit offsets: without transactions by the reader's own commit, after a flush."""
        self.flush()
        reader.commit(offsets)

    def commit(self) -> None:
        """Deliver every record."""
        self.flush()

    def abort(self) -> None:
        """Drop waiting records; records that were sent stay in their topics."""
        self._waiting.clear()
        self._failure = None

    def close(self) -> None:
        """Drop waiting records. Closing twice is harmless."""
        self._waiting.clear()
        self._closed = True

    def _produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int = -1,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> None:
        if self._closed:
            raise ValueError("this writer is closed")
        self._refuse_produce()
        # The real client cannot send the timestamp 0, so 1 is sent in its place.
        written = self._broker.clock.now_ms() if timestamp_ms is None else timestamp_ms or 1
        content: Content = (key, value, written, list(headers) if headers else None)
        if (size := request_bytes(content)) > self._limits.record_bytes:
            limit = (
                f"{counted(size, 'byte')}, the client's message.max.bytes is {self._limits.record_bytes:,}"
            )
            raise record_refused(topic, partition, f"MSG_SIZE_TOO_LARGE: {limit}")
        found = self._broker.topics.get(topic)
        if found is None:
            raise missing(f"sending to {topic}", topic)
        if not -1 <= partition < len(found.logs):
            raise record_refused(topic, partition, "_UNKNOWN_PARTITION")
        at = TopicPartition(topic, partition if partition >= 0 else found.partition_for(key))
        self._waiting.append((at, content))
        random = self._broker.random
        if random is not None and random.random() < _SENT_EARLY:
            self._broker.catch_up()
            self._send_early()

    def _refuse_produce(self) -> None:
        """Raise when the writer is in no state to produce."""

    def _send_early(self) -> None:
        self._send()

    def _send(self) -> None:
        """Append the waiting records, up to the first that is refused."""
        refused = self._refused()
        waiting, self._waiting = self._waiting, []
        for number, (at, content) in enumerate(waiting):
            if self._failure is not None:
                return
            log = self._broker.log(at, "sending")
            if number in refused:
                self._failure = refused[number]
            else:
                self._append(log, content)

    def _refused(self) -> Mapping[int, RecordError]:
        """Return the error of each waiting batch that the broker refuses, by the batch's first record.

        Records that wait for one partition leave in batches of the largest allowed size.
        """
        refused: dict[int, RecordError] = {}
        by_partition: dict[TopicPartition, list[int]] = {}
        for number, (at, _) in enumerate(self._waiting):
            by_partition.setdefault(at, []).append(number)
        for at, numbers in by_partition.items():
            topic = self._broker.topics.get(at.topic)
            if topic is None:
                continue
            for batch in self._batches(numbers):
                error = self._refusal(at, topic, [self._waiting[number][1] for number in batch])
                if error is not None:
                    refused[batch[0]] = error
        return refused

    def _refusal(self, at: TopicPartition, topic: Topic, batch: Sequence[Content]) -> RecordError | None:
        """Return the error of a batch that the broker refuses, with the records of it that are to blame."""
        limits, now_ms = self._broker.limits(topic), self._broker.clock.now_ms()
        why, contents = "", {}
        if is_too_large(batch, limits.max_bytes):
            size = request_bytes(batch[0])
            limit = f"the topic's max.message.bytes is {limits.max_bytes:,}"
            why = f"MSG_SIZE_TOO_LARGE: {counted(size, 'byte')}, {limit}"
            if size > limits.max_bytes:
                contents = {content_id(at.topic, batch[0][0], batch[0][1]): why}
        elif topic.compacted and any(key is None for key, *_ in batch):
            why = "INVALID_RECORD: a compacted topic needs keys"
        else:
            earliest_ms, latest_ms = now_ms - limits.before_ms, now_ms + limits.after_ms
            contents = {
                content_id(at.topic, key, value, time_ms): (
                    f"INVALID_TIMESTAMP: {shown_time(time_ms, now_ms, limits)}"
                )
                for key, value, time_ms, _ in batch
                if not earliest_ms <= time_ms <= latest_ms
            }
            why = next(iter(contents.values()), "")
        return record_refused(at.topic, at.partition, why, contents=contents) if why else None

    def _batches(self, numbers: Sequence[int]) -> list[list[int]]:
        batches: list[list[int]] = []
        size = 0
        for number in numbers:
            added = request_bytes(self._waiting[number][1])
            size += added
            if not batches or size > self._limits.batch_bytes:
                batches.append([])
                size = added
            batches[-1].append(number)
        return batches

    def _append(self, log: PartitionLog, content: Content) -> None:
        self._broker.append(log, content)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise KafkaClientError("this writer is closed", fix="make a new one", kafka_code="_STATE")


class InMemoryTransactionalWriter(InMemoryIdempotentWriter):
    """The port ``WriterPort`` with transactions.

    :param transactional_id: claimed by ``init_transactions``.
    :param transaction_timeout_ms: time after which the broker aborts a transaction.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        transactional_id: str,
        transaction_timeout_ms: int,
        limits: WriterLimits = CLIENT_LIMITS,
        timeout_seconds: float,
    ) -> None:
        super().__init__(broker, limits=limits, timeout_seconds=timeout_seconds)
        self.transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._claim: Claim | None = None
        self._in_transaction = False
        self._registered = False
        self._fenced = False
        self._last_request: Callable[[], object] | None = None
        self._copy: Callable[[], object] | None = None
        self._copy_after = 0

    def spoil(self) -> None:
        """Lose the connection: a request may have been repeated, so the writer is suspect from now on."""
        self._suspect = True

    def repeat_last_request(self, after_requests: int) -> bool:
        """Let a second copy of the last request about a transaction reach the coordinator later.

        A client that got no answer does so; the copy acts on the transaction that is open when it arrives.
        The writer becomes suspect, because the real one notices the lost connection.

        :param after_requests: number of partitions and offsets that this writer adds to transactions before
            the copy arrives.
        :return: whether there was such a request.
        """
        self.spoil()
        if self._last_request is None:
            return False
        self._copy, self._copy_after = self._last_request, after_requests
        return True

    def init_transactions(self) -> None:
        """Claim the transactional id, fence its older writers and end what they left open.

        :raises ConfigError: the broker refuses the transaction timeout.
        :raises KafkaClientError: the coordinator did not complete the older transaction in time.
        """
        self._refuse_closed()
        if self._transaction_timeout_ms > self._broker.max_transaction_timeout_ms:
            raise ConfigError(
                f"transaction.timeout.ms = {self._transaction_timeout_ms} of {self.transactional_id} exceeds "
                "the broker's limit transaction.max.timeout.ms",
                fix="lower the application setting transaction.timeout.ms",
            )

        def claimed() -> bool:
            try:
                self._claim = self._broker.transactions.claim(
                    self.transactional_id, self._transaction_timeout_ms
                )
            except ConcurrentError:
                return False
            return True

        self._broker.until(claimed, "claiming the transactional id", timeout_seconds=self._timeout_seconds)

    def begin(self) -> None:
        """Begin a transaction, which the broker learns with its first record or offset.

        :raises SuspectWriterError: the writer is suspect.
        :raises KafkaClientError: the writer is not initialised, or in a transaction.
        """
        self._refuse_closed()
        if self.suspect:
            raise SuspectWriterError(self.transactional_id)
        if self._claim is None or self._in_transaction:
            raise self._wrong_state("beginning a transaction")
        self._failure = None
        self._in_transaction, self._registered = True, False

    def flush(self) -> None:
        """Deliver every record.

        :raises TaskFencedError: a newer writer claimed the transactional id.
        :raises RecordError: a record was refused for itself, e.g. for its size.
        """
        self._guarded("sending", super().flush)

    def send_offsets(self, offsets: Mapping[TopicPartition, CommittedOffset], reader: ReaderPort) -> None:
        """Add offsets to the transaction.

        :raises TaskFencedError: a newer writer claimed the transactional id.
        """
        if not isinstance(reader, InMemoryGroupReader):
            raise TypeError(f"{type(reader).__name__} cannot say for which group to commit")
        if not offsets:
            return
        self.flush()
        what = "adding offsets to the transaction"
        claim = self._claimed(what)
        if not self._in_transaction:
            raise self._wrong_state(what)
        group = reader.group_metadata()
        for portion in portions(offsets):
            self._add_offsets(what, claim, group, portion)

    def _add_offsets(
        self, what: str, claim: Claim, group: str, found: dict[TopicPartition, CommittedOffset]
    ) -> None:
        coordinator = self._broker.transactions
        refusal = self._broker.offsets_refusal(group, found)
        if refusal is not None:
            self._suspect = True
            raise TransactionAbortedError(
                f"{what}: the transaction of {self.transactional_id} must be aborted: {refusal}",
                fix="commit fewer, or less with them",
                task_id=self.transactional_id,
            )
        self._guarded(what, lambda: self._awaited(lambda: coordinator.add_offsets(claim, group, found)))
        self._registered = True
        self._last_request = lambda: coordinator.add_offsets(claim, group, found)
        self._let_copy_arrive()

    def commit(self) -> None:
        """Deliver every record and commit.

        A transaction without records and offsets is committed without a request, as by the real client.

        :raises TaskFencedError: a newer writer claimed the transactional id.
        """
        self.flush()
        self._end("committing the transaction", committed=True)

    def abort(self) -> None:
        """Abort the transaction; when this raises, drop the writer.

        :raises TaskFencedError: a newer writer claimed the transactional id.
        """
        self._refuse_closed()
        self._waiting.clear()
        self._end("aborting the transaction", committed=False)
        self._failure = None

    def _end(self, what: str, *, committed: bool) -> None:
        claim = self._claimed(what)
        if not self._in_transaction:
            raise self._wrong_state(what)
        coordinator = self._broker.transactions
        self._broker.catch_up()
        if self._fenced:
            raise self._fencing(what)
        if self._registered:
            self._guarded(what, lambda: coordinator.end(claim, committed=committed))
            self._last_request = lambda: coordinator.end(claim, committed=committed)
        self._in_transaction = False

    def _refuse_produce(self) -> None:
        if self._fenced:
            raise self._fencing("sending")
        if not self._in_transaction:
            raise self._wrong_state("sending")

    def _send_early(self) -> None:
        try:
            self._send()
        except ConcurrentError:
            return
        except FencedError:
            self._fenced = True
            self._suspect = True

    def _send(self) -> None:
        """Append waiting records; a record keeps waiting while the coordinator asks for another try."""
        claim = self._claimed("sending") if self._waiting else None
        refused, number = self._refused(), 0
        while self._waiting and self._failure is None and claim is not None:
            at, content = self._waiting[0]
            log = self._broker.log(at, "sending")
            transaction = self._broker.transactions.add_partition(claim, log)
            self._registered = True
            del self._waiting[0]
            if number in refused:
                self._failure = refused[number]
            else:
                log.append(self._broker.dated(log, content), transaction)
            number += 1
            self._let_copy_arrive()

    def _let_copy_arrive(self) -> None:
        if self._copy is None:
            return
        self._copy_after -= 1
        if self._copy_after <= 0:
            copy, self._copy = self._copy, None
            with suppress(FencedError, ConcurrentError, InvalidTransactionError):
                copy()

    def _guarded(self, what: str, request: Callable[[], object]) -> None:
        """Make a request, again while the coordinator asks for another try; convert fencing."""
        if self._fenced:
            raise self._fencing(what)
        try:
            self._awaited(request)
        except FencedError:
            self._fenced = self._suspect = True
            raise self._fencing(what) from None
        except InvalidTransactionError:
            self._suspect = True
            raise self._wrong_state(what) from None

    def _awaited(self, request: Callable[[], object]) -> None:
        def answered() -> bool:
            try:
                request()
            except ConcurrentError:
                return False
            return True

        self._broker.until(answered, self.transactional_id, timeout_seconds=self._timeout_seconds)

    def _claimed(self, what: str) -> Claim:
        if self._claim is None:
            raise self._wrong_state(what)
        return self._claim

    def _wrong_state(self, what: str) -> KafkaClientError:
        self._suspect = True
        return KafkaClientError(
            f"{what} of {self.transactional_id}: not in a state to do so",
            kafka_code="_STATE",
        )

    def _fencing(self, what: str) -> TaskFencedError:
        return TaskFencedError(
            f"{what}: another attempt claimed transactional id {self.transactional_id}, or the broker timed "
            "its transaction out",
            fix="nothing if a newer attempt runs; else raise transaction.timeout.ms or lower "
            "commit.interval.ms",
            task_id=self.transactional_id,
        )
