"""Reads the run ledger ``<app>-runs``: the entry of every finished run, and the facts that the next run must
know.

It is compacted and has one partition. Key = run id, value = the entry as JSON; nothing deletes one. A reset
that takes back what a run processed says so in that run's entry. Reserved keys start with two underscores:
``__lease__`` holds the lease, ``__checkpoint__`` all that the next run needs (partition groups, where each
topic was left, ids of the engine's own topics, where changelogs ended, the last reset, the last continuous
run, the root of the index), ``__index__/<digits>`` pages of the index, ``__details__/<slot>`` what entries
leave out, ``__history__`` what happened to runs that have not finished (JSON of
:class:`~airflow_kstreams.batch.ledger.history.Histories`).

Rule: only the holder of the coordinator's transactional id writes, and each of its transactions ends with a
checkpoint, a lease, or both in this order. The checkpoint holds everything as it is after the transaction,
and each lease says where the last checkpoint is, and both where the last history is. So the last record of
the log is enough to find everything: it is a checkpoint, or a lease that names one, and between that
checkpoint and the end lie leases and histories only.

Reading: the last few records, more until one is visible; then the checkpoint, if it was not among them.
Anything else at the end (another program wrote it), or no checkpoint where one should be, means that all of
the log is read: for the last checkpoint that is whole, the lease after it, and every entry.

Compaction keeps each key's last record and moves none, so the last checkpoint, the last lease, and the
entries, pages and details that they point to keep their offsets. If a new checkpoint is written and the
cleaner removes the old one during a read, the reader finds the old one torn by its hash, and begins
again from the new end. That is sound: a reader decides by the ledger as it was at some moment after it began
to read.

Crash argument: the coordinator writes entry, details, pages, checkpoint and lease in one transaction with
what they describe (markers, offsets), so readers see all or nothing of it. It knows their offsets before it
writes them, because nothing else writes after its claim. Should another program do so all the same, the
checkpoint's offset differs from the one in its own value: the offsets of all that was written with it are
wrong, too. Then everything is read, until the next checkpoint is written, with all of the index.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, field, replace

import msgspec

from airflow_kstreams.batch.clock import SystemClock
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
    ResetStage,
)
from airflow_kstreams.batch.ledger.fold import (
    LEASE_KEY,
    FoldedLedger,
    Span,
    TornCheckpointError,
    checkpoint_span,
    fold_ledger,
    key_of,
    last_checkpoint,
    lease_seen,
)
from airflow_kstreams.batch.ledger.history import Histories, RunHistory
from airflow_kstreams.batch.ledger.past_runs import PastRuns, TopicLeft
from airflow_kstreams.batch.ledger.run_search import Everything, LogSpan, RunArchive
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.ledger.salvage import Salvage, salvage
from airflow_kstreams.batch.protocol.logs.log_read import (
    OPEN_TRANSACTION_TIMEOUT_MS,
    LogContent,
    LogFacts,
    read_log,
)
from airflow_kstreams.batch.protocol.offsets.parked import Parked
from airflow_kstreams.batch.protocol.slice.slice import partition_named
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, ReaderPort, TopicPartition

#: Number of records at the log's end that a reader takes first: about what a run of a small application
#: writes.
_TAIL = 16
_READS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The content of the ledger.

    :param lease: the last lease, whether renewed, abandoned or released; None when there never was one, or a
        reset has taken it away.
    :param assignment: the partition groups that state depends on.
    :param reset: the last reset; None if a run has finished or a continuous run has begun since, and when
        there was no reset.
    :param continuous: the continuous run that was started last; None when there never was one.
    :param lease_offset: offset of the lease's record, which every renewal moves; -1 without a lease.
    :param lease_written_ms: time at which that record was written, epoch milliseconds by the owner's or the
        broker's clock: for display, never compared with another clock; 0 without a lease.
    :param own_topics: names and ids of the topics that are the application's own; None when no run has begun.
    :param changelog_ends: ends of the changelogs when a run with records last finished; None when no such run
        has finished.
    :param accepted: ``topic-partition`` -> the offset from which ``reset --accept`` lets reading go on, until
        a run that reads the partition finishes.
    :param tables: name of a table's sink -> the last commit to it.
    :param dropped: the last few dropped runs whose rows are in tables and were not taken back.
    :param past: summary of the earlier runs: their number, the last one, the offsets at which they left each
        topic, the index.
    :param checkpoint: offsets of the last checkpoint, ``[from, to)``; None if there is none, or if a record
        that is no lease follows it.
    :param history_at: offset of the record with the histories of runs that have not finished; -1 without one.
    :param next_offset: offset that the next record will get if this application writes it; -1 if open
        transactions hide the log's end.
    :param archive: finds single runs in the log. Like ``log`` it is left out when two ledgers are compared.
    :param log: facts of the log that was read: its start, its topic id.
    """

    lease: Lease | None = None
    assignment: Assignment = NOTHING_RECORDED
    reset: ResetRecord | None = None
    continuous: ContinuousRun | None = None
    lease_offset: int = -1
    lease_written_ms: int = 0
    own_topics: OwnTopics | None = None
    changelog_ends: ChangelogEnds | None = None
    accepted: Mapping[TopicPartition, Acceptance] = field(default_factory=dict)
    tables: Mapping[str, LandedTable] = field(default_factory=dict)
    dropped: tuple[DroppedRun, ...] = ()
    past: PastRuns = field(default=PastRuns())
    checkpoint: Span | None = None
    history_at: int = -1
    next_offset: int = field(default=-1, compare=False)
    archive: RunArchive = field(
        default=RunArchive(None, PastRuns(), everything=Everything({})), compare=False, repr=False
    )
    log: LogFacts = field(default=LogFacts(), compare=False)

    @property
    def unwritten(self) -> bool:
        """Whether no run has begun yet, as far as the ledger says; attempts to begin one may have failed."""
        return replace(self, checkpoint=None, history_at=-1) == Ledger()

    @property
    def held_lease(self) -> Lease | None:
        """The lease that was not released. Its owner may be at work, or dead."""
        return self.lease if self.lease is not None and self.lease.expires_ms else None

    @property
    def stops(self) -> dict[TopicPartition, int]:
        """The offset at which the last run or reset left each partition; empty after a continuous run, whose
        progress is in the committed offsets alone.
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
        """Topic ids of the run, or reset, that came last, as far as the ledger knows them."""
        if self.current_continuous is not None:
            return self.current_continuous.plan.topic_ids
        if self.reset is not None:
            return self.reset.topic_ids
        return {
            topic: left.id for topic, left in self.past.left.items() if left.id and self._is_last(left.run_id)
        }

    @property
    def unfinished_reset(self) -> ResetRecord | None:
        """The reset that is under way, or was interrupted."""
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
        """Return the entry of the run that finished last, without its details."""
        return self.past.last

    def find(self, run_id: str) -> RunSummary | None:
        """Return the entry of a run that has finished and was not taken back, without its details."""
        found = self.archive.find(run_id)
        return None if found is None or found.summary.taken_back_ms else found.summary

    def find_interval(self, interval_ms: tuple[int, int]) -> RunSummary | None:
        """Return the entry of the run that finished last for a data interval, without its details."""
        found = self.archive.find_interval(interval_ms)
        return None if found is None else found.summary

    def parked_since(self, run: RunSummary) -> Parked:
        """Return the records that are parked as of the last finished run, if some of them may stem from
        an earlier run; nothing once all that the earlier run left parked is processed.

        :param run: the earlier run, or the last one, as :meth:`find` gives it.
        """
        if not run.parked or not self.past.parked:
            return {}
        found = self.archive.find(run.run_id)
        return {} if found is not None and found.offset <= self.past.none_parked_at else self.past.parked

    def latest(self, count: int) -> list[RunSummary]:
        """Return the runs that finished last, the last one at the end, without their details."""
        return self.archive.latest(count)[::-1]

    def before(self, run: RunSummary) -> Iterator[RunSummary]:
        """Yield the runs that finished before one, the last one first, without their details."""
        return self.archive.before(run)

    def newest_first(self, before: RunSummary | None = None) -> Iterator[RunSummary]:
        """Yield the finished runs, the last one first, without their details and with bounded memory,
        however many there are.

        :param before: a run to begin behind; None to begin with the run that finished last.
        """
        return self.archive.newest_first(before)

    def all_runs(self) -> dict[str, RunSummary]:
        """Return every finished run, in the order in which they finished. It reads the whole ledger."""
        entries = self.archive.all().items()
        return {run_id: found.summary for run_id, found in entries if not found.summary.taken_back_ms}

    def detailed(self, run: RunSummary) -> RunSummary:
        """Return a run's entry together with its details; without them if they have expired."""
        return self.archive.detailed(run)

    def histories(self) -> Histories:
        """Return what happened to the last few runs that have not finished."""
        return Histories() if self.history_at < 0 else self.archive.histories(self.history_at)

    def history(self, run_id: str) -> RunHistory | None:
        """Return what happened to a run, finished or not; None if nothing of it is kept any more."""
        done = self.find(run_id)
        return self.histories().of(run_id) if done is None else self.detailed(done).history

    def with_reset(self, reset: ResetRecord) -> Ledger:
        """Return the ledger after a step of a reset, which ends a continuous run."""
        over = None if self.continuous is None else msgspec.structs.replace(self.continuous, over=True)
        return replace(self, reset=reset, continuous=over, accepted={})

    def with_continuous(self, run: ContinuousRun) -> Ledger:
        """Return the ledger with a continuous run, which begins or is over; the record of a reset goes."""
        return replace(self, continuous=run, reset=None, accepted={})

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
        """Return by topic the stop offsets of the newest finished run that read it."""
        return {topic: left for topic, left in self.past.left.items() if topic in topics and left.stops}

    def left_at(self, topics: Collection[str]) -> dict[TopicPartition, int]:
        """Return by partition the offset at which the newest finished run, or the reset after it, left it."""
        if self.reset is not None:
            return {tp: at for tp, at in self.reset.stops.items() if tp.topic in topics}
        return {
            tp: at for topic, left in self.left(topics).items() for tp, at in left.stops_of(topic).items()
        }


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
    """Read an application's ledger; a topic that does not exist gives an empty ledger.

    :param reader: a reader to use instead of a new client, now and for later look-ups of single runs.
    :param wait_ms: milliseconds to wait for open transactions that hide committed records; 0 takes what is
        visible already.
    :param reading: opens a reader for later look-ups of single runs, when that is another one than
        ``reader``.
    :param before: the ledger from an earlier read; its checkpoint is not read again while it is the last one.
    """

    def given_or_new() -> AbstractContextManager[ReaderPort]:
        return (
            closing(cluster.reader(group_id=application_id, small=True))
            if reader is None
            else nullcontext(reader)
        )

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


def salvage_ledger(
    cluster: ClusterPort, application_id: str, *, admin: AdminPort, reader: ReaderPort, clock: Clock
) -> tuple[Ledger, Salvage]:
    """Read all of a ledger whose records cannot all be read, and return what is known of it.

    :param reader: reader of the ledger, now and for later look-ups; its earlier assignment is lost.
    :raises ConfigError: no record belongs to a ledger.
    """
    source = _Source(
        cluster=cluster,
        application_id=application_id,
        admin=admin,
        reader=reader,
        wait_ms=OPEN_TRANSACTION_TIMEOUT_MS,
        clock=clock,
        reading=lambda: nullcontext(reader),
        before=Ledger(),
    )
    return source.salvaged()


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

    def salvaged(self) -> tuple[Ledger, Salvage]:
        """Read everything that can be read."""
        content = self._read(None)
        found = salvage(content.records, self._span(content), self.topic)
        return self._ledger(content, found.state, everything=found.everything), found

    def _from_tail(self) -> Ledger | None:
        """Read the end and the checkpoint; None if all must be read."""
        last = _TAIL
        content = self._read(last)
        while not content.records and content.first > content.log.start:
            last *= 8
            content = self._read(last)
        if content.first <= content.log.start:
            return self._folded(content)
        span = checkpoint_span(content.records)
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
        """Return the ledger that a checkpoint and the lease after it give; None if it is not in its place."""
        known, final = self.before, content.records[-1]
        seen = lease_seen(final) if key_of(final) == LEASE_KEY else None
        if seen is not None and (known.checkpoint, known.log.topic_id) == (span, content.log.topic_id):
            return replace(
                known,
                lease=seen.lease,
                lease_offset=seen.offset,
                lease_written_ms=seen.written_ms,
                history_at=seen.lease.history,
                archive=known.archive.grown(self._span(content), content.records),
                next_offset=content.stable_end if content.complete else -1,
                log=content.log,
            )
        first, end = span
        records = [record for record in content.records if first <= record.offset() < end]
        if first < content.first:
            records = self._span(content).records(first, end)
        found = last_checkpoint(records)
        if found is None or found[1] != span or found[0].at != end - 1:
            return None
        return self._ledger(content, FoldedLedger(found[0], span, seen or found[0].lease), everything=None)

    def _folded(self, content: LogContent) -> Ledger:
        everything, state = fold_ledger(content.records, self.topic)
        return self._ledger(content, state, everything=everything)

    def _ledger(self, content: LogContent, state: FoldedLedger, *, everything: Everything | None) -> Ledger:
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
            accepted={partition_named(name): each for name, each in held.accepted.items()},
            tables=held.tables,
            dropped=held.dropped,
            past=held.past,
            checkpoint=state.span,
            history_at=state.history_at,
            next_offset=content.stable_end if content.complete else -1,
            archive=RunArchive(
                self._span(content),
                held.past,
                everything=everything,
                read_all=self._everything,
                tail=content.records,
            ),
            log=content.log,
        )

    def _everything(self) -> Everything:
        with self.reading() as reader:
            content = replace(self, admin=None, reader=reader, wait_ms=0)._read(None)
        return fold_ledger(content.records, self.topic)[0]
