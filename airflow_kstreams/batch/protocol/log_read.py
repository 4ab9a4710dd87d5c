"""Reads a small one-partition topic from its beginning.

Rule: "to the end" means the high watermark asked for before reading. Under read_committed a reader sees
nothing at or past the first open transaction, so an end of partition below that high watermark is not the
end: what is committed behind the open transaction would be missed. The reader waits for it, bounded, then
fails and says how to find the producer.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import NamedTuple

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.protocol.data_loss import describe_producers
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import (
    AdminPort,
    Clock,
    ClusterPort,
    Fetched,
    ReaderPort,
    Record,
    TopicPartition,
)

_FETCH_RECORDS = 10_000
_FETCH_SECONDS = 0.2
#: How long a reader waits for an open transaction; tasks keep theirs open on the metadata topic for moments
#: only.
OPEN_TRANSACTION_TIMEOUT_MS = 30_000
#: An end is told once, so waiting for a transaction at the end is silent, too.
SILENCE_MS = 5_000


class LogContent(NamedTuple):
    """What a read found: the visible records, the offset up to which they are complete, and the high
    watermark.
    """

    records: tuple[Record, ...]
    stable_end: int
    high_watermark: int

    @property
    def complete(self) -> bool:
        """Whether no open transaction hides anything below the high watermark."""
        return self.stable_end >= self.high_watermark


class OpenTransactionError(KafkaClientError):
    """An open transaction hides committed records."""


def read_log(
    cluster: ClusterPort,
    topic: str,
    *,
    group_id: str,
    admin: AdminPort | None = None,
    reader: ReaderPort | None = None,
    wait_ms: int = OPEN_TRANSACTION_TIMEOUT_MS,
    clock: Clock | None = None,
) -> LogContent:
    """Read every committed record of a one-partition topic; a missing topic is empty.

    :param admin: used instead of a new client.
    :param reader: used instead of a new client; what it was assigned before is lost.
    :param wait_ms: how long to wait for open transactions; 0 takes what is stable, which may be incomplete.
    :raises OpenTransactionError: the wait was in vain.
    """
    with ExitStack() as clients:
        if admin is None:
            admin = cluster.admin()
            clients.callback(admin.close)
        if topic not in admin.describe_topics([topic]):
            return LogContent((), 0, 0)
        partition = TopicPartition(topic, 0)
        high = admin.end_offsets([partition], isolation="read_uncommitted")[partition]
        start = admin.start_offsets([partition])[partition]
        if start >= high:
            return LogContent((), high, high)
        if reader is None:
            reader = cluster.reader(group_id=group_id)
            clients.callback(reader.close)
        content = _read(reader, partition, (start, high), wait_ms, clock or SystemClock())
    if wait_ms and not content.complete:
        raise _hidden(cluster, partition, content, group_id, clock or SystemClock())
    return content


def _read(
    reader: ReaderPort, partition: TopicPartition, span: tuple[int, int], wait_ms: int, clock: Clock
) -> LogContent:
    start, high = span
    reader.assign({partition: start})
    records: list[Record] = []
    end = start
    deadline = clock.monotonic_seconds() + wait_ms / 1000
    heard = clock.monotonic_seconds()
    reached = at_end = False
    # What is fetched last may be the first part of a transaction that came meanwhile.
    while not (at_end and end >= high) and not (reached and clock.monotonic_seconds() >= deadline):
        fetched = reader.poll(max_records=_FETCH_RECORDS, timeout_seconds=_FETCH_SECONDS)
        heard = refuse_silence(fetched, heard, partition, clock)
        for record in fetched.records.get(partition, ()):
            records.append(record)
            end = max(end, record.offset() + 1)
        at_end = partition in fetched.ends
        if at_end:
            reached = True
            end = max(end, fetched.ends[partition])
    # An assigned partition would go on being fetched in the background.
    reader.assign({})
    return LogContent(tuple(records), end, high)


def refuse_silence(fetched: Fetched, heard: float, what: object, clock: Clock) -> float:
    """Bound the wait for a partition whose leader does not answer.

    :param heard: monotonic seconds at which something was fetched last.
    :return: the same for the next call.
    :raises KafkaClientError: nothing was fetched, not even an end of partition, for too long.
    """
    now = clock.monotonic_seconds()
    if fetched.records or fetched.ends:
        return now
    if (now - heard) * 1000 > OPEN_TRANSACTION_TIMEOUT_MS + SILENCE_MS:
        raise KafkaClientError(
            f"{what}: nothing could be read for {now - heard:.0f} s",
            fix="check that the brokers that lead this partition are up, then retry",
            code="_TIMED_OUT",
            retriable_code=True,
        )
    return heard


def _hidden(
    cluster: ClusterPort, partition: TopicPartition, content: LogContent, group_id: str, clock: Clock
) -> OpenTransactionError:
    age = "unknown age"
    # The age only helps the person who reads the message; the error itself must not depend on it.
    with suppress(KafkaClientError):
        began_ms = _timestamp_at(cluster, partition, content.stable_end, group_id)
        if began_ms is not None:
            age = f"open for {max(0, clock.now_ms() - began_ms) / 1000:.0f} s"
    return OpenTransactionError(
        f"{partition}: a transaction that is still open hides committed records: last stable offset "
        f"{content.stable_end}, high watermark {content.high_watermark}, {age}",
        fix=f"retry; if it stays, find the producer with: {describe_producers(partition)}",
        code="OPEN_TRANSACTION",
        retriable_code=True,
    )


def _timestamp_at(cluster: ClusterPort, partition: TopicPartition, offset: int, group_id: str) -> int | None:
    reader = cluster.reader(group_id=group_id, isolation="read_uncommitted")
    try:
        reader.assign({partition: offset})
        fetched = reader.poll(max_records=1, timeout_seconds=1.0)
        for record in fetched.records.get(partition, ()):
            return record.timestamp()[1]
        return None
    finally:
        reader.close()
