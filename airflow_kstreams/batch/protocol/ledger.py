"""The run ledger ``<app>-runs``: the entry of every finished run, and what the next run must know.

Compacted, one partition. Key = run id, value = the entry as JSON; nothing ever deletes one. A reset that
takes back what a run processed says so in that run's entry. Reserved keys start with two underscores:
``__lease__`` holds the lease, ``__checkpoint__`` all that the next run needs (partition groups, where each
topic was left, ids of the engine's own topics, where changelogs ended, the last reset, the last continuous
run, the root of the index), ``__index__/<digits>`` pages of the index, ``__details__/<slot>`` what entries
leave out.

Rule: only the holder of the coordinator's transactional id writes, and each of its transactions ends with a
checkpoint, a lease, or both in this order. The checkpoint holds everything as it is after the transaction,
and each lease says where the last checkpoint is. So the last record of the log is enough to find everything:
it is a checkpoint, or a lease that names one, and between that checkpoint and the end lie leases only.

Reading: the last few records, more until one is visible; then the checkpoint, if it was not among them.
Anything else at the end (a version that writes no checkpoints, another program), or no checkpoint where one
should be, means that all of the log is read and folded, as in a ledger that has no checkpoint yet: the last
checkpoint that is whole, and on it what came after.

Compaction: it keeps each key's last record and moves none, so the last checkpoint, the last lease, and
whatever entries, pages and details are pointed to from there keep their offsets. A reader that is overtaken
by a new checkpoint while the cleaner takes the old one away finds that one torn (:mod:`.pieces`), and begins
again from the new end. Nothing visible was undone by that: a reader decides by the ledger as it was at some
moment after it began to read.

Crash argument: entry, details, pages, checkpoint and lease stand in one transaction of the coordinator with
what they tell of (markers, offsets), so readers see all or nothing of it. Their offsets are known before they
are written, because nothing else writes after the claim. Should another program do so all the same, the
checkpoint does not stand where it says that it stands: then nothing that was written with it is where it
should be, and everything is read, until the next checkpoint is written, with all of the index.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import msgspec

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.protocol.log_read import (
    OPEN_TRANSACTION_TIMEOUT_MS,
    LogContent,
    LogFacts,
    read_log,
)
from airflow_kstreams.batch.protocol.metadata_records import MetadataRecord
from airflow_kstreams.batch.protocol.model import (
    Assignment,
    ChangelogEnds,
    ContinuousRun,
    Lease,
    OwnTopics,
    ResetRecord,
    ResetStage,
    RunSummary,
)
from airflow_kstreams.batch.protocol.past_runs import PastRuns, TopicLeft, left_without, past_of
from airflow_kstreams.batch.protocol.pieces import joined, pieces_of
from airflow_kstreams.batch.protocol.run_archive import Entries, Located, LogSpan, RunArchive
from airflow_kstreams.batch.protocol.run_details import entry_of
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, ReaderPort, Record, TopicPartition
from airflow_kstreams.streams.protocol_topics import ProtocolTopics

_T = TypeVar("_T")

LEASE_KEY = "__lease__"
CHECKPOINT_KEY = "__checkpoint__"
#: Of earlier versions, which wrote what a checkpoint holds one by one.
ASSIGNMENT_KEY = "__assignment__"
RESET_KEY = "__reset__"
CONTINUOUS_KEY = "__continuous__"
TOPICS_KEY = "__topics__"
CHANGELOGS_KEY = "__changelogs__"
_RESERVED = "__"
#: Of the run id as JSON; leaves room in the 4096 bytes of an offset's metadata.
_RUN_ID_BYTES = 1_000
#: How many offsets a reader takes first from the end: what a run of a small application writes.
_TAIL = 16
_READS = 3

#: From and to offset.
Span = tuple[int, int]


class LeaseSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The lease as it was before a transaction that does not write one.

    :param lease: the lease.
    :param offset: of its record.
    :param written_ms: when that was written.
    """

    lease: Lease
    offset: int
    written_ms: int


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that the next run needs; one record in the ledger topic, in pieces if it is large. See ``Ledger``.

    :param past: of the runs before.
    :param at: the offset at which it was to stand, as all that was written with it was placed.
    """

    past: PastRuns
    at: int
    lease: LeaseSeen | None = None
    assignment: Assignment | None = None
    reset: ResetRecord | None = None
    continuous: ContinuousRun | None = None
    own_topics: OwnTopics | None = None
    changelog_ends: ChangelogEnds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What the ledger says.

    :param lease: the last lease, whether renewed, abandoned or released; None when there never was one, or a
        reset has taken it away.
    :param assignment: the partition groups that state depends on; None before the first run with records.
    :param reset: the last reset; None when a run has finished, or a continuous one has begun since, or there
        never was one.
    :param continuous: the continuous run that was started last; None when there never was one.
    :param lease_offset: of the lease's record, which every renewal moves; -1 without a lease.
    :param lease_written_ms: when that record was written, epoch milliseconds by the owner's or the broker's
        clock: to be shown, never compared with another clock; 0 without a lease.
    :param own_topics: which topics are the application's; None when no run of a version that keeps them has
        begun.
    :param changelog_ends: where changelogs ended when a run was last finished; None when no run of a version
        that keeps them has.
    :param past: what it keeps of the runs before.
    :param checkpoint: where the last checkpoint is; None if there is none, or none after which only leases
        came.
    :param next_offset: where the next record will be, if this reader's application writes it; -1 if open
        transactions hide that.
    :param archive: finds single runs; it does not count when ledgers are compared, nor does ``log``.
    :param log: what was read.
    """

    lease: Lease | None = None
    assignment: Assignment | None = None
    reset: ResetRecord | None = None
    continuous: ContinuousRun | None = None
    lease_offset: int = -1
    lease_written_ms: int = 0
    own_topics: OwnTopics | None = None
    changelog_ends: ChangelogEnds | None = None
    past: PastRuns = field(default=PastRuns())
    checkpoint: Span | None = None
    next_offset: int = field(default=-1, compare=False)
    archive: RunArchive = field(default=RunArchive(None, PastRuns(), entries={}), compare=False, repr=False)
    log: LogFacts = field(default=LogFacts(), compare=False)

    @property
    def unwritten(self) -> bool:
        """Whether no run has begun yet, as far as the ledger says."""
        return self == Ledger()

    @property
    def held_lease(self) -> Lease | None:
        """The lease that was not released. Its owner may be at work, or dead."""
        return self.lease if self.lease is not None and self.lease.expires_ms else None

    @property
    def stops(self) -> dict[TopicPartition, int]:
        """Where the last run, or the reset after it, left each partition; empty after a continuous run, whose
        progress stands in the committed offsets alone.
        """
        if self.current_continuous is not None:
            return {}
        if self.reset is not None:
            return self.reset.stops
        return {
            tp: stop
            for topic, left in self.past.left.items()
            if self._is_last(left.run_id)
            for tp, stop in left.stops_of(topic).items()
        }

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """Topic ids of what ran or was reset last, as far as the ledger knows them."""
        if self.current_continuous is not None:
            return self.current_continuous.plan.topic_ids
        if self.reset is not None:
            return self.reset.topic_ids
        return {
            topic: left.id for topic, left in self.past.left.items() if left.id and self._is_last(left.run_id)
        }

    @property
    def unfinished_reset(self) -> ResetRecord | None:
        """The reset that goes on, or was interrupted."""
        return self.reset if self.reset is not None and self.reset.stage is not ResetStage.DONE else None

    @property
    def current_continuous(self) -> ContinuousRun | None:
        """The continuous run that was started last, if neither a batch began nor a reset was made since.

        What the metadata topic holds beside it is void: that run's start, which decided so, deletes it.
        """
        run = self.continuous
        return None if run is None or run.over else run

    @property
    def taken_back(self) -> dict[str, RunSummary]:
        """Runs that a reset took back and that have not finished again, the last few, without details."""
        return {run.run_id: run for run in self.past.taken_back}

    @property
    def newest_entry(self) -> RunSummary | None:
        """The entry of the run that finished last, whether it was taken back or not."""
        past = self.past
        found = (*past.taken_back[-1:], *(() if past.last is None else (past.last,)))
        return max(found, key=lambda run: run.finished_ms, default=None)

    def last(self) -> RunSummary | None:
        """Return the run that finished last, without its details."""
        return self.past.last

    def find(self, run_id: str) -> RunSummary | None:
        """Return a run that has finished, and was not taken back, without its details."""
        found = self.archive.find(run_id)
        return None if found is None or found.summary.taken_back_ms else found.summary

    def find_interval(self, interval_ms: tuple[int, int]) -> RunSummary | None:
        """Return the run that finished last of those for a data interval, without its details."""
        found = self.archive.find_interval(interval_ms)
        return None if found is None else found.summary

    def latest(self, count: int) -> list[RunSummary]:
        """Return the runs that finished last, the last one at the end, without their details."""
        return self.archive.latest(count)[::-1]

    def all_runs(self) -> dict[str, RunSummary]:
        """Return every finished run, in the order in which they finished. It reads the whole ledger."""
        entries = self.archive.all().items()
        return {run_id: found.summary for run_id, found in entries if not found.summary.taken_back_ms}

    def detailed(self, run: RunSummary) -> RunSummary:
        """Return a run with its details; without them if they have expired."""
        return self.archive.detailed(run)

    def with_reset(self, reset: ResetRecord) -> Ledger:
        """Return the ledger after a step of a reset, which ends a continuous run."""
        over = None if self.continuous is None else msgspec.structs.replace(self.continuous, over=True)
        return replace(self, reset=reset, continuous=over)

    def with_continuous(self, run: ContinuousRun) -> Ledger:
        """Return the ledger with a continuous run, which begins or is over; what a reset left is past."""
        return replace(self, continuous=run, reset=None)

    def _is_last(self, run_id: str) -> bool:
        return self.past.last is not None and self.past.last.run_id == run_id

    def is_finished(self, run_id: str) -> bool:
        """Whether a run has finished, and was not taken back."""
        return self.find(run_id) is not None

    def is_taken_back(self, run_id: str) -> bool:
        """Whether a reset took a run back, and it has not finished again."""
        found = self.archive.find(run_id)
        return found is not None and bool(found.summary.taken_back_ms)

    def left(self, topics: Collection[str]) -> dict[str, TopicLeft]:
        """Return for each topic how the newest finished run that read it left it."""
        return {topic: left for topic, left in self.past.left.items() if topic in topics and left.stops}

    def left_at(self, topics: Collection[str]) -> dict[TopicPartition, int]:
        """Return where the newest finished run that read each topic, or the reset after it, left it."""
        if self.reset is not None:
            return {tp: at for tp, at in self.reset.stops.items() if tp.topic in topics}
        return {
            tp: at for topic, left in self.left(topics).items() for tp, at in left.stops_of(topic).items()
        }


def check_run_id(run_id: str) -> None:
    """Refuse a run id that the ledger cannot hold.

    :raises ConfigError: it is empty, too long, or starts with two underscores.
    """
    if not run_id or run_id.startswith(_RESERVED) or len(msgspec.json.encode(run_id)) > _RUN_ID_BYTES:
        raise ConfigError(
            f"run id {run_id[:60]!r} cannot be used",
            fix=f"use 1 to {_RUN_ID_BYTES} bytes that do not start with two underscores",
        )


def lease_record(application_id: str, lease: Lease) -> MetadataRecord:
    """Return the ledger's record of the lease."""
    topic = ProtocolTopics(application_id).ledger
    return MetadataRecord(topic, msgspec.json.encode(lease), LEASE_KEY.encode(), None)


def decode_lease(record: Record) -> Lease | None:
    """Return what a record of the ledger says of the lease; None if it takes it away, or is another record.

    :raises KafkaClientError: another version of this package wrote it.
    """
    value = record.value()
    if record.key() != LEASE_KEY.encode() or value is None:
        return None
    return _decode(value, Lease, record.topic(), record.offset())


def decode_summary(record: Record) -> RunSummary | None:
    """Return what a record of the ledger says of a run; None if it deletes it, or is another record.

    :raises KafkaClientError: no run wrote it, or another version of this package did.
    """
    key, value = record.key(), record.value()
    if not key or key.startswith(_RESERVED.encode()) or value is None:
        return None
    return _decode(value, RunSummary, record.topic(), record.offset())


def read_ledger(  # noqa: PLR0913 - all but two have defaults
    cluster: ClusterPort,
    application_id: str,
    *,
    admin: AdminPort | None = None,
    reader: ReaderPort | None = None,
    wait_ms: int = OPEN_TRANSACTION_TIMEOUT_MS,
    clock: Clock | None = None,
    reading: Callable[[], AbstractContextManager[ReaderPort]] | None = None,
    before: Ledger | None = None,
) -> Ledger:
    """Read an application's ledger; a missing topic is empty.

    :param reader: used instead of a new client, now and when the ledger is asked for single runs.
    :param wait_ms: how long to wait for transactions that hide committed records; 0 takes what is stable.
    :param reading: gives the reader for single runs where that is not ``reader``.
    :param before: as it was read before: its checkpoint is not read again while it is the last one.
    """

    def given_or_new() -> AbstractContextManager[ReaderPort]:
        return closing(cluster.reader(group_id=application_id)) if reader is None else nullcontext(reader)

    source = _Source(
        cluster=cluster,
        application_id=application_id,
        admin=admin,
        reader=reader,
        wait_ms=wait_ms,
        clock=clock or SystemClock(),
        reading=reading or given_or_new,
        before=before or Ledger(),
    )
    return source.read()


class TornCheckpointError(KafkaClientError):
    """The last checkpoint is not whole."""


class _State(NamedTuple):
    """What a checkpoint and the records after it say."""

    checkpoint: Checkpoint
    span: Span | None
    lease: LeaseSeen | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """One look at a ledger."""

    cluster: ClusterPort
    application_id: str
    admin: AdminPort | None
    reader: ReaderPort | None
    wait_ms: int
    clock: Clock
    reading: Callable[[], AbstractContextManager[ReaderPort]]
    before: Ledger

    @property
    def topic(self) -> str:
        return ProtocolTopics(self.application_id).ledger

    def read(self) -> Ledger:
        """Read the end and the checkpoint, or everything.

        :raises KafkaClientError: a record is no ledger's, or another version's, or the checkpoint is lost.
        """
        for _ in range(_READS - 1):
            # A checkpoint that the cleaner took away has a successor, which is read now.
            with suppress(TornCheckpointError):
                return self._from_tail() or self._whole()
        return self._from_tail() or self._whole()

    def _from_tail(self) -> Ledger | None:
        """Read the end and the checkpoint; None if all must be read."""
        last = _TAIL
        content = self._read(last)
        while not content.records and content.first > content.log.start:
            last *= 8
            content = self._read(last)
        if content.first <= content.log.start:
            return self._folded(content)
        span = _checkpoint_span(content.records)
        return None if span is None else self._from_checkpoint(content, span)

    def _whole(self) -> Ledger:
        return self._folded(self._read(None))

    def _read(self, last: int | None) -> LogContent:
        return read_log(
            self.cluster,
            self.topic,
            group_id=self.application_id,
            admin=self.admin,
            reader=self.reader,
            wait_ms=self.wait_ms,
            clock=self.clock,
            last=last,
        )

    def _span(self, content: LogContent) -> LogSpan:
        return LogSpan(
            partition=TopicPartition(self.topic, 0),
            start=content.log.start,
            end=content.stable_end,
            reading=self.reading,
            clock=self.clock,
        )

    def _from_checkpoint(self, content: LogContent, span: Span) -> Ledger | None:
        """Take what a checkpoint says, and the lease after it; None if it is not where it should be."""
        known, final = self.before, content.records[-1]
        seen = _lease_seen(final) if _key(final) == LEASE_KEY else None
        if seen is not None and (known.checkpoint, known.log.topic_id) == (span, content.log.topic_id):
            return replace(
                known,
                lease=seen.lease,
                lease_offset=seen.offset,
                lease_written_ms=seen.written_ms,
                next_offset=content.stable_end if content.complete else -1,
                log=content.log,
            )
        first, end = span
        records = [record for record in content.records if first <= record.offset() < end]
        if first < content.first:
            records = self._span(content).records(first, end)
        found = _last_checkpoint(records)
        if found is None or found[1] != span or found[0].at != end - 1:
            return None
        return self._ledger(content, _State(found[0], span, seen or found[0].lease), entries=None)

    def _folded(self, content: LogContent) -> Ledger:
        entries, state = _fold(content.records, self.topic)
        return self._ledger(content, state, entries=entries)

    def _ledger(self, content: LogContent, state: _State, *, entries: Entries | None) -> Ledger:
        held, lease = state.checkpoint, state.lease
        return Ledger(
            lease=None if lease is None else lease.lease,
            lease_offset=-1 if lease is None else lease.offset,
            lease_written_ms=0 if lease is None else lease.written_ms,
            assignment=held.assignment,
            reset=held.reset,
            continuous=held.continuous,
            own_topics=held.own_topics,
            changelog_ends=held.changelog_ends,
            past=held.past,
            checkpoint=state.span,
            next_offset=content.stable_end if content.complete else -1,
            archive=RunArchive(self._span(content), held.past, entries=entries, read_all=self._entries),
            log=content.log,
        )

    def _entries(self) -> Entries:
        with self.reading() as reader:
            content = replace(self, admin=None, reader=reader, wait_ms=0)._read(None)
        return _fold(content.records, self.topic)[0]


def _checkpoint_span(records: tuple[Record, ...]) -> Span | None:
    """Return where the last record says that the last checkpoint is; None if all must be read."""
    final = records[-1]
    if _key(final) == CHECKPOINT_KEY:
        return final.offset() - pieces_of(_headers(final)), final.offset() + 1
    lease = decode_lease(final)
    if lease is None or lease.checkpoint is None:
        return None
    after = (record for record in records if record.offset() >= lease.checkpoint[1])
    return lease.checkpoint if all(_key(record) == LEASE_KEY for record in after) else None


def _last_checkpoint(records: Sequence[Record]) -> tuple[Checkpoint, Span] | None:
    """Return the last checkpoint among records, and where it is; None if there is none.

    :raises TornCheckpointError: it is not whole.
    """
    values: dict[bytes, bytes | None] = {}
    last: Record | None = None
    content: bytes | None = None
    prefix = CHECKPOINT_KEY.encode()
    for record in records:
        key = record.key() or b""
        if key == prefix:
            # A tombstone, which no run writes, leaves none.
            last, content = record, record.value()
            if content is not None and pieces_of(_headers(record)):
                content = joined(key, _headers(record), values.get)
                if content is None:
                    content = b""
        elif key.startswith(prefix):
            values[key] = record.value()
    if last is None or last.value() is None:
        return None
    if not content:
        raise TornCheckpointError(
            f"{last.topic()}-0@{last.offset()}: pieces of the checkpoint are missing, or others",
            fix="retry; if it stays, something else writes to this topic: stop it, and restore the topic",
            code="TORN_LEDGER",
            retriable_code=True,
        )
    found = _decode(content, Checkpoint, last.topic(), last.offset())
    return found, (last.offset() - pieces_of(_headers(last)), last.offset() + 1)


def _fold(records: Sequence[Record], topic: str) -> tuple[dict[str, Located], _State]:
    """Fold all records: the last checkpoint, and what came after it; without one everything, one by one.

    :raises KafkaClientError: a record is no ledger's, or another version's, or the checkpoint is lost.
    """
    known = _last_checkpoint(records)
    checkpoint, span = known or (Checkpoint(past=PastRuns(), at=-1), None)
    after = -1 if span is None else span[1]
    entries: dict[str, Located] = {}
    changes = _Changes(checkpoint, topic)
    for record in records:
        # A key that is no text is a stranger's; what it says of itself is refused below, with its offset.
        key, value = _key(record), record.value()
        if not key or key.startswith(_RESERVED):
            if record.offset() >= after:
                changes.fold(record)
            continue
        entries.pop(key, None)
        if value is not None:
            entries[key] = Located(record.offset(), _decode(value, RunSummary, topic, record.offset()))
        if record.offset() >= after:
            changes.fold_run(entries.get(key))
    if span is None:
        _refuse_lost_checkpoint(entries, changes.lease, topic)
    if changes.others:
        changes.recount(entries)
    return entries, _State(changes.state, None if changes.others else span, changes.lease)


class _Changes:
    """Folds what earlier versions wrote, and leases, on a checkpoint.

    :ivar others: whether anything but leases came after the checkpoint.
    """

    def __init__(self, checkpoint: Checkpoint, topic: str) -> None:
        self.state = checkpoint
        self.lease = checkpoint.lease
        self.others = False
        self._topic = topic

    def fold(self, record: Record) -> None:
        """Fold a record with a reserved key."""
        key = _key(record)
        if key == LEASE_KEY:
            self.lease = _lease_seen(record)
            return
        self.others = True
        if key == ASSIGNMENT_KEY:
            self._set(assignment=self._of(record, Assignment))
        elif key == RESET_KEY:
            over = self.state.continuous and msgspec.structs.replace(self.state.continuous, over=True)
            self._set(reset=self._of(record, ResetRecord), continuous=over)
        elif key == CONTINUOUS_KEY:
            # Also when it says that the run is over: it was written anew by the batch after it.
            self._set(continuous=self._of(record, ContinuousRun), reset=None)
        elif key == TOPICS_KEY:
            self._set(own_topics=self._of(record, OwnTopics))
        elif key == CHANGELOGS_KEY:
            self._set(changelog_ends=self._of(record, ChangelogEnds))

    def fold_run(self, found: Located | None) -> None:
        """Fold the entry of a run, None if it was deleted."""
        self.others = True
        if found is not None and not found.summary.taken_back_ms:
            self._set(reset=None)

    def recount(self, entries: Entries) -> None:
        """Take what is known of past runs from all entries, where it is not as the checkpoint says."""
        known = self.state.past
        finished = {run_id: each for run_id, each in entries.items() if not each.summary.taken_back_ms}
        gone = [each.summary for each in entries.values() if each.summary.taken_back_ms]
        past = past_of({r: each for r, each in finished.items() if each.offset > known.last_at}, gone)
        left = left_without({**past.left, **known.left}, {run.run_id for run in gone}, ())
        for topic, entry in past.left.items():
            if entry.stops:
                left[topic] = entry
        last = next(reversed(finished.values()), None)
        past = msgspec.structs.replace(
            known,
            left=left,
            finished=len(finished),
            last=None if last is None else entry_of(last.summary),
            last_at=-1 if last is None else last.offset,
            chained_from=max((each.offset + 1 for each in entries.values()), default=0),
            taken_back=past.taken_back,
        )
        self._set(past=past)

    def _set(self, **changes: object) -> None:
        self.state = msgspec.structs.replace(self.state, **changes)

    def _of(self, record: Record, kind: type[_T]) -> _T | None:
        value = record.value()
        return None if value is None else _decode(value, kind, self._topic, record.offset())


def _refuse_lost_checkpoint(entries: Entries, lease: LeaseSeen | None, topic: str) -> None:
    """Refuse a ledger that has no checkpoint and whose entries, or lease, need one.

    :raises KafkaClientError: it is such a ledger.
    """
    alone = any(each.summary.without_details for each in entries.values())
    if alone or (lease is not None and lease.lease.checkpoint is not None):
        raise KafkaClientError(
            f"the checkpoint of {topic} is gone: where earlier runs have left their topics is not known",
            fix="something else writes to this topic: stop it, and restore the topic",
            code="BAD_LEDGER",
        )


def _lease_seen(record: Record) -> LeaseSeen | None:
    lease = decode_lease(record)
    if lease is None:
        return None
    return LeaseSeen(lease=lease, offset=record.offset(), written_ms=record.timestamp()[1])


def _key(record: Record) -> str:
    return (record.key() or b"").decode(errors="replace")


def _headers(record: Record) -> dict[str, bytes]:
    return {name: value for name, value in record.headers() or () if value is not None}


def _decode(value: bytes, kind: type[_T], topic: str, offset: int) -> _T:
    try:
        return msgspec.json.decode(value, type=kind)
    except msgspec.MsgspecError as error:
        raise KafkaClientError(
            f"{topic}-0@{offset} is not a ledger record that this version reads: {error}",
            fix="install the airflow_kstreams version that wrote it",
            code="BAD_LEDGER",
        ) from None
