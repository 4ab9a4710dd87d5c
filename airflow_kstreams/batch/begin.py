"""Builds a new slice: checks, fences, freezes. Nothing here writes to the protocol's topics.

Order and why: (1) topics first, so that a missing one changes nothing; (2) fence the previous run's
transactional ids, so that the offsets read next cannot move; (3) committed offsets, stable; (4) log bounds;
(5) loss checks; (6) freeze. What happens in Kafka after (4) belongs to the next run.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from airflow_kstreams.batch.assignment import AskGroups, next_assignment
from airflow_kstreams.batch.data_loss import Loss, cut_off, data_loss, deleted
from airflow_kstreams.batch.fence import fence
from airflow_kstreams.batch.known import Known, known_now, recall
from airflow_kstreams.batch.leaders import written_topics
from airflow_kstreams.batch.ledger import Ledger
from airflow_kstreams.batch.metadata import Folded
from airflow_kstreams.batch.metadata_records import check_keys, stop_hash
from airflow_kstreams.batch.model import Assignment, FrozenPartition, RunPlan, RunState, Slice
from airflow_kstreams.batch.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.offsets import (
    POSITION_LOST,
    any_record,
    find_losses,
    find_vanished,
    freeze_inputs,
    log_bounds,
    start_of,
)
from airflow_kstreams.batch.open_transactions import warnings_of
from airflow_kstreams.batch.session import CoordinatorSession
from airflow_kstreams.batch.topics import SourceTopics, ensure_topics
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import Clock, CommittedOffset, TopicDescription, TopicPartition
from airflow_kstreams.streams.reset_command import drop_slice_command
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.plan import TopologyPlan

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSlice:
    """A slice that is ready to be written.

    :param slice: the slice.
    :param offsets: what to commit in the same transaction: all stops when the slice is empty, else the starts
        of intermediate partitions that tasks could not know.
    :param assignment: the partition groups to record in the same transaction; None when they are recorded
        already, or no task will run.
    """

    slice: Slice
    offsets: Mapping[TopicPartition, CommittedOffset]
    assignment: Assignment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRequest:
    """What to build a slice for.

    :param generation: 1 when a driver begins it, 0 when it waits for its first driver.
    :param groups: asks the user's own partition grouper; None when the plan has none.
    :param interval_ms: the data interval of the run, epoch milliseconds; None if it has none.
    """

    run_id: str
    plan: TopologyPlan
    generation: int
    groups: AskGroups | None = None
    interval_ms: tuple[int, int] | None = None


def build_slice(
    session: CoordinatorSession,
    settings: ApplicationSettings,
    clock: Clock,
    *,
    request: SliceRequest,
    folded: Folded,
    ledger: Ledger,
) -> NewSlice:
    """Freeze a new slice.

    :param folded: state NEW or FINISHED, or a foreign writer's RUNNING, whose stop offsets are then kept.
    :raises TopologyError: topics are missing or do not fit.
    :raises DataLossError: what the new slice would start at is gone.
    """
    plan = request.plan
    known = recall(plan, folded, ledger)
    topics = ensure_topics(
        session.admin,
        plan,
        settings,
        groups=request.groups,
        recorded=ledger.assignment,
        refuse_loss=lambda found: refuse_vanished(session, request, known, found),
    )
    check_keys(plan, topics.partitions)
    partitions = [TopicPartition(topic, n) for topic in plan.sources for n in range(topics.partitions[topic])]
    fence_earlier(session, settings, folded, ledger, known, topics, plan)
    known = known_now(known, committed_offsets(session, partitions), plan, topics.topic_ids)
    bounds = log_bounds(session.admin, partitions, settle_ms=settings.settle_ms, clock=clock)
    refuse_losses(find_losses(bounds, known, topics.topic_ids), request)
    intermediates = set(plan.intermediates)
    inputs = freeze_inputs(
        {tp: log_of for tp, log_of in bounds.items() if tp.topic not in intermediates}, known, settings
    )
    if folded.state is RunState.RUNNING:
        inputs = _with_foreign_stops(inputs, folded, known, request)
    spans = {part.topic_partition: (part.start_offset, part.stop_offset) for part in inputs}
    spans |= {
        tp: (start_of(tp, log_of, known, settings), log_of.stable)
        for tp, log_of in bounds.items()
        if tp.topic in intermediates
    }
    empty = not _any_record(session, spans, clock, request)
    # The ends are as good as the starts when nothing but markers and aborted records lies between them.
    begun = {tp: max(start, stop) if empty else start for tp, (start, stop) in spans.items()}
    held = {tp: (log_of.stable, log_of.high) for tp, log_of in bounds.items() if log_of.stable < log_of.high}
    warnings = warnings_of(session.cluster, held, group_id=plan.application_id, clock=clock)
    for warning in (warnings := (*warnings, *_expired(known, begun))):
        log.warning("%s", warning)
    slice_ = Slice(
        run_id=request.run_id,
        generation=request.generation,
        plan=RunPlan(
            topology=plan,
            partitions=dict(topics.partitions),
            topic_ids=dict(topics.topic_ids),
            tasks={str(sub): count for sub, count in topics.tasks.items()},
            stop_hash=stop_hash(inputs),
            transactional_ids=task_transactional_ids(topics.tasks, settings),
            begun_ms=clock.now_ms(),
            empty=empty,
            groups={str(sub): entry.groups for sub, entry in topics.grouped.items() if entry.groups},
            intermediate_starts={str(tp): at for tp, at in begun.items() if tp.topic in intermediates},
            warnings=warnings,
            interval_ms=request.interval_ms,
        ),
        inputs=inputs,
    )
    assignment = None if empty else next_assignment(ledger.assignment, topics.grouped, run_id=request.run_id)
    ours = OffsetMetadata(run_id=request.run_id)
    offsets = {
        tp: CommittedOffset(at, ours.at_times(known.times_of(tp)).encode()) for tp, at in begun.items()
    }
    return NewSlice(slice=slice_, offsets=offsets, assignment=assignment)


def task_transactional_ids(tasks: Mapping[int, int], settings: ApplicationSettings) -> tuple[str, ...]:
    """Return the transactional ids that tasks use: ``<app>-<subtopology>_<group>``.

    :param tasks: number of tasks per subtopology id.
    """
    return tuple(
        f"{settings.application_id}-{sub}_{group}" for sub, count in tasks.items() for group in range(count)
    )


def _with_foreign_stops(
    inputs: tuple[FrozenPartition, ...], folded: Folded, known: Known, request: SliceRequest
) -> tuple[FrozenPartition, ...]:
    """Keep the stop offsets of a run that another writer began in the spec's bare format.

    A partition without one came after that run had begun, and enters the next. One whose committed offset
    lies beyond its stop is done, by whomever.

    :raises DataLossError: records before a stop are gone, or its partition is.
    """
    kept: list[FrozenPartition] = []
    drop, run = drop_slice_command(request.plan.application_id), "the run that is under way"
    partitions = {part.topic_partition for part in inputs}
    topics = {part.topic for part in inputs}
    losses = [
        Loss(
            partitions=(),
            text=f"{tp}: {run} stops at {stop}, but there is no such partition "
            "(the first one has the number 0)",
            advice="this drops its slice",
            first=(drop,),
        )
        for tp, stop in sorted(folded.foreign_stops.items())
        if tp.topic in topics and tp not in partitions
    ]
    for part in inputs:
        tp = part.topic_partition
        stop = folded.foreign_stops.get(tp, part.start_offset)
        if stop > part.stop_offset:
            span = (part.start_offset, stop)
            losses.append(cut_off(tp, span=span, log_end=part.stop_offset, run=run, drop=drop))
        committed = known.committed.get(tp)
        stop = max(stop, committed.offset if committed is not None else 0)
        start = min(part.start_offset, stop)
        kept.append(
            FrozenPartition(topic=part.topic, partition=part.partition, start_offset=start, stop_offset=stop)
        )
    refuse_losses(losses, request)
    return tuple(kept)


def fence_earlier(
    session: CoordinatorSession,
    settings: ApplicationSettings,
    folded: Folded,
    ledger: Ledger,
    known: Known,
    topics: SourceTopics,
    plan: TopologyPlan,
) -> None:
    """Fence the tasks of the last run, so that the offsets read next cannot move.

    :raises KafkaClientError: the broker did not answer.
    """
    ids = _earlier_ids(settings, folded, ledger, known, topics)
    fence(session.cluster, ids, admin=session.admin, topics=written_topics(plan, settings))


def _earlier_ids(
    settings: ApplicationSettings, folded: Folded, ledger: Ledger, known: Known, topics: SourceTopics
) -> Sequence[str]:
    """Return the transactional ids of the last run's tasks.

    The marker of that run may be gone (stop offsets deleted) or another writer's; the groups that the ledger
    records tell the ids, too. When not even they are there, although something was read, the tasks are taken
    to be those of the new slice.
    """
    if ledger.switched is not None:
        return ledger.switched.plan.transactional_ids
    if folded.slice is not None:
        return () if folded.slice.plan.empty else folded.slice.plan.transactional_ids
    if ledger.assignment is not None:
        recorded = ledger.assignment.subtopologies
        return task_transactional_ids(
            {int(sub): len(entry.by_group) for sub, entry in recorded.items()}, settings
        )
    if known.read or folded.state is RunState.RUNNING:
        return task_transactional_ids(topics.tasks, settings)
    return ()


def committed_offsets(
    session: CoordinatorSession, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, CommittedOffset]:
    """Return the group's stable committed offsets."""
    with session.reading:
        return session.reader.committed(partitions)


def refuse_losses(losses: Sequence[Loss], request: SliceRequest) -> None:
    """Refuse to begin if anything is lost.

    :raises DataLossError: something is.
    """
    if losses:
        raise data_loss(losses, request.plan.application_id, run_id=request.run_id)


def refuse_vanished(
    session: CoordinatorSession, request: SliceRequest, known: Known, found: Mapping[str, TopicDescription]
) -> None:
    """Refuse to go on without topics and partitions that runs have read."""
    topics = {*request.plan.sources} - {*request.plan.repartition_topics}
    losses = find_vanished(topics, found, known)
    if losses:
        # Only now it matters what a person accepted.
        there = {tp for loss in losses for tp in loss.partitions if tp.topic in found}
        losses = find_vanished(
            topics, found, dataclasses.replace(known, committed=committed_offsets(session, there))
        )
    refuse_losses(losses, request)


def _any_record(
    session: CoordinatorSession,
    spans: Mapping[TopicPartition, tuple[int, int]],
    clock: Clock,
    request: SliceRequest,
) -> bool:
    """Say whether there is anything to read.

    :raises DataLossError: records were deleted since the logs were looked at.
    """
    try:
        with session.reading:
            return any_record(session.reader, spans, clock=clock)
    except KafkaClientError as error:
        if error.code not in POSITION_LOST:
            raise
        starts = session.admin.start_offsets(spans)
        refuse_losses(
            [
                deleted(tp, expected=start, log_start=starts[tp])
                for tp, (start, stop) in spans.items()
                if start < min(stop, starts[tp])
            ],
            request,
        )
        raise


def _expired(known: Known, begun: Mapping[TopicPartition, int]) -> tuple[str, ...]:
    """Tell that committed offsets were gone and that the last run's stops took their place."""
    gone = sorted(tp for tp in begun if tp not in known.committed and known.remembered(tp) is not None)
    if not gone:
        return ()
    return (
        f"the committed offsets of {len(gone)} partitions were gone ({gone[0]} is the first; "
        "offsets.retention.minutes?): the run goes on where the last one stopped, so nothing is lost or read "
        "twice",
    )
