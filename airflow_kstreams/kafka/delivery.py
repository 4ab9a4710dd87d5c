"""Remembers records that could not be delivered, and turns a producer's errors into those of this package.

The client reports a refusal for lack of permission and its topic separately: the call fails at once, while
the topic comes a moment later with the client's log or with a delivery report. The error must name the
missing permission, so this module waits for the topic, bounded.

The client refuses a record larger than ``message.max.bytes``, not compressed, at once. The broker refuses a
batch larger than the topic's ``max.message.bytes``, as it was compressed, later. Each error names the
record's size, the limit, and whether the client or the topic sets it. The error of a record that the broker
refuses for its time names time, limit and setting (:mod:`airflow_kstreams.kafka.sent_times`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError
from confluent_kafka import Message as ClientMessage

from airflow_kstreams.kafka.client_errors import (
    FENCED,
    FORBIDDEN,
    Access,
    attempt,
    from_kafka_error,
    kafka_error_of,
)
from airflow_kstreams.kafka.events import ClientEvents
from airflow_kstreams.kafka.sent_times import SentTimes
from airflow_kstreams.streams.errors import (
    AccessDeniedError,
    KStreamsError,
    RecordError,
    TaskFencedError,
    TransactionAbortedError,
    record_refused,
)
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.naming.permissions import (
    Operation,
    Permission,
    Resource,
    transactional_permission,
)
from airflow_kstreams.streams.ports import Headers, TopicLimits, TopicPartition
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.records.first_place import content_id
from airflow_kstreams.streams.records.topic_limits import record_bytes, writer_limits

log = package_log(__name__)

MESSAGE_BYTES, _BATCH_BYTES = "message.max.bytes", "batch.size"
_TOO_LARGE = frozenset(
    {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE, KafkaError.RECORD_LIST_TOO_LARGE}
)


def sized(topics: Mapping[str, TopicLimits]) -> dict[str, str]:
    """Return producer settings for topics with these limits."""
    limits = writer_limits(topics)
    return {MESSAGE_BYTES: str(limits.record_bytes), _BATCH_BYTES: str(limits.batch_bytes)}


def warn_of_small_limit(config: Mapping[str, str], topics: Mapping[str, TopicLimits]) -> None:
    """Log a warning if the user's own setting is below the topics' limits."""
    given = int(config[MESSAGE_BYTES])
    larger = sorted(topic for topic, limits in topics.items() if limits.max_bytes > given)
    if larger and given < writer_limits(topics).record_bytes:
        log.warning(
            "the client setting %s = %s refuses records that %s takes (max.message.bytes = %s): raise it, or "
            "leave it out, then it follows the topics",
            MESSAGE_BYTES,
            given,
            larger[0],
            topics[larger[0]].max_bytes,
        )


#: Delivery errors that say something about the record, not about the cluster.
_RECORD_REFUSED = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        KafkaError._UNKNOWN_PARTITION,
    }
)
#: Delivery errors of records that another one has kept from being delivered.
_FOR_ANOTHER = frozenset(
    {KafkaError._INVALID_DIFFERENT_RECORD, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
)


class DeliveryFailures:
    """Explains records that are refused, and remembers the first that could not be delivered since the last
    :meth:`clear`, and what the broker refused for its time.

    :param config: the producer's settings.
    :param limits: limits of the topics that the producer writes, as far as they are known.
    :ivar times: times of the records that are sent.
    """

    __slots__ = (
        "_client_bytes",
        "_of_topics",
        "content",
        "error",
        "partition",
        "size_bytes",
        "times",
        "topic",
    )

    def __init__(self, config: Mapping[str, str], limits: Mapping[str, TopicLimits]) -> None:
        self._client_bytes = int(config.get(MESSAGE_BYTES, writer_limits(None).record_bytes))
        self._of_topics = limits
        self.times = SentTimes(limits)
        self.size_bytes = 0
        self.content = ""
        self.error: KafkaError | None = None
        self.topic = ""
        self.partition = -1

    def by_client(
        self,
        failed: BaseException | KafkaError,
        topic: str,
        partition: int,
        content: tuple[bytes | None, bytes | None, Headers | None],
    ) -> RecordError | None:
        """Return the error of a record that the client does not take; None if it failed for another reason.

        :param failed: error of the client's produce call.
        :param content: key, value and headers.
        """
        error = kafka_error_of(failed)
        if error is None or error.code() not in _RECORD_REFUSED:
            return None
        why = f"{error.name()}: {error.str()}"
        if error.code() in _TOO_LARGE:
            why += f": about {counted(record_bytes(*content), 'byte')}, the client's {MESSAGE_BYTES} is "
            why += f"{self._client_bytes:,}"
        return record_refused(topic, partition, why)

    def on_delivery(self, error: KafkaError | None, message: ClientMessage) -> None:
        """Take a delivery report; the client calls this for failures only."""
        if error is None:
            return
        code, partition = error.code(), message.partition()
        at = TopicPartition(message.topic() or "", -1 if partition is None else partition)
        better = self.error is None or (self.error.code() in _FOR_ANOTHER and code not in _FOR_ANOTHER)
        if better:
            self.error = error
            self.topic, self.partition = at
        if code in _RECORD_REFUSED:
            key, value = _bytes_or_none(message.key()), _bytes_or_none(message.value())
            self.times.report(code, at, key, value)
            if better:
                self.size_bytes = record_bytes(key, value, None)
                self.content = content_id(self.topic, key, value)

    def clear(self) -> None:
        """Forget the failure, and what was sent, as a new transaction begins."""
        self.error = None
        self.times.clear()

    def refused_record(self) -> RecordError | None:
        """Return the failure if the broker refused the record itself, alone or for its batch, so that a retry
        cannot help. The record is at fault only if it alone exceeds its topic's limit.
        """
        error = self.error
        if error is None or error.code() not in _RECORD_REFUSED:
            return None
        why, limits = f"{error.name()}: {error.str()}", self._of_topics.get(self.topic)
        contents: dict[str, str] = {}
        if error.code() in _TOO_LARGE:
            why += (
                f": about {counted(self.size_bytes, 'byte')}, less what compression saves, or the batch it "
                "came in; "
            )
            shown = "not known here" if limits is None else f"{limits.max_bytes:,}"
            why += f"the topic's max.message.bytes is {shown}"
            if limits is not None and self.size_bytes > limits.max_bytes:
                contents = {self.content: why}
        elif dated := self.times.refused(self.topic):
            contents = {name: f"{why}: {each}" for name, each in dated.items()}
            why = next(iter(contents.values()))
            why += f" ({len(dated) - 1:,} more are refused)" if len(dated) > 1 else ""
        elif error.code() == KafkaError.INVALID_TIMESTAMP:
            why += ": by this machine's clock, the topic takes the times of all records that were sent; "
            why += "compare the clock with the broker's"
        # What a topic takes that is not the topology's was guessed.
        return record_refused(self.topic, self.partition, why, contents=contents if limits else {})


def _bytes_or_none(part: object) -> bytes | None:
    return part if isinstance(part, bytes) else None


#: Longest wait for a refused topic's name, and its steps.
_NAMED_WITHIN_SECONDS = 5.0
_STEP_SECONDS = 0.05
#: A topic in the text of a refused commit of offsets.
_UNREAD_TOPIC = re.compile(
    r"(?<![\w.-])(?P<topic>[\w.-]++)\(\(null\)\)\[\d++\]\([^()]*[Tt]opic authorization failed"
)


class WriterRefusals:
    """Turns refusals of a producer into errors that name the permission.

    :param access: names the producer's principal.
    :param events: the producer's; their log names topics that were kept out of a transaction.
    :param failures: the producer's; a record that was refused names its topic.
    :param transactional_id: the producer's, empty without transactions.
    """

    __slots__ = ("_access", "_events", "_failures", "_transactional_id")

    def __init__(
        self, access: Access, *, events: ClientEvents, failures: DeliveryFailures, transactional_id: str = ""
    ) -> None:
        self._access = access
        self._events = events
        self._failures = failures
        self._transactional_id = transactional_id

    def explain(
        self, error: KafkaError | None, what: str, *, poll: Callable[[float], Any], group_id: str = ""
    ) -> AccessDeniedError | None:
        """Return the error for a missing permission, None for any other error.

        :param error: the client's.
        :param what: the action that failed.
        :param poll: serves the client's callbacks for some seconds.
        :param group_id: the group of committed offsets, empty for none.
        """
        if error is None or error.code() not in FORBIDDEN:
            return None
        return self._access.denied(error, what, self._needed(error, poll, group_id))

    def _needed(self, error: KafkaError, poll: Callable[[float], Any], group_id: str) -> Permission:
        code = error.code()
        if code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return transactional_permission(self._transactional_id.rpartition("-")[0])
        if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return Permission(operation=Operation.READ, resource=Resource.GROUP, name=group_id)
        if code != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return Permission(operation=Operation.IDEMPOTENT_WRITE, resource=Resource.CLUSTER)
        # A user may commit offsets only of topics that the user may read.
        unread = _UNREAD_TOPIC.search(error.str())
        if unread is not None:
            return Permission(operation=Operation.READ, resource=Resource.TOPIC, name=unread["topic"])
        return Permission(operation=Operation.WRITE, resource=Resource.TOPIC, name=self._topic(poll))

    def _topic(self, poll: Callable[[float], Any]) -> str:
        """Return the refused topic; if the client does not name it in time, that of a lost record."""
        deadline = time.monotonic() + _NAMED_WITHIN_SECONDS
        while not (topic := self._events.refused_topic or self._refused_record()):
            if time.monotonic() >= deadline:
                return self._failures.topic
            attempt(poll, _STEP_SECONDS)  # a refused client may fail here, too, for the same reason
        return topic

    def _refused_record(self) -> str:
        """Return the topic of a refused record; other records may be lost only because of it."""
        error = self._failures.error
        refused = error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        return self._failures.topic if refused else ""


def of_transaction(error: KafkaError, what: str, transactional_id: str, where: str) -> KStreamsError:
    """Return the error of a transactional producer.

    :param what: the action that failed.
    :param where: the bootstrap servers.
    """
    text = " ".join(error.str().split())
    if error.code() in FENCED:
        return TaskFencedError(
            f"{what}: another attempt claimed transactional id {transactional_id}, or the broker "
            f"timed its transaction out: {text}",
            fix=(
                "nothing if a newer attempt runs; else raise transaction.timeout.ms or lower "
                "commit.interval.ms"
            ),
            task_id=transactional_id,
        )
    if error.txn_requires_abort():
        return TransactionAbortedError(
            f"{what}: the transaction of {transactional_id} must be aborted: {text}",
            fix="nothing: the task aborts and resumes from its committed offsets",
            task_id=transactional_id,
        )
    return from_kafka_error(error, what=f"{what} of {transactional_id}", where=where)
