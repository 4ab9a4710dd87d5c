"""Reads the status of an application from its topics, for people; claims nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.evidence.known_applications import refuse_unknown_application
from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.expand.processor_plan import ProcessorPlan, expansions
from airflow_kstreams.batch.growing.grown_groups import BlockedPartition, blocked_partitions
from airflow_kstreams.batch.inspect.standing import Standing, standing_of
from airflow_kstreams.batch.inspect.tables.listed_files import WaitingRows, waiting_of
from airflow_kstreams.batch.ledger.facts import ContinuousRun, GroupedPartitions, Lease, ResetRecord
from airflow_kstreams.batch.ledger.history import Histories
from airflow_kstreams.batch.ledger.ledger import Ledger, read_ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata, TaskReport
from airflow_kstreams.batch.protocol.offsets.parked import Parked
from airflow_kstreams.batch.protocol.slice.metadata import MetadataView, RunState
from airflow_kstreams.batch.protocol.slice.metadata_records import (
    H_GENERATION,
    H_KIND,
    H_RUN,
    H_START,
    KIND_PIECE,
    KIND_REPORTED,
)
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import partitions_of
from airflow_kstreams.batch.run.begin.parked_before import parked_left, parking_partitions
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.finish import task_metadata
from airflow_kstreams.streams.errors import AccessDeniedError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import (
    AdminPort,
    Clock,
    ClusterPort,
    CommittedOffset,
    Record,
    TopicPartition,
)
from airflow_kstreams.streams.settings import ApplicationSettings

_LAST_RUNS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """State of an application.

    :param state: state of the application's batch runs, by the metadata topic.
    :param slice: the running slice, or the last finished one; None when there is none.
    :param continuous: the continuous run that was started last, if nothing else has run since.
    :param committed: committed offset of every source partition of the slice.
    :param lease: the lease that was not released; whether its owner is alive, one look cannot say.
    :param lease_renewed_ms: time at which the lease was renewed last, epoch milliseconds by its owner's
        clock; 0 without a lease.
    :param runs: the last finished runs, oldest first, without their details.
    :param metadata: the metadata topic's records as readable lines, in log order.
    :param taken_back: runs that a reset took back and that have not finished again, the last few.
    :param reset: the last reset; None when a run has finished since, or there never was one.
    :param positions: partition -> the offset at which the next run would start there: the committed offset,
        or the one that the ledger remembers; only where one is known.
    :param ends: last stable offset of these partitions, as far as they exist.
    :param parked: records that the tasks have parked as of their last commits, open transactions left out.
    :param grouped: subtopology id -> the partition groups that state depends on, as the last begin found
        them.
    :param counts: topic -> its partition count, for the topics of ``positions`` that exist.
    :param expansions: processors whose state is being copied; None if this user may not see them.
    :param standing: where the run stands that is under way, or whose begin failed; None if there is none.
    :param waiting: rows that the run under way has listed for tables and that are in no snapshot yet; None if
        this user may not read the list.
    :param not_seen: what of that list could not be read, and why.
    :param histories: what happened to the last few runs that have not finished.
    """

    application_id: str
    state: RunState
    slice: Slice | None = None
    continuous: ContinuousRun | None = None
    committed: Mapping[TopicPartition, CommittedOffset] = field(default_factory=dict)
    lease: Lease | None = None
    lease_renewed_ms: int = 0
    runs: tuple[RunSummary, ...] = ()
    metadata: tuple[str, ...] = ()
    taken_back: tuple[RunSummary, ...] = ()
    reset: ResetRecord | None = None
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    parked: Parked = field(default_factory=dict)
    grouped: Mapping[int, GroupedPartitions] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    expansions: tuple[ProcessorPlan, ...] | None = ()
    standing: Standing | None = None
    waiting: tuple[WaitingRows, ...] | None = ()
    not_seen: tuple[str, ...] = ()
    histories: Histories = field(default_factory=Histories)

    @property
    def blocked(self) -> list[BlockedPartition]:
        """Partitions that wait for their ancestors, and those that wait no longer and that the next run
        reads.
        """
        return blocked_partitions(self.grouped, self.positions.get)

    @property
    def tasks(self) -> tuple[TaskReport, ...]:
        """The reports that tasks of the slice, or of the continuous run, have committed so far, in order."""
        run = self.slice if self.continuous is None else self.continuous.slice
        if run is None:
            return ()
        return tuple(committed.report() for committed in task_metadata(run, self.committed).values())

    @property
    def parked_due_ms(self) -> int | None:
        """Time at which the first parked record is due, epoch milliseconds; None when none is, or it is not
        known.
        """
        due = [OffsetMetadata.decode(offset.metadata).parked_due_ms for offset in self.committed.values()]
        return min((each for each in due if each is not None), default=None)

    @property
    def lag(self) -> dict[TopicPartition, int]:
        """Number of offsets that the next run would find, by partition."""
        return {tp: max(0, end - self.positions[tp]) for tp, end in self.ends.items()}


def read_status(cluster: ClusterPort, application_id: str, *, clock: Clock | None = None) -> RunStatus:
    """Read an application's status; an application that never ran is NEW.

    :raises ConfigError: the cluster has nothing of an application with this id.
    """
    clock = clock or SystemClock()
    with closing(cluster.admin()) as admin, closing(cluster.reader(group_id=application_id)) as logs:
        ledger = read_ledger(cluster, application_id, admin=admin, reader=logs, wait_ms=0, clock=clock)
        metadata = MetadataView(cluster, application_id, clock=clock)
        facts = RunFacts(application_id, ledger, metadata.read(admin=admin, reader=logs, wait_ms=0))
        runs = tuple(ledger.latest(_LAST_RUNS))
        committed: Mapping[TopicPartition, CommittedOffset] = {}
        parked: Parked = {}
        last = facts.last_work
        positions = ledger.stops
        if last is not None:
            partitions = partitions_of(last)
            positions |= {part.topic_partition: part.start_offset for part in last.inputs}
        else:
            partitions = sorted(positions)
            if not (runs or partitions):
                refuse_unknown_application(admin, application_id)
        if partitions:
            # The command does not wait for a task's open transaction to commit its offsets.
            parking = parking_partitions(ledger.assignment, application_id)
            with closing(cluster.reader(group_id=application_id, isolation="read_uncommitted")) as reader:
                offsets = reader.committed([*partitions, *({*parking} - {*partitions})])
            committed = {tp: offset for tp, offset in offsets.items() if tp in partitions}
            parked = parked_left(facts, offsets)
            positions |= {tp: offset.offset for tp, offset in committed.items()}
        counts, ends = _counts_and_ends(admin, positions)
        recorded = ledger.assignment.subtopologies
        more = () if last is None else _expansions(cluster, last.plan.topology, ledger, clock)
        histories, listed = facts.histories, waiting_of(cluster, facts, clock)
    return RunStatus(
        application_id=application_id,
        state=facts.state,
        slice=facts.metadata.slice,
        continuous=ledger.current_continuous,
        committed=committed,
        lease=ledger.held_lease,
        lease_renewed_ms=ledger.lease_written_ms if ledger.held_lease is not None else 0,
        runs=runs,
        metadata=tuple(_line(record) for record in metadata.content.records),
        taken_back=tuple(ledger.taken_back.values()),
        reset=ledger.reset,
        positions=positions,
        ends=ends,
        parked=parked,
        grouped={int(sub): entry for sub, entry in recorded.items() if entry.changelogs},
        counts=counts,
        expansions=more,
        standing=standing_of(facts, histories, clock.now_ms()),
        waiting=listed.waiting,
        not_seen=listed.not_seen,
        histories=histories,
    )


def _expansions(
    cluster: ClusterPort, plan: TopologyPlan, ledger: Ledger, clock: Clock
) -> tuple[ProcessorPlan, ...] | None:
    """Return the processors whose state is being copied, None where this user may not see them."""
    settings = ApplicationSettings.parse(plan.application_id, {})
    try:
        with closing(CoordinatorSession(cluster, settings, clock=clock)) as session:
            return tuple(expansions(session, plan, ledger))
    except AccessDeniedError:
        return None


def _counts_and_ends(
    admin: AdminPort, partitions: Collection[TopicPartition]
) -> tuple[dict[str, int], dict[TopicPartition, int]]:
    """Return the partition count of each topic, and the last stable offset of each partition that exists."""
    found = admin.describe_topics({tp.topic for tp in partitions})
    counts = {topic: description.partitions for topic, description in found.items()}
    there = [tp for tp in partitions if tp.partition < counts.get(tp.topic, 0)]
    return counts, admin.end_offsets(there, isolation="read_committed") if there else {}


def _line(record: Record) -> str:
    """Return a record as ``<key:value>`` in the spec's notation, with the content of our headers."""
    key = (record.key() or b"").decode(errors="replace")
    value = record.value()
    headers = dict(record.headers() or ())
    shown = "null" if value is None else value.decode(errors="replace")
    if value is not None and headers.get(H_KIND) in (KIND_PIECE, KIND_REPORTED):
        shown = counted(len(value), "byte")
    text = f"{record.offset():>6}  <{key}:{shown}>"
    known = {
        name: (headers.get(name) or b"").decode(errors="replace") for name in (H_KIND, H_RUN, H_GENERATION)
    }
    if not known[H_KIND]:
        return f"{text}  {'tombstone' if value is None else 'without headers'}"
    if headers.get(H_KIND) == KIND_REPORTED:
        return f"{text}  {known[H_KIND]}"
    start = f", from {(headers[H_START] or b'').decode(errors='replace')}" if H_START in headers else ""
    return f"{text}  {known[H_KIND]} of run {known[H_RUN]}, generation {known[H_GENERATION]}{start}"
