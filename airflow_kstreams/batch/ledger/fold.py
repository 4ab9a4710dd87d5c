"""Encodes and folds the records of the ledger, and reads the last lease from the ledger's end.

:mod:`airflow_kstreams.batch.ledger.ledger` says what the records mean together.

Rule: a task goes on only if the last lease is in force for its run and generation. It looks after it has
claimed its transactional id, and before it reads its committed offsets. The driver keeps renewing the lease,
so it is among the last records; a look reads the last few offsets, and twice as many until it finds one.

Races: a driver that claims the slice, another start, and a reset first write another lease, or release or
delete this one, and then fence the tasks. The fence makes an earlier claim of a task's id void, and nothing
that the task writes is seen; a task that claims its id afterwards looks after that write. It waits for what
the write's transaction still hides, longer than the broker lets a dead coordinator's transaction stay open.
The next run of batches begins only when this one is finished: its tasks are at their stops then, or find
offsets that another run has committed, and stop (:mod:`airflow_kstreams.batch.task.work`).

Should a task still see a lease that is out of date (the transaction stayed open), that does no harm: it uses
the task's own id, so that the newer driver's attempt fences it, it read its offsets after it had claimed that
id, and its stops are those that were frozen for the run, which never move. What it can still commit is what
the newer attempt would have committed.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from airflow_kstreams.batch.ledger.facts import (
    NOTHING_RECORDED,
    Acceptance,
    Assignment,
    ChangelogEnds,
    ContinuousRun,
    DroppedRun,
    LandedTable,
    Lease,
    OwnTopics,
    ResetRecord,
)
from airflow_kstreams.batch.ledger.history import HISTORY_KEY, Histories
from airflow_kstreams.batch.ledger.past_runs import PastRuns
from airflow_kstreams.batch.ledger.run_search import Entries, Everything, Located
from airflow_kstreams.batch.ledger.run_summary import DETAILS_KEY, RunSummary
from airflow_kstreams.batch.protocol.checked_reading import UnreadableError, read_json
from airflow_kstreams.batch.protocol.logs.log_read import OPEN_TRANSACTION_TIMEOUT_MS, read_part
from airflow_kstreams.batch.protocol.slice.metadata import refuse_unfit
from airflow_kstreams.batch.protocol.slice.metadata_records import (
    MetadataRecord,
    headers_of,
    joined,
    pieces_of,
)
from airflow_kstreams.batch.protocol.topics import others_protocol_topic
from airflow_kstreams.streams.bounded_read import BoundedRead
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError
from airflow_kstreams.streams.naming.commands import repair_ledger_command
from airflow_kstreams.streams.naming.topic_names import OWN_ENDINGS, ProtocolTopics
from airflow_kstreams.streams.plan import PartitionName
from airflow_kstreams.streams.ports import AdminPort, Clock, ReaderPort, Record, TopicPartition

_T = TypeVar("_T")

LEASE_KEY = "__lease__"
#: Keys of the records that may follow the last checkpoint.
BEHIND_CHECKPOINT = (LEASE_KEY, HISTORY_KEY)
CHECKPOINT_KEY = "__checkpoint__"
#: Prefix of the keys that are no run ids.
RESERVED = "__"
#: Longest run id as JSON, in bytes; it leaves room in the 4096 bytes of an offset's metadata.
_RUN_ID_BYTES = 1_000

#: Offsets ``[from, to)`` of the ledger's log.
Span = tuple[int, int]


class LeaseSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The last lease, as a checkpoint carries it when its transaction does not write a lease.

    :param lease: the lease itself.
    :param offset: offset of the lease's record.
    :param written_ms: time at which the lease's record was written, epoch milliseconds.
    """

    lease: Lease
    offset: int
    written_ms: int


class LedgerCheckpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that the next run needs; one record in the ledger topic, in pieces if it is large. See ``Ledger``.

    :param past: summary of the earlier runs.
    :param at: offset that the writer expected this record to get. If the record lies elsewhere, the offsets
        of all that was written with it are wrong, too.
    :param history: offset of the last record of the histories of runs that have not finished; -1 without one.
    """

    past: PastRuns
    at: int
    lease: LeaseSeen | None = None
    assignment: Assignment = NOTHING_RECORDED
    reset: ResetRecord | None = None
    continuous: ContinuousRun | None = None
    own_topics: OwnTopics | None = None
    changelog_ends: ChangelogEnds | None = None
    accepted: dict[PartitionName, Acceptance] = {}
    history: int = -1
    tables: dict[str, LandedTable] = {}
    dropped: tuple[DroppedRun, ...] = ()


def check_run_id(run_id: str) -> None:
    """Refuse a run id that the ledger cannot hold.

    :raises ConfigError: the run id is empty, too long, or starts with two underscores.
    """
    if not run_id or run_id.startswith(RESERVED) or len(msgspec.json.encode(run_id)) > _RUN_ID_BYTES:
        raise ConfigError(
            f"run id {run_id[:60]!r} cannot be used",
            fix=f"use 1 to {_RUN_ID_BYTES} bytes that do not start with two underscores",
        )


def lease_record(application_id: str, lease: Lease) -> MetadataRecord:
    """Return the ledger's record of the lease."""
    topic = ProtocolTopics(application_id).ledger
    return MetadataRecord(topic, msgspec.json.encode(lease), LEASE_KEY.encode(), None)


def history_record(application_id: str, histories: Histories) -> MetadataRecord:
    """Return the ledger's record of what happened to runs that have not finished."""
    topic = ProtocolTopics(application_id).ledger
    return MetadataRecord(topic, histories.encode(), HISTORY_KEY.encode(), None)


def decode_lease(record: Record) -> Lease | None:
    """Return the lease that a record of the ledger holds; None if it takes the lease away, or is no lease.

    :raises KafkaClientError: another version of this package wrote it.
    """
    value = record.value()
    if record.key() != LEASE_KEY.encode() or value is None:
        return None
    return decode(value, Lease, record.topic(), record.offset())


def decode_summary(record: Record) -> RunSummary | None:
    """Return the run's entry that a record of the ledger holds; None if it deletes the entry, or is none.

    :raises KafkaClientError: no run wrote it, or another version of this package did.
    """
    key, value = record.key(), record.value()
    if not key or key.startswith(RESERVED.encode()) or value is None:
        return None
    return decode(value, RunSummary, record.topic(), record.offset())


def lease_seen(record: Record) -> LeaseSeen | None:
    """Return the lease that a record holds, and where; None if it takes it away, or is another record."""
    lease = decode_lease(record)
    if lease is None:
        return None
    return LeaseSeen(lease=lease, offset=record.offset(), written_ms=record.timestamp()[1])


def key_of(record: Record) -> str:
    """Return a record's key as text; one that is no text is another program's."""
    return (record.key() or b"").decode(errors="replace")


def decode(value: bytes, kind: type[_T], topic: str, offset: int) -> _T:
    """Return the decoded value of a ledger record.

    :raises KafkaClientError: another version of this package wrote it, or another program did.
    """
    try:
        found = read_json(value, kind)
        if isinstance(found, LedgerCheckpoint):
            _refuse_topics_of_others(found, topic.removesuffix("-runs"))
    except UnreadableError as error:
        raise KafkaClientError(
            f"{topic}-0@{offset} is not a ledger record that this version reads: {error}",
            fix="install the airflow_kstreams version that wrote it; if another program did, stop that, then "
            f"run {repair_ledger_command(topic.removesuffix('-runs'))}",
            kafka_code="BAD_LEDGER",
        ) from None
    return found


def _refuse_topics_of_others(checkpoint: LedgerCheckpoint, application_id: str) -> None:
    """Refuse a checkpoint by which a reset or a finish would delete topics, or records, of others.

    :raises UnreadableError: it is such a one.
    """
    own = () if checkpoint.own_topics is None else checkpoint.own_topics.topics
    deleted = {
        *(() if checkpoint.reset is None else checkpoint.reset.deleting),
        *(topic for entry in checkpoint.assignment.entries for topic in entry.changelogs),
        *(topic for topic in own if topic.endswith(OWN_ENDINGS)),
    }
    if ProtocolTopics(application_id).others(deleted):
        raise UnreadableError("it names topics of others among those that a reset deletes")
    if checkpoint.continuous is not None:
        refuse_unfit(checkpoint.continuous.plan, application_id)


class TornCheckpointError(KafkaClientError):
    """The last checkpoint is not whole."""


class FoldedLedger(NamedTuple):
    """The content of a checkpoint and the records after it."""

    checkpoint: LedgerCheckpoint
    span: Span | None
    lease: LeaseSeen | None

    @property
    def history_at(self) -> int:
        """Offset of the last record of histories, as the later one of checkpoint and lease names it."""
        lease, held = self.lease, self.checkpoint.lease
        behind = lease is not None and (held is None or lease.offset > held.offset)
        # A lease that the checkpoint does not hold was written in its transaction, or after it.
        return lease.lease.history if behind and lease is not None else self.checkpoint.history


def checkpoint_span(records: tuple[Record, ...]) -> Span | None:
    """Return the offsets of the last checkpoint by the last record; None if all must be read."""
    final = records[-1]
    if key_of(final) == CHECKPOINT_KEY:
        return final.offset() - pieces_of(headers_of(final)), final.offset() + 1
    lease = decode_lease(final)
    if lease is None or lease.checkpoint is None:
        return None
    after = (record for record in records if record.offset() >= lease.checkpoint[1])
    return lease.checkpoint if all(key_of(record) in BEHIND_CHECKPOINT for record in after) else None


def checkpoints(records: Iterable[Record]) -> Iterator[tuple[Record, bytes | None]]:
    """Yield the records of a checkpoint's key, each with its content: joined from pieces, empty if these are
    not whole, None of a tombstone.
    """
    values: dict[bytes, bytes | None] = {}
    prefix = CHECKPOINT_KEY.encode()
    for record in records:
        key = record.key() or b""
        if key == prefix:
            content = record.value()
            if content is not None and pieces_of(headers_of(record)):
                content = joined(key, headers_of(record), values.get) or b""
            yield record, content
        elif key.startswith(prefix):
            values[key] = record.value()


def decode_checkpoint(record: Record, content: bytes) -> LedgerCheckpoint:
    """Return the checkpoint that a record's content holds.

    :raises TornCheckpointError: the checkpoint is not whole.
    :raises KafkaClientError: no run wrote it, or another version of this package did.
    """
    if not content:
        raise TornCheckpointError(
            f"{record.topic()}-0@{record.offset()}: pieces of the checkpoint are missing, or are another "
            "one's",
            fix="retry; if it stays, something else writes to this topic: stop it, and restore the topic, or "
            f"run {repair_ledger_command(record.topic().removesuffix('-runs'))}",
            kafka_code="TORN_LEDGER",
            retriable_code=True,
        )
    return decode(content, LedgerCheckpoint, record.topic(), record.offset())


def last_checkpoint(records: Sequence[Record]) -> tuple[LedgerCheckpoint, Span] | None:
    """Return the last checkpoint among records, and where it is; None if there is none.

    :raises TornCheckpointError: the checkpoint is not whole.
    """
    for record, content in deque(checkpoints(records), maxlen=1):
        # After a tombstone, which no run writes, there is none.
        if content is not None:
            first = record.offset() - pieces_of(headers_of(record))
            return decode_checkpoint(record, content), (first, record.offset() + 1)
    return None


def fold_ledger(records: Sequence[Record], topic: str) -> tuple[Everything, FoldedLedger]:
    """Find every entry of a run, the last checkpoint, and the lease after it.

    Behind the checkpoint come leases and histories only. Where another program has written there, no
    checkpoint counts as found, and the next one that is written brings all of the index.

    :raises ConfigError: no record belongs to a ledger.
    :raises KafkaClientError: a record belongs to no ledger or to another version's, or the checkpoint is
        lost.
    """
    refuse_others(records, topic)
    checkpoint, span = last_checkpoint(records) or (LedgerCheckpoint(past=PastRuns(), at=-1), None)
    after = -1 if span is None else span[1]
    entries: dict[str, Located] = {}
    details: dict[str, int] = {}
    lease, alone, behind = checkpoint.lease, True, False
    # Only the last record of a key counts, so that one that cannot be read ends with another in its place.
    last_of = {record.key(): record.offset() for record in records}
    for record in records:
        # A key that is no text is another program's; its record is refused below, with its offset.
        key, value = key_of(record), record.value()
        if key.startswith(DETAILS_KEY) and "#" not in key:
            details[key] = record.offset() + 1
        if record.offset() >= after:
            alone = alone and key in BEHIND_CHECKPOINT
            if key == LEASE_KEY and record.offset() == last_of[record.key()]:
                lease = lease_seen(record)
        if not key or key.startswith(RESERVED) or record.offset() != last_of[record.key()]:
            continue
        entries.pop(key, None)
        if value is not None:
            entries[key] = Located(record.offset(), decode(value, RunSummary, topic, record.offset()))
            # Every run that finishes writes its checkpoint right behind its entry, in one transaction.
            behind = behind or record.offset() >= after
    if span is None or behind:
        _refuse_lost_checkpoint(entries, lease, topic)
    last = None if checkpoint.past.last is None else entries.get(checkpoint.past.last.run_id)
    past = msgspec.structs.replace(checkpoint.past, last_at=-1 if last is None else last.offset)
    state = msgspec.structs.replace(checkpoint, past=past)
    return Everything(entries, frozenset(details.values())), FoldedLedger(
        state, span if alone else None, lease
    )


def refuse_others(records: Sequence[Record], topic: str) -> None:
    """Refuse a topic of somebody else's that has the name of a ledger. In a ledger there is a lease, a
    checkpoint or an entry, as long as it holds anything.

    :raises ConfigError: the topic holds no record of a ledger.
    """
    stranger: Record | None = None
    for record in records:
        if key_of(record).startswith((LEASE_KEY, CHECKPOINT_KEY)):
            return
        try:
            if decode_summary(record) is not None:
                return
        except KafkaClientError:
            pass
        stranger = stranger or record
    if stranger is not None:
        raise others_protocol_topic(stranger, topic.removesuffix("-runs"))


def _refuse_lost_checkpoint(entries: Entries, lease: LeaseSeen | None, topic: str) -> None:
    """Refuse a ledger that has no checkpoint, although a run has finished or its lease names one.

    :raises KafkaClientError: the checkpoint is lost.
    """
    if entries or (lease is not None and lease.lease.checkpoint is not None):
        raise KafkaClientError(
            f"the checkpoint of {topic} is gone, and with it the offsets at which earlier runs stopped",
            fix="something else writes to this topic: stop it, and restore the topic, or run "
            f"{repair_ledger_command(topic.removesuffix('-runs'))}",
            kafka_code="BAD_LEDGER",
        )


#: Number of records at the ledger's end that are looked at first.
WINDOW = 16


class LeaseState(enum.Enum):
    """The validity of a lease for a task, or for a driver's launch of one."""

    IN_FORCE = "in force"
    RELEASED = "released"
    OTHER = "another's"


class LeaseOf(NamedTuple):
    """The run whose lease a task works under.

    :param run_id: id of the slice's run, or of the continuous run.
    :param generation: generation of the slice, or of the continuous run.
    :param continuous: whether it is a continuous run.
    """

    run_id: str
    generation: int
    continuous: bool

    def state_of(self, lease: Lease | None) -> LeaseState:
        """Return the validity of a lease for this run and generation."""
        if lease is None:
            return LeaseState.OTHER
        if LeaseOf(lease.works_on, lease.generation, lease.continuous) != self:
            return LeaseState.OTHER
        return LeaseState.IN_FORCE if lease.expires_ms else LeaseState.RELEASED


def is_about_lease(record: Record) -> bool:
    """Whether a record of the ledger gives the lease, or takes it away."""
    return record.key() == LEASE_KEY.encode()


def last_lease(application_id: str, *, admin: AdminPort, reader: ReaderPort, clock: Clock) -> Lease | None:
    """Return the last lease of an application's ledger; None if there is none, or it was taken away.

    What an open transaction hides at the end is waited for, bounded; then the last lease that can be seen
    counts.

    :param reader: reader of the ledger; its earlier assignment is lost.
    """
    ledger = TopicPartition(ProtocolTopics(application_id).ledger, 0)
    if ledger.topic not in admin.describe_topics([ledger.topic]):
        return None
    end = admin.end_offsets([ledger], isolation="read_uncommitted")[ledger]
    start = admin.start_offsets([ledger])[ledger]
    window, upto = WINDOW, end
    while upto > start:
        first = max(start, end - window)
        span = (first, upto)
        if upto == end:
            records, _ = read_part(reader, ledger, span, wait_ms=OPEN_TRANSACTION_TIMEOUT_MS, clock=clock)
        else:
            records = _further_back(reader, ledger, span, clock)
        found = [record for record in records if is_about_lease(record)]
        if found:
            return decode_lease(found[-1])
        window, upto = 2 * window, first
    return None


def _further_back(
    reader: ReaderPort, ledger: TopicPartition, span: tuple[int, int], clock: Clock
) -> tuple[Record, ...]:
    read = BoundedRead(reader, {ledger: span}, clock=clock, max_records=span[1] - span[0])
    return tuple(record for fetched in read for record in fetched.get(ledger, ()))
