"""Builds a new slice: checks, fences, freezes. Nothing here writes to the protocol's topics.

Order and why: (1) topics first, so that a missing one changes nothing; (2) fence the previous run's
transactional ids, so that the offsets read next cannot move; (3) committed offsets, stable; (4) log bounds;
(5) loss checks; (6) freeze. What happens in Kafka after (4) belongs to the next run.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_kstreams.batch.assignment import AskGroups, next_assignment
from airflow_kstreams.batch.fence import fence
from airflow_kstreams.batch.ledger import Ledger
from airflow_kstreams.batch.metadata import Folded
from airflow_kstreams.batch.metadata_records import check_keys, stop_hash
from airflow_kstreams.batch.model import Assignment, FrozenPartition, RunPlan, RunState, Slice
from airflow_kstreams.batch.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.offsets import (
    Known,
    LogBounds,
    any_record,
    freeze_inputs,
    log_bounds,
    refuse_loss,
    start_of,
)
from airflow_kstreams.batch.session import CoordinatorSession
from airflow_kstreams.batch.topics import SourceTopics, ensure_topics
from airflow_kstreams.streams.errors import DataLossError
from airflow_kstreams.streams.ports import Clock, CommittedOffset, TopicPartition
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
    """

    run_id: str
    plan: TopologyPlan
    generation: int
    groups: AskGroups | None = None


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
    topics = ensure_topics(session.admin, plan, settings, groups=request.groups, recorded=ledger.assignment)
    check_keys(plan, topics.partitions)
    previous = folded.slice
    if previous is not None and not previous.plan.empty:
        fence(session.cluster, previous.plan.transactional_ids)
    partitions = [TopicPartition(topic, n) for topic in plan.sources for n in range(topics.partitions[topic])]
    with session.reading:
        committed = session.reader.committed(partitions)
    known = Known(committed=committed, last_stops=_last_stops(folded, ledger), topic_ids=_last_ids(folded))
    bounds = log_bounds(session.admin, partitions, settle_ms=settings.settle_ms, clock=clock)
    intermediates = set(plan.intermediates)
    inputs = freeze_inputs(
        {tp: log_of for tp, log_of in bounds.items() if tp.topic not in intermediates},
        known,
        topics.topic_ids,
        run_id=request.run_id,
        settings=settings,
    )
    if folded.state is RunState.RUNNING:
        inputs = _with_foreign_stops(inputs, folded, run_id=request.run_id)
    starts = _intermediate_starts(bounds, known, topics, request=request, settings=settings)
    spans = {part.topic_partition: (part.start_offset, part.stop_offset) for part in inputs}
    spans |= {tp: (start, bounds[tp].stable) for tp, start in starts.items()}
    with session.reading:
        empty = not any_record(session.reader, spans, clock=clock)
    slice_ = Slice(
        run_id=request.run_id,
        generation=request.generation,
        plan=RunPlan(
            topology=plan,
            partitions=dict(topics.partitions),
            topic_ids=dict(topics.topic_ids),
            tasks={str(sub): count for sub, count in topics.tasks.items()},
            stop_hash=stop_hash(inputs),
            transactional_ids=transactional_ids(plan, topics.tasks, settings),
            begun_ms=clock.now_ms(),
            empty=empty,
            groups={str(sub): entry.groups for sub, entry in topics.grouped.items() if entry.groups},
        ),
        inputs=inputs,
    )
    assignment = None if empty else next_assignment(ledger.assignment, topics.grouped, run_id=request.run_id)
    offsets = _refreshed(spans, known, request) if empty else _made_effective(starts, bounds, known, request)
    return NewSlice(slice=slice_, offsets=offsets, assignment=assignment)


def transactional_ids(
    plan: TopologyPlan, tasks: Mapping[int, int], settings: ApplicationSettings
) -> tuple[str, ...]:
    """Return every transactional id that tasks may use: ``<app>-<subtopology>_<group>``."""
    return tuple(
        f"{settings.application_id}-{sub.id}_{group}"
        for sub in plan.subtopologies
        for group in range(tasks[sub.id])
    )


def _last_stops(folded: Folded, ledger: Ledger) -> dict[TopicPartition, int]:
    """Return the stop offset of every partition, inputs and intermediates, that the last run finished."""
    last = ledger.last()
    stops = {} if last is None else last.stops
    if folded.state is not RunState.FINISHED:
        return stops
    if folded.slice is not None and not folded.torn:
        return stops | {part.topic_partition: part.stop_offset for part in folded.slice.inputs}
    if folded.foreign_stops:
        stops |= folded.foreign_stops
        reported: dict[TopicPartition, int] = {}
        for (_, intermediate), offset in folded.notifications.items():
            reported[intermediate] = max(reported.get(intermediate, 0), offset)
        stops |= reported
    return stops


def _last_ids(folded: Folded) -> Mapping[str, str]:
    return {} if folded.slice is None else folded.slice.plan.topic_ids


def _with_foreign_stops(
    inputs: tuple[FrozenPartition, ...], folded: Folded, *, run_id: str
) -> tuple[FrozenPartition, ...]:
    """Keep the stop offsets of a run that another writer began in the spec's bare format."""
    kept: list[FrozenPartition] = []
    for part in inputs:
        stop = folded.foreign_stops.get(part.topic_partition, part.start_offset)
        if stop > part.stop_offset:
            raise DataLossError(
                f"{part.topic_partition}: the run that is under way stops at {stop}, but the log ends at "
                f"{part.stop_offset}",
                fix="restore the topic, or delete the stop offsets by resetting the application",
                run_id=run_id,
            )
        start = min(part.start_offset, stop)
        kept.append(
            FrozenPartition(topic=part.topic, partition=part.partition, start_offset=start, stop_offset=stop)
        )
    return tuple(kept)


def _intermediate_starts(
    bounds: Mapping[TopicPartition, LogBounds],
    known: Known,
    topics: SourceTopics,
    *,
    request: SliceRequest,
    settings: ApplicationSettings,
) -> dict[TopicPartition, int]:
    """Return where the slice starts in every intermediate partition.

    :raises DataLossError: what a partition's start refers to is gone.
    """
    starts: dict[TopicPartition, int] = {}
    intermediates = set(request.plan.intermediates)
    for tp, log_of in bounds.items():
        if tp.topic in intermediates:
            refuse_loss(tp, log_of, known, topics.topic_ids, run_id=request.run_id)
            starts[tp] = start_of(tp, log_of, known, settings)
    return starts


def _refreshed(
    spans: Mapping[TopicPartition, tuple[int, int]], known: Known, request: SliceRequest
) -> dict[TopicPartition, CommittedOffset]:
    """Return every partition's offset to commit again, so that none expires while nothing new arrives.

    Nothing but transaction markers and aborted records lies in the spans, so their ends are as good as their
    starts.
    """
    ours = OffsetMetadata(run_id=request.run_id).encode()
    return {
        tp: CommittedOffset(
            max(start, stop), (known.committed[tp].metadata if tp in known.committed else "") or ours
        )
        for tp, (start, stop) in spans.items()
    }


def _made_effective(
    starts: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, LogBounds],
    known: Known,
    request: SliceRequest,
) -> dict[TopicPartition, CommittedOffset]:
    """Return the starts of intermediate partitions that have no committed offset and are not read from the
    beginning of their logs.

    Inputs have a frozen start for that; an intermediate partition has nothing but its committed offset.
    """
    ours = OffsetMetadata(run_id=request.run_id).encode()
    return {
        tp: CommittedOffset(start, ours)
        for tp, start in starts.items()
        if tp not in known.committed and start > bounds[tp].start
    }
