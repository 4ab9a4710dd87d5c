"""Writes records in transactions under a transactional id, or idempotently without one.

Rule: the client speaks the old EndTxn, which names no transaction, so a request that the client had to repeat
may be answered by its first copy, and its second copy may end a *later* transaction of the same producer
epoch. A writer that may have repeated a request is ``suspect`` and begins no other transaction; a new writer
under the same transactional id has a higher epoch, which the delayed copy does not.

How repetition is noticed: a call failed or was very slow; or the error callback or the statistics reported
a lost connection or a timed out request. A request is repeated without an answer for these two reasons only,
and no sooner than ``retry.backoff.ms`` (less the client's 20 % of jitter) later. A call that was quicker than
that hid no repetition; after any other the writer waits for statistics that were taken since, which count the
connections lost and requests timed out on every connection, that to the transaction coordinator above all. An
answered "try again" (another transaction is still completing) is repeated too, harmlessly, and is not held
against the writer.

Invariant: a record that was handed to ``produce`` is delivered by the end of a successful ``flush`` or
``commit``, or the first failure is raised there with its topic and partition.

A bulk writer sends records without delivery reports where it can (``kafka/record_columns.py``). A record that
is refused then fails its transaction, which the client refuses to commit, without a name. The writer raises
:class:`TransactionAbortedError` for every such failure that another attempt may find again, and the next
writer of the same transactional id sends records one by one, until it has committed: its error names the
record.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from confluent_kafka import KafkaError, Producer

from airflow_kstreams.kafka.client_errors import (
    Access,
    CallOverdueError,
    attempt,
    convert,
    guarded,
    kafka_error_of,
    timeout_refused,
    unreachable,
)
from airflow_kstreams.kafka.configuration.code_settings import with_callback
from airflow_kstreams.kafka.connection import BoundedCaller, FirstContact, await_connection, bootstrap_of
from airflow_kstreams.kafka.delivery import DeliveryFailures, WriterRefusals, of_transaction
from airflow_kstreams.kafka.events import ClientEvents
from airflow_kstreams.kafka.reader import client_offsets
from airflow_kstreams.kafka.record_columns import Sender, sender_of
from airflow_kstreams.streams.bounded_read import portions
from airflow_kstreams.streams.errors import (
    KafkaClientError,
    KStreamsError,
    RecordError,
    SuspectWriterError,
    TaskFencedError,
    TransactionAbortedError,
)
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.ports import CommittedOffset, Headers, ReaderPort, TopicLimits, TopicPartition

#: The client's pause before it repeats a request, and how soon that can be at the earliest.
_RETRY_BACKOFF_MS = 100
_REPEATED_SECONDS = 0.75 * _RETRY_BACKOFF_MS / 1000
#: Interval of the client's statistics. Those that come first after a call may have been taken before its end,
#: the next ones were not.
_STATISTICS_INTERVAL_MS = 25
_FRESH_STATISTICS = 2
#: Errors that are only the consequence of the state the client is in. A failing callback of a fenced client
#: can even raise a ``SystemError`` that hides the client's own.
_SAYS_LITTLE = frozenset(
    {
        KafkaError._FATAL,
        KafkaError._STATE,
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._CONFLICT,
    }
)
#: A transaction call that takes this long is not trusted, whatever else is known.
_SUSPECT_SECONDS = 10.0


_ROOM_STEP_SECONDS = 0.05
#: How often a flush looks whether a record was refused of which no report comes.
_UNREPORTED_STEP_SECONDS = 0.5
#: Transactional ids of this process whose next writer sends records one by one.
_ONE_BY_ONE: set[str] = set()


#: Unless the user says otherwise. Queue memory is bounded because the client's own default is 1 GiB; batches
#: are large because a batch job trades latency for throughput; lz4 costs the least time per byte saved; half
#: of the first pause between connections passes before a new client is of use.
_DEFAULTS: Mapping[str, str] = {
    "linger.ms": "20",
    "batch.size": "1000000",
    "batch.num.messages": "100000",
    "queue.buffering.max.kbytes": "65536",
    "queue.buffering.max.messages": "100000",
    "compression.type": "lz4",
    "reconnect.backoff.ms": "20",
    "reconnect.backoff.max.ms": "2000",
    "topic.metadata.propagation.max.ms": "10000",
}


@runtime_checkable
class GroupReader(Protocol):
    """A reader that names the group for which offsets are committed."""

    @property
    def group_id(self) -> str: ...
    def group_metadata(self) -> object: ...


def make_produce(
    producer: Producer,
    *,
    bootstrap: str,
    timeout_seconds: float,
    explain: Callable[[Any, str], KStreamsError],
    refused: DeliveryFailures,
) -> tuple[Callable[..., None], Callable[[], None]]:
    """Return the produce call that the engine's hot path binds, and a call that closes it.

    Delivery reports are served where the client's queue runs full, and in ``flush``: not per record.

    A task's closures hold the produce call, and each other, until Python's garbage collector runs. The client
    must not live as long: its threads would go on, and unread statistics would fill the memory. So the second
    call takes the client away from the first.

    :param explain: turns an error of the client into one of this package.
    :param refused: explains records that the client does not take.
    """
    poll: Callable[..., Any] = producer.poll
    send: Callable[..., Any] = producer.produce
    note = refused.times.note
    earliest_ms, latest_ms = refused.times.taken()

    def produce(
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int = -1,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> None:
        nonlocal earliest_ms, latest_ms
        # In this order, so that almost every record costs one chained comparison.
        if timestamp_ms is None:
            timestamp_ms = 0
        elif not earliest_ms <= timestamp_ms <= latest_ms:
            # The client takes 0 for the time of sending and has no number for the epoch itself: 1 comes
            # closest.
            timestamp_ms = timestamp_ms or 1
            earliest_ms, latest_ms = note(topic, key, value, timestamp_ms)
        try:
            send(topic, value, key, partition, None, None, timestamp_ms, headers)
        except (KeyboardInterrupt, SystemExit):
            raise
        except:  # noqa: E722 - see kafka/client_errors.py
            error: Any = sys.exc_info()[1]
        else:
            return
        if send is _refuse_closed:
            raise error
        deadline = time.monotonic() + timeout_seconds
        while isinstance(error, BufferError):
            if time.monotonic() > deadline:
                raise unreachable(
                    bootstrap, f"the queue stayed full for {timeout_seconds:g} s", kafka_code="_QUEUE_FULL"
                )
            guarded("sending", bootstrap, poll, _ROOM_STEP_SECONDS)
            error = attempt(send, topic, value, key, partition, None, None, timestamp_ms, headers)
        if error is not None:
            content = (key, value, headers)
            raise refused.by_client(error, topic, partition, content) or explain(error, f"sending to {topic}")

    def release() -> None:
        nonlocal poll, send
        poll = send = _refuse_closed

    return produce, release


def _refuse_closed(*_: object) -> Any:
    raise ValueError("this writer is closed")


class IdempotentWriter:
    """The port ``WriterPort`` without transactions: each record is written once per producer, in order.

    :param client_config: checked client settings.
    :param timeout_ms: bound of every request.
    :param limits: limits of the topics that the writer writes, for error texts; the client's own limits are
        its settings.
    :param owned: further settings that the user cannot change.
    """

    def __init__(
        self,
        client_config: Mapping[str, str],
        *,
        timeout_ms: int,
        limits: Mapping[str, TopicLimits] | None = None,
        owned: Mapping[str, str] | None = None,
    ) -> None:
        owned = owned or {}
        self._bootstrap = bootstrap_of(client_config)
        self._config = client_config
        self._timeout_seconds = timeout_ms / 1000
        self._events = ClientEvents(client_config)
        self._failures = DeliveryFailures(client_config, limits or {})
        self._refusals = WriterRefusals(
            Access(client_config),
            events=self._events,
            failures=self._failures,
            transactional_id=owned.get("transactional.id", ""),
        )
        self._connected = False
        self._suspect = False
        self._closed = False
        self._producer: Producer = guarded(
            "creating a producer",
            self._bootstrap,
            Producer,
            {
                **_DEFAULTS,
                "socket.timeout.ms": str(timeout_ms),
                **with_callback(client_config),
                "allow.auto.create.topics": "false",
                "acks": "all",
                "enable.idempotence": "true",
                "partitioner": "murmur2_random",
                "delivery.report.only.error": True,
                "on_delivery": self._failures.on_delivery,
                **owned,
                **self._events.callbacks(),
            },
        )
        self._contact = FirstContact(self._producer, client_config)
        self.produce, self._release = make_produce(
            self._producer,
            bootstrap=self._bootstrap,
            timeout_seconds=self._timeout_seconds,
            explain=self._explain_refusal,
            refused=self._failures,
        )

    @property
    def suspect(self) -> bool:
        """True if this writer must not be used again."""
        return self._suspect

    def init_transactions(self) -> None:
        """Connect to the cluster; there is no transactional id to claim."""
        self._connect()

    def begin(self) -> None:
        """Forget former delivery failures."""
        self._connect()
        self._failures.clear()

    def flush(self) -> None:
        """Return once every record is delivered.

        :raises RecordError: a record was refused for itself, e.g. for its size.
        :raises KafkaClientError: the broker could not be reached or refused the records.
        """
        self._connect()
        deadline = time.monotonic() + self._timeout_seconds
        remaining = [1]
        while remaining[-1]:
            # Behind a record that was refused, others wait for ever.
            left = deadline - time.monotonic()
            step = min(_UNREPORTED_STEP_SECONDS, left) if self._unreported else left
            error = attempt(lambda: remaining.append(self._producer.flush(step)))  # noqa: B023 - called at once
            if error is not None:
                self._suspect = True
                raise self._explain(error, "sending")
            self._raise_delivery_failure()
            if step == left:
                break
        if remaining[-1]:
            self._suspect = True
            detail = self._events.last_error or "no answer"
            raise unreachable(
                self._bootstrap,
                f"{counted(remaining[-1], 'record')} undelivered after {self._timeout_seconds:g} s: {detail}",
                kafka_code="_TIMED_OUT",
            )

    def send_offsets(self, offsets: Mapping[TopicPartition, CommittedOffset], reader: ReaderPort) -> None:
        """Commit offsets: without transactions by the reader's own commit, after a flush."""
        self.flush()
        reader.commit(offsets)

    def commit(self) -> None:
        """Return once every record is delivered."""
        self.flush()

    def abort(self) -> None:
        """Drop queued records; records that were sent stay in their topics."""
        guarded("dropping queued records", self._bootstrap, self._producer.purge)
        guarded("dropping queued records", self._bootstrap, self._producer.poll, 0)
        self._failures.clear()

    def close(self) -> None:
        """Drop queued records and the client. Closing twice is harmless.

        The client's own ``close`` is not used: with a transaction open it aborts it first and waits for the
        coordinator without any bound. An open transaction is aborted by the next claim of its id, or
        times out.
        """
        if self._closed:
            return
        self._closed = True
        self._contact.made()
        guarded("closing the producer", self._bootstrap, self._producer.purge)
        self._release()
        del self._producer

    @property
    def _unreported(self) -> bool:
        """True if records were sent without a delivery report."""
        return False

    def _refuse_closed(self) -> None:
        if self._closed:
            raise KafkaClientError("this writer is closed", fix="make a new one", kafka_code="_STATE")

    def _connect(self) -> None:
        self._refuse_closed()
        if not self._connected:
            await_connection(
                self._producer,
                self._events,
                config=self._config,
                timeout_seconds=self._timeout_seconds,
                contact=self._contact,
            )
            self._connected = True

    def _raise_delivery_failure(self) -> None:
        error = self._failures.error
        if error is None:
            return
        self._suspect = True
        refused = self._refused_record()
        if refused is not None:
            raise refused
        raise self._explain(error, f"sending to {self._failures.topic}-{self._failures.partition}")

    def _refused_record(self) -> RecordError | None:
        """Return the failure if the broker refused a record for itself."""
        return self._failures.refused_record()

    def _explain(self, error: Any, what: str) -> KStreamsError:
        return self._refused(kafka_error_of(error), what) or convert(error, what=what, where=self._bootstrap)

    def _explain_refusal(self, error: Any, what: str) -> KStreamsError:
        """Return the error for a record that the client does not take."""
        return self._explain(error, what)

    def _refused(self, error: KafkaError | None, what: str) -> KStreamsError | None:
        return self._refusals.explain(error, what, poll=self._producer.poll)


class TransactionalWriter(IdempotentWriter):
    """The port ``WriterPort`` with transactions.

    :param client_config: checked client settings.
    :param transactional_id: claimed by ``init_transactions``, which fences every older writer of the same id.
    :param transaction_timeout_ms: time after which the broker aborts a transaction.
    :param timeout_ms: bound of every request.
    :param limits: limits of the topics that the writer writes, for error texts.
    :param bulk: whether it may send records without delivery reports, see the module.
    """

    def __init__(
        self,
        client_config: Mapping[str, str],
        *,
        transactional_id: str,
        transaction_timeout_ms: int,
        timeout_ms: int,
        limits: Mapping[str, TopicLimits] | None = None,
        bulk: bool = False,
    ) -> None:
        self._transactional_id = transactional_id
        self._group_id = ""
        self._transaction_timeout_ms = transaction_timeout_ms
        self._disconnects_at_begin = 0
        self._errors_at_begin = 0
        self._in_transaction = False
        self._caller = BoundedCaller(f"offsets-of-{transactional_id}", timeout_seconds=timeout_ms / 1000)
        super().__init__(
            client_config,
            timeout_ms=timeout_ms,
            limits=limits,
            owned={
                "transactional.id": transactional_id,
                "transaction.timeout.ms": str(transaction_timeout_ms),
                # The client refuses to wait longer for a request than a transaction may last.
                "socket.timeout.ms": str(
                    min(int(client_config.get("socket.timeout.ms", timeout_ms)), transaction_timeout_ms)
                ),
                "retry.backoff.ms": str(_RETRY_BACKOFF_MS),
                "statistics.interval.ms": str(_STATISTICS_INTERVAL_MS),
            },
        )
        self._sender: Sender | None = None
        self._sent_at_begin = 0
        if bulk and transactional_id not in _ONE_BY_ONE:
            self._sender = sender_of(
                self._producer,
                client_config,
                fall_back=self.produce,
                taken=self._failures.times.taken,
            )
        if self._sender is not None:
            self.produce = self._sender.produce

    @property
    def suspect(self) -> bool:
        """True if a request of this writer may have been repeated: never use it again."""
        return (
            self._suspect
            or self._events.disconnects > self._disconnects_at_begin
            or self._events.connection_errors > self._errors_at_begin
        )

    def init_transactions(self) -> None:
        """Claim the transactional id, fence its older writers and end what they left open.

        :raises ConfigError: the broker refuses the transaction timeout.
        :raises KafkaClientError: the coordinator did not answer in time, or refused.
        """
        self._connect()
        deadline = time.monotonic() + self._timeout_seconds
        while True:
            left = max(deadline - time.monotonic(), 0.1)
            error = attempt(self._producer.init_transactions, left)
            if error is None:
                self._remember_connection()
                return
            kafka_error = kafka_error_of(error)
            if kafka_error is not None and kafka_error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                raise timeout_refused(self._transactional_id, self._transaction_timeout_ms)
            passing = kafka_error is not None and kafka_error.retriable()
            if not passing or time.monotonic() >= deadline:
                self._suspect = True
                reason = f" ({self._events.claim_error})" if self._events.claim_error else ""
                raise self._explain(error, f"claiming the transactional id{reason}")

    def begin(self) -> None:
        """Begin a transaction.

        :raises SuspectWriterError: the writer is suspect.
        :raises KafkaClientError: the client refuses.
        """
        if self.suspect:
            raise SuspectWriterError(self._transactional_id)
        self._failures.clear()
        self._remember_connection()
        self._sent_at_begin = 0 if self._sender is None else self._sender.sent
        self._transact("beginning a transaction", "begin_transaction")
        self._in_transaction = True

    @property
    def _unreported(self) -> bool:
        """True if records of the open transaction have no delivery report."""
        return self._sender is not None and self._sender.sent > self._sent_at_begin

    def _raise_delivery_failure(self) -> None:
        super()._raise_delivery_failure()
        # The client notes that a record was refused before it takes it for sent.
        error = self._state_error() if self._unreported else None
        if error is not None:
            self._suspect = True
            raise self._explain(error, "sending")

    def send_offsets(self, offsets: Mapping[TopicPartition, CommittedOffset], reader: ReaderPort) -> None:
        """Add offsets to the transaction.

        :raises TaskFencedError: a newer writer claimed the transactional id.
        :raises TransactionAbortedError: the transaction must be aborted.
        """
        if not isinstance(reader, GroupReader):
            raise TypeError(f"{type(reader).__name__} cannot say for which group to commit")
        if not offsets:
            return
        # Delivered records have added their partitions to the transaction; a request to add the group while
        # the coordinator still completes the previous transaction would cost a whole retry pause.
        self.flush()
        self._group_id = reader.group_id
        for portion in portions(offsets):
            self._transact(
                "adding offsets to the transaction",
                "send_offsets_to_transaction",
                client_offsets(portion),
                reader.group_metadata(),
                self._timeout_seconds,
                attempt=self._caller.attempt,
            )

    def close(self) -> None:
        """Drop queued records and the client, see :class:`IdempotentWriter`."""
        self._caller.close()
        if self._sender is not None:
            self._sender.release()
        super().close()

    def commit(self) -> None:
        """Deliver every record and commit.

        When this raises a retriable ``KafkaClientError``, the outcome is unknown: read the committed offsets
        under a new writer.

        :raises TaskFencedError: a newer writer claimed the transactional id.
        :raises TransactionAbortedError: the transaction must be aborted.
        """
        self.flush()
        self._transact("committing the transaction", "commit_transaction", self._timeout_seconds)
        self._in_transaction = False
        _ONE_BY_ONE.discard(self._transactional_id)

    def abort(self) -> None:
        """Abort the transaction; when this raises, drop the writer."""
        self._transact("aborting the transaction", "abort_transaction", self._timeout_seconds)
        self._in_transaction = False
        self._failures.clear()

    def _transact(
        self,
        what: str,
        method: str,
        *args: Any,
        attempt: Callable[..., Any] = attempt,
    ) -> None:
        """Make a call that must not be repeated, and find out whether it may have been.

        :param method: name of the client's method: a frame that held the method would keep the client alive
            with the error that is raised here.
        :param attempt: makes the call and returns its error, None if it succeeded.
        """
        self._refuse_closed()
        started = time.monotonic()
        try:
            error = attempt(getattr(self._producer, method), *args)
            seconds = time.monotonic() - started
            served = attempt(self._serve_events, 0.0 if error is not None else seconds)
        except BaseException:
            self._suspect = True
            raise
        error = error if error is not None else served
        if error is not None:
            self._suspect = True
            raise self._refused_record() or self._explain(error, what)
        if seconds >= _SUSPECT_SECONDS:
            self._suspect = True

    def _serve_events(self, seconds: float) -> None:
        """Serve the client's callbacks; after a call that may hide a repetition, wait for newer statistics.

        :param seconds: duration of the call.
        """
        self._producer.poll(0)
        if seconds < _REPEATED_SECONDS:
            return
        enough = self._events.statistics + _FRESH_STATISTICS
        deadline = time.monotonic() + self._timeout_seconds
        while self._events.statistics < enough:
            left = deadline - time.monotonic()
            if left <= 0:
                self._suspect = True  # a client without statistics is not trusted
                return
            self._producer.poll(min(_STATISTICS_INTERVAL_MS / 1000, left))

    def _remember_connection(self) -> None:
        self._disconnects_at_begin = self._events.disconnects
        self._errors_at_begin = self._events.connection_errors

    def _refused_record(self) -> RecordError | None:
        # Where records have no report, one that has may only be of the same batch.
        return None if self._unreported else super()._refused_record()

    def _explain(self, error: Any, what: str) -> KStreamsError:
        explained = self._explained(error, what)
        if not self._unreported or isinstance(explained, TaskFencedError):
            return explained
        if isinstance(explained, KafkaClientError) and explained.is_retriable:
            return explained
        _ONE_BY_ONE.add(self._transactional_id)
        return TransactionAbortedError(
            explained.cause,
            fix="nothing: the task aborts and resumes from its committed offsets, and sends records one by "
            "one, so that an error names the record that is refused, if one is",
            task_id=self._transactional_id,
        )

    def _explain_refusal(self, error: Any, what: str) -> KStreamsError:
        explained = self._explained(error, what)
        # It is this record's own, unless the transaction has failed by an earlier one.
        aborted = isinstance(explained, TransactionAbortedError)
        return self._explain(error, what) if aborted else explained

    def _explained(self, error: Any, what: str) -> KStreamsError:
        kafka_error = kafka_error_of(error)
        if isinstance(error, CallOverdueError):
            return convert(error, what=f"{what} of {self._transactional_id}", where=self._bootstrap)
        if kafka_error is None or kafka_error.code() in _SAYS_LITTLE:
            kafka_error = self._state_error() or kafka_error
        if kafka_error is None:
            return convert(error, what=what, where=self._bootstrap)
        refused = self._refused(kafka_error, what)
        if refused is not None:
            return refused
        return of_transaction(kafka_error, what, self._transactional_id, self._bootstrap)

    def _refused(self, error: KafkaError | None, what: str) -> KStreamsError | None:
        if self._unreported:
            return None  # no report would name the topic
        # The client asks for an abort and another try, which cannot help.
        what = f"{what} of {self._transactional_id}"
        return self._refusals.explain(error, what, poll=self._producer.poll, group_id=self._group_id)

    def _state_error(self) -> KafkaError | None:
        """Return the client's reason for refusing to go on.

        While a transaction is open, another begin does nothing but report that, or the error behind the
        client's fatal or abortable state. Without an open transaction there is nothing to ask.
        """
        if not self._in_transaction:
            return None
        error = kafka_error_of(attempt(self._producer.begin_transaction))
        return None if error is None or error.code() == KafkaError._STATE else error
