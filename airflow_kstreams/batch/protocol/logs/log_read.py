"""Reads a small one-partition topic, from its beginning or only its end.

Rule: "to the end" means the high watermark asked for before reading. Under read_committed a reader sees
nothing at or past the first open transaction, so an end of partition below that high watermark is not the
end: the reader would miss what is committed behind the open transaction. It waits, bounded, then fails and
says how to find the producer.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import NamedTuple

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.protocol.logs.data_loss import describe_producers
from airflow_kstreams.batch.protocol.logs.open_transactions import begun
from airflow_kstreams.streams.bounded_read import BoundedRead
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, ReaderPort, Record, TopicPartition

#: How long a reader waits for an open transaction; tasks keep theirs open on the metadata topic for moments
#: only.
OPEN_TRANSACTION_TIMEOUT_MS = 30_000


class LogFacts(NamedTuple):
    """A log's bounds: its topic's id, empty if there is none, its first offset and its high watermark."""

    topic_id: str = ""
    start: int = 0
    end: int = 0


class LogContent(NamedTuple):
    """The result of a read: the visible records, the offset up to which they are complete, the log's bounds,
    and the offset from which on it was read.
    """

    records: tuple[Record, ...]
    stable_end: int
    log: LogFacts
    first: int = 0

    @property
    def high_watermark(self) -> int:
        """The log's end."""
        return self.log.end

    @property
    def complete(self) -> bool:
        """Whether no open transaction hides anything below the high watermark."""
        return self.stable_end >= self.high_watermark


class OpenTransactionError(KafkaClientError):
    """An open transaction hides committed records."""


def read_log(  # noqa: PLR0913 - all but three have defaults
    cluster: ClusterPort,
    topic: str,
    *,
    group_id: str,
    admin: AdminPort | None = None,
    reader: ReaderPort | None = None,
    first: int = 0,
    wait_ms: int = OPEN_TRANSACTION_TIMEOUT_MS,
    clock: Clock | None = None,
    last: int | None = None,
) -> LogContent:
    """Read every committed record of a one-partition topic; a missing topic is empty.

    :param admin: used instead of a new client.
    :param reader: used instead of a new client; it loses its earlier assignment.
    :param first: offset of the first record to read, if the log does not begin after it.
    :param wait_ms: how long to wait for open transactions; 0 takes what is stable, which may be incomplete.
    :param last: how many offsets to read, those before the last stable one; None for all.
    :raises OpenTransactionError: a transaction stayed open.
    """
    with ExitStack() as clients:
        if admin is None:
            admin = cluster.admin()
            clients.callback(admin.close)
        found = admin.describe_topics([topic])
        if topic not in found:
            return LogContent((), 0, LogFacts())
        partition = TopicPartition(topic, 0)
        high = admin.end_offsets([partition], isolation="read_uncommitted")[partition]
        start = admin.start_offsets([partition])[partition]
        log = LogFacts(found[topic].topic_id, start, high)
        begin = max(start, first)
        if begin >= high:
            return LogContent((), high, log, begin)
        if last is not None and high - begin > last:
            # A reader that begins past the last stable offset gets no end of partition.
            stable = admin.end_offsets([partition], isolation="read_committed")[partition]
            # The log may have grown since its end was read.
            begin = max(begin, min(stable, high) - last)
        if reader is None:
            reader = cluster.reader(group_id=group_id)
            clients.callback(reader.close)
        records, stable_end = read_part(
            reader, partition, (begin, high), wait_ms=wait_ms, clock=clock or SystemClock()
        )
        content = LogContent(records, stable_end, log, begin)
    if wait_ms and not content.complete:
        raise _hidden(cluster, partition, content, group_id, clock or SystemClock())
    return content


def read_part(
    reader: ReaderPort, partition: TopicPartition, span: tuple[int, int], *, wait_ms: int, clock: Clock
) -> tuple[tuple[Record, ...], int]:
    """Read the committed records of a part of a log, in whole transactions: those past its end that came with
    it, too.

    :param span: offsets ``[from, to)``, not empty.
    :param wait_ms: how long to wait for open transactions; 0 takes what is stable.
    :return: the records, and the offset up to which they are complete.
    """
    read = BoundedRead(reader, {partition: span}, clock=clock, whole_transactions=True)
    deadline = clock.monotonic_seconds() + wait_ms / 1000
    records: list[Record] = []
    for fetched in read:
        records += fetched.get(partition, ())
        if partition in read.ends and clock.monotonic_seconds() >= deadline:
            read.stop()
    return tuple(records), read.positions[partition]


def _hidden(
    cluster: ClusterPort, partition: TopicPartition, content: LogContent, group_id: str, clock: Clock
) -> OpenTransactionError:
    age = "unknown age"
    # The age only helps the person who reads the message; the error itself must not depend on it.
    with suppress(KafkaClientError):
        began_ms = begun(cluster, {partition: content.stable_end}, group_id=group_id, clock=clock)
        if partition in began_ms:
            age = f"open for {max(0, clock.now_ms() - began_ms[partition]) / 1000:.0f} s"
    return OpenTransactionError(
        f"{partition}: a transaction that is still open hides committed records: last stable offset "
        f"{content.stable_end}, high watermark {content.high_watermark}, {age}",
        fix=f"retry; if it stays, find the producer with: {describe_producers(partition)}",
        code="OPEN_TRANSACTION",
        retriable_code=True,
    )
