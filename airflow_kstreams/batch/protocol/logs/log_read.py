"""Reads the bounds of partitions' logs, and all or the end of a small one-partition topic.

Rule: to read such a topic to its end means to the high watermark asked for before reading. Under
read_committed a reader sees nothing at or past the first open transaction, so an end of partition below that
high watermark is not the end: the reader would miss records that are committed behind the open transaction.
It waits, bounded, then fails and says how to find the producer.

The client has no call that names the producers of a partition; Kafka's own tool has. The age of an open
transaction is that of the record at the last stable offset, which is its first in this partition.

A transaction lasts from one commit to the next, ``commit.interval.ms`` at most unless user functions or the
cluster are slow. The broker aborts it after ``transaction.timeout.ms``, and refuses a timeout above its own
``transaction.max.timeout.ms``. Each must leave room for the one before.

Offsets alone do not say how many records there are: transaction markers and aborted records take offsets,
too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.protocol.logs.data_loss import end_transactions
from airflow_kstreams.streams.bounded_read import BoundedRead, Patience, Spans
from airflow_kstreams.streams.errors import UNREADABLE, ConfigError, KafkaClientError, KStreamsError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.figures.time_texts import duration_text
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, ReaderPort, Record, TopicPartition
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.settings import ApplicationSettings

T = TypeVar("T")
#: Codes of a reader whose position is not in the log.
POSITION_LOST = frozenset({"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"})

_SETTLE_STEP_SECONDS = 0.02
_PROBE_RECORDS = 100
_PROBED_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """A partition's log: its first offset, last stable offset and high watermark."""

    start: int
    stable: int
    high: int


def log_bounds(
    admin: AdminPort, partitions: Collection[TopicPartition], *, settle_ms: int, clock: Clock
) -> dict[TopicPartition, LogBounds]:
    """Read the bounds of partitions, and wait for the last stable offsets to reach the high watermarks that
    were read first. Where one does not, an open transaction holds it back.
    """
    if not partitions:
        return {}
    starts = admin.start_offsets(partitions)
    high = admin.end_offsets(partitions, isolation="read_uncommitted")
    stable = admin.end_offsets(partitions, isolation="read_committed")
    deadline = clock.monotonic_seconds() + settle_ms / 1000
    while behind := [tp for tp in partitions if stable[tp] < high[tp]]:
        if clock.monotonic_seconds() >= deadline:
            break
        clock.sleep(_SETTLE_STEP_SECONDS)
        stable |= admin.end_offsets(behind, isolation="read_committed")
    # Never past the high watermark first read: records that arrive during the wait belong to the next run.
    stable = {tp: min(offset, high[tp]) for tp, offset in stable.items()}
    return {tp: LogBounds(start=starts[tp], stable=stable[tp], high=high[tp]) for tp in partitions}


def where_readable(
    reader: ReaderPort, spans: Spans, read: Callable[[Spans], dict[TopicPartition, T]]
) -> dict[TopicPartition, T]:
    """Read all spans at once, or partition after partition where some hold a batch that cannot be unpacked:
    these are left out, with a warning.

    :param reader: the reader that is read from.
    :param read: reads spans.
    """
    try:
        return read(spans)
    except KafkaClientError as error:
        if error.kafka_code not in UNREADABLE:
            raise
        reader.assign({})
        if len(spans) == 1:
            log.warning("records that cannot be read are not compared with others: %s", error.cause)
            return {}
    each = (where_readable(reader, {tp: span}, read) for tp, span in spans.items())
    return {tp: found for one in each for tp, found in one.items()}


def has_records(
    reader: ReaderPort,
    spans: Spans,
    *,
    clock: Clock,
    until_found: bool = False,
) -> set[TopicPartition]:
    """Return the partitions in which a read_committed reader finds a record between two offsets.

    Transaction markers and aborted records take offsets too, so offsets alone do not say.

    :param spans: partition -> ``[from, to)``, where ``to`` is at most the last stable offset.
    :param until_found: return as soon as one partition is found.
    """
    found: set[TopicPartition] = set()
    read = BoundedRead(reader, spans, clock=clock, max_records=_PROBE_RECORDS)
    for fetched in read:
        found.update(fetched)
        # The other records of these do not matter, and must not be fetched while others are read.
        read.drop(fetched)
        if found and until_found:
            read.stop()
    return found


def any_record(reader: ReaderPort, spans: Spans, *, clock: Clock) -> bool:
    """Return whether a read_committed reader finds a record in any of the spans.

    It reads few partitions at a time, the widest spans first: mostly the first fetch finds a record.

    :param spans: partition -> ``[from, to)``, as for :func:`has_records`.
    """
    widths = {tp: to - start for tp, (start, to) in spans.items() if start < to}
    widest = sorted(widths, key=lambda tp: (-widths[tp], tp))
    return any(
        has_records(
            reader,
            {tp: spans[tp] for tp in widest[first : first + _PROBED_AT_ONCE]},
            clock=clock,
            until_found=True,
        )
        for first in range(0, len(widest), _PROBED_AT_ONCE)
    )


log = package_log(__name__)

MAX_TIMEOUT = "transaction.max.timeout.ms"
#: Number of commit intervals that a transaction must be able to last: a commit that is due takes time, too.
_INTERVALS = 2


def refuse_unfit_timeouts(settings: ApplicationSettings, admin: AdminPort) -> None:
    """Compare the settings with each other and with the broker's limit.

    A broker that does not let this user see its settings is not asked twice: it refuses a timeout above its
    limit itself when a task claims its transactional id, which is before the task writes anything.

    :raises ConfigError: values do not fit; the text names both, and the one to set.
    """
    timeout_ms, interval_ms = settings.transaction_timeout_ms, settings.commit_interval_ms
    if settings.exactly_once and interval_ms * _INTERVALS > timeout_ms:
        raise ConfigError(
            f"commit.interval.ms = {interval_ms} leaves a transaction no room below transaction.timeout.ms = "
            f"{timeout_ms}: the broker would abort it before its commit",
            fix=f"set commit.interval.ms to {timeout_ms // _INTERVALS} or less, or transaction.timeout.ms to "
            f"{interval_ms * _INTERVALS} or more",
        )
    try:
        limit_ms = int(admin.broker_configs().get(MAX_TIMEOUT, timeout_ms))
    except KafkaClientError as error:
        if error.is_retriable:
            raise
        log.debug("the broker's %s is not known: %s", MAX_TIMEOUT, error.cause)
        return
    if timeout_ms > limit_ms:
        raise ConfigError(
            f"transaction.timeout.ms = {timeout_ms} exceeds the broker's limit {MAX_TIMEOUT} = {limit_ms}",
            fix=f"set transaction.timeout.ms to {limit_ms} or less, or raise {MAX_TIMEOUT} in the brokers' "
            "configuration",
        )


#: Longest wait for all partitions together: the age only helps the person who reads it.
_PATIENCE = Patience(seconds=3.0, since="start", error=None)
_POLL_SECONDS = 0.5


def ages(
    cluster: ClusterPort, stable: Mapping[TopicPartition, int], *, group_id: str, clock: Clock
) -> dict[TopicPartition, str]:
    """Return the time for which transactions have been open, in words.

    :param stable: partition -> last stable offset, below its high watermark.
    :param group_id: id of the reader's group; nothing is committed.
    """
    found: dict[TopicPartition, str] = {}
    # The caller has something more important to report, and must not fail here.
    with suppress(KStreamsError):
        for partition, began_ms in begun(cluster, stable, group_id=group_id, clock=clock).items():
            found[partition] = f"open for {duration_text(clock.now_ms() - began_ms)}"
    return {partition: found.get(partition, "of unknown age") for partition in stable}


def warnings_of(
    cluster: ClusterPort,
    held: Mapping[TopicPartition, tuple[int, int]],
    *,
    group_id: str,
    clock: Clock,
    comes_again: bool = True,
    advanced: bool = False,
) -> tuple[str, ...]:
    """Describe open transactions that keep records from a run.

    :param held: partition -> (last stable offset, high watermark).
    :param comes_again: whether a later run begins where this one stops.
    :param advanced: whether stream time advances past them all the same, where windows or joins go by it.
    """
    if not held:
        return ()
    old = ages(cluster, {tp: stable for tp, (stable, _) in held.items()}, group_id=group_id, clock=clock)
    lot = "goes to a later run" if comes_again else "is left out, and no later run of this backfill reads it"
    if comes_again and advanced:
        lot += ", where what is dated before the end of this one is late by its windows' own grace"
    return tuple(
        f"{tp}: a transaction {old[tp]} holds the last stable offset at {stable}, below the high watermark "
        f"{high}; what lies behind it, at most {counted(high - stable, 'record')}, {lot} "
        f"({end_transactions({tp: stable})})"
        for tp, (stable, high) in sorted(held.items())
    )


def begun(
    cluster: ClusterPort, stable: Mapping[TopicPartition, int], *, group_id: str, clock: Clock
) -> dict[TopicPartition, int]:
    """Return the times at which open transactions began, epoch milliseconds, where they are found out in a
    moment.

    :param stable: partition -> last stable offset, below its high watermark.
    :param group_id: id of the reader's group; nothing is committed.
    :raises KStreamsError: the broker does not answer.
    """
    found: dict[TopicPartition, int] = {}
    with closing(cluster.reader(group_id=group_id, isolation="read_uncommitted", small=True)) as reader:
        read = BoundedRead(
            reader,
            {partition: (offset, offset + 1) for partition, offset in stable.items()},
            clock=clock,
            max_records=len(stable),
            poll_seconds=_POLL_SECONDS,
            patience=_PATIENCE,
        )
        for fetched in read:
            found |= {partition: records[0].timestamp()[1] for partition, records in fetched.items()}
    return found


#: Longest wait of a reader for an open transaction, milliseconds; tasks keep theirs open on the metadata
#: topic for moments only.
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

    :param admin: client to use instead of a new one.
    :param reader: reader to use instead of a new one; its earlier assignment is lost.
    :param first: offset of the first record to read, if the log does not begin after it.
    :param wait_ms: milliseconds to wait for open transactions; 0 takes what is visible already, which may be
        incomplete.
    :param last: number of offsets to read before the last stable one; None for all.
    :raises OpenTransactionError: a transaction stayed open.
    """
    with ExitStack() as clients:
        if admin is None:
            admin = clients.enter_context(closing(cluster.admin()))
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
            reader = clients.enter_context(closing(cluster.reader(group_id=group_id, small=True)))
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
    """Read the committed records of a part of a log in whole transactions: records past its end that came in
    the same transaction are returned, too.

    :param span: offsets ``[from, to)``, not empty.
    :param wait_ms: milliseconds to wait for open transactions; 0 takes what is visible already.
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
        fix=f"retry; if it stays, {end_transactions({partition: content.stable_end})}",
        kafka_code="OPEN_TRANSACTION",
        retriable_code=True,
    )
