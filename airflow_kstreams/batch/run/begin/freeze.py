"""Freezes where a new slice starts and stops in every partition.

Rule: the ends of the logs (E) are read first, and what comes after them belongs to the next run. Then, by
``autostop.at``:

- ``eol``: ``[committed, E)``.
- ``interval_end``: ``[committed, cut)``, where the cut is the first committed record that is dated at or
  past the end of the run's data interval, if there is one before E, else E. A record dated further ahead
  of now than ``max.timestamp.ahead.ms`` is none: it would hold the cut for ever. What lies behind it and is
  dated before it is counted, and is the next run's (``intervals.py``).
- ``interval``, a backfill: ``[first offset dated at or after the interval's start, E)``, of which the tasks
  process the records that are dated in the interval; see ``RunPlan.kept_ms``.

Only topics that come from outside are cut or filtered by time. The coordinator
(``coordinator.py``) writes all of it with the slice, in one transaction, so a retry resumes the same one:
nothing here is worked out a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from airflow_kstreams.batch.evidence.prior_runs import PriorRuns, find_rewritten
from airflow_kstreams.batch.growing.grown_groups import blocked, blocked_partitions, blocked_warnings
from airflow_kstreams.batch.ledger.facts import GroupedPartitions
from airflow_kstreams.batch.protocol.logs.data_loss import Loss, deleted, truncated_below
from airflow_kstreams.batch.protocol.logs.log_read import POSITION_LOST, LogBounds, any_record
from airflow_kstreams.batch.protocol.slice.slice import BehindCut, EndOfRun, FrozenPartition
from airflow_kstreams.batch.run.begin.groundwork import Groundwork, boundaries_ahead, find_ahead, read_bounds
from airflow_kstreams.batch.run.begin.intervals import (
    Interval,
    count_behind,
    cut_by_time,
    find_interval_losses,
    start_by_time,
)
from airflow_kstreams.batch.run.begin.starts import (
    find_lost_slice,
    find_recreated,
    find_unfit,
    freeze_inputs,
    start_of,
)
from airflow_kstreams.batch.run.begin.stream_time import anything_due
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.slice_request import SliceRequest, refuse_losses
from airflow_kstreams.streams.bounded_read import Spans
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.naming.commands import drop_slice_command
from airflow_kstreams.streams.ports import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """What a new slice reads.

    :param inputs: start and stop of every input partition.
    :param begun: what to commit: the start of every source partition, or its end when the slice is empty.
    :param empty: whether there is no record in the slice, none is parked, and no task has anything to do when
        stream time advances.
    :param held: partitions whose end an open transaction holds back: last stable offset, high watermark.
    :param kept_ms: the interval in which input records must be dated to be processed; None for all.
    :param warnings: what a person should look at.
    :param grouped: partition groups by subtopology id, with the boundaries that are ahead.
    :param blocked: partitions that wait for their ancestors -> the ends of their logs.
    :param behind_cut: records behind the cut that are dated before it; None where none was made.
    """

    inputs: tuple[FrozenPartition, ...]
    begun: Mapping[TopicPartition, int]
    empty: bool
    held: Mapping[TopicPartition, tuple[int, int]]
    kept_ms: tuple[int, int] | None = None
    warnings: tuple[str, ...] = ()
    grouped: Mapping[int, GroupedPartitions] = field(default_factory=dict)
    blocked: Mapping[TopicPartition, int] = field(default_factory=dict)
    behind_cut: BehindCut | None = None


def freeze(
    session: CoordinatorSession,
    *,
    request: SliceRequest,
    ground: Groundwork,
    end_of_run: EndOfRun | None = None,
) -> Frozen:
    """Freeze a new slice.

    :param ground: no slice of ours is under way; the stop offsets of another program's are kept.
    :param end_of_run: to where the end of the run is to bring stream time.
    :raises DataLossError: what the new slice would start at is gone.
    """
    plan, settings, prior, topic_ids = request.plan, session.settings, ground.prior, ground.topics.topic_ids
    bounds = read_bounds(session, ground, settle_ms=settings.settle_ms)
    # Not before the bounds: what comes into a log by then is of these epochs, too.
    epochs = session.admin.end_epochs([tp for tp in bounds if tp.topic not in plan.intermediates])
    inside = {tp: log_of for tp, log_of in bounds.items() if tp.topic in plan.intermediates}
    outside = {tp: log_of for tp, log_of in bounds.items() if tp not in inside}
    warnings: tuple[str, ...] = ()
    behind_cut: BehindCut | None = None
    lost = _disagreements(ground)
    interval = Interval(*request.interval_ms) if request.interval_ms is not None else None
    ahead = find_ahead(session, ground)
    if settings.keeps_to_interval and interval is not None:
        lost += find_unfit(ground.facts, inside, prior, topic_ids, ahead=ahead)
        inputs = _dated_inside(session, interval, outside, ground, request, lost)
        _refuse_rewritten(session, inside, prior, request)
    else:
        lost += find_unfit(ground.facts, bounds, prior, topic_ids, ahead=ahead)
        refuse_losses(lost, request)
        _refuse_rewritten(session, bounds, prior, request)
        inputs = freeze_inputs(outside, prior, settings)
    if ground.facts.foreign_run:
        inputs = _with_foreign_stops(inputs, ground, request)
    elif settings.autostop_at == "interval_end" and interval is not None:
        inputs, warnings, behind_cut = _cut(session, inputs, interval, request)
    # A backfill reads each interval's records by their times, whatever partition they are in.
    waits_for_none = settings.keeps_to_interval
    grouped = ground.topics.grouped if waits_for_none else boundaries_ahead(ground, bounds, settings)
    waits = blocked(grouped.values())
    inputs = tuple(
        msgspec.structs.replace(part, stop_offset=part.start_offset)
        if part.topic_partition in waits
        else part
        for part in inputs
    )
    behind = blocked_partitions(grouped, lambda tp: start_of(tp, bounds[tp], prior, settings))
    warnings += blocked_warnings(behind, {part.topic_partition: part.stop_offset for part in inputs})
    spans = {part.topic_partition: (part.start_offset, part.stop_offset) for part in inputs}
    for tp, log_of in inside.items():
        start = start_of(tp, log_of, prior, settings)
        spans[tp] = (start, start if tp in waits else log_of.stable)
    with _reading(session, spans, request):
        anything = any_record(session.reader, spans, clock=session.clock)
    # What is parked, and what is due, is work for this run, whether anything new has come or not.
    empty = not anything and not ground.parked and not anything_due(end_of_run, plan, ground)
    return Frozen(
        inputs=tuple(
            msgspec.structs.replace(part, end_epoch=epochs[part.topic_partition]) for part in inputs
        ),
        # The ends are as good as the starts when nothing but markers and aborted records lies between them.
        begun={tp: max(start, stop) if empty else start for tp, (start, stop) in spans.items()},
        empty=empty,
        held={
            tp: (log_of.stable, log_of.high) for tp, log_of in bounds.items() if log_of.stable < log_of.high
        },
        kept_ms=request.interval_ms if settings.keeps_to_interval else None,
        warnings=warnings,
        grouped=grouped,
        blocked={tp: max(bounds[tp].stable, spans[tp][0]) for tp in waits},
        behind_cut=behind_cut,
    )


def _disagreements(ground: Groundwork) -> list[Loss]:
    facts, prior = ground.facts, ground.prior
    return [
        *find_lost_slice(prior, facts.application_id, finished=facts.ledger.is_finished),
        *facts.disagreements(metadata_topic_kept=not prior.reset_by_hand),
    ]


def _refuse_rewritten(
    session: CoordinatorSession,
    bounds: Mapping[TopicPartition, LogBounds],
    prior: PriorRuns,
    request: SliceRequest,
) -> None:
    with session.reading:
        losses = find_rewritten(session.admin, session.reader, bounds, prior, clock=session.clock)
    refuse_losses(losses, request)


def _dated_inside(
    session: CoordinatorSession,
    interval: Interval,
    outside: Mapping[TopicPartition, LogBounds],
    ground: Groundwork,
    request: SliceRequest,
    lost: Sequence[Loss],
) -> tuple[FrozenPartition, ...]:
    """Freeze the inputs of a run that keeps to its data interval.

    Committed offsets do not count, for an earlier interval's run has left them, or another program has,
    unless a person accepted a loss.

    :param lost: what is lost already.
    :raises DataLossError: what the interval held may be gone.
    """
    # Negative times have a meaning of their own in the protocol.
    found = session.admin.offsets_for_times(dict.fromkeys(outside, max(0, interval.start_ms)))
    prior, topic_ids = ground.prior, ground.topics.topic_ids
    losses = [*lost, *find_recreated(outside, prior, topic_ids)]
    losses += find_interval_losses(outside, found, prior, interval)
    refuse_losses(losses, request)
    frozen: list[FrozenPartition] = []
    for tp, log_of in sorted(outside.items()):
        start = start_by_time(tp, log_of, found, prior)
        frozen.append(
            FrozenPartition(
                topic=tp.topic,
                partition=tp.partition,
                start_offset=start,
                stop_offset=max(start, log_of.stable),
            )
        )
    return tuple(frozen)


def _cut(
    session: CoordinatorSession,
    inputs: tuple[FrozenPartition, ...],
    interval: Interval,
    request: SliceRequest,
) -> tuple[tuple[FrozenPartition, ...], tuple[str, ...], BehindCut]:
    """Stop before the first record that is dated at or past the interval's end, and count what lies behind
    it and is dated before.

    :raises DataLossError: records were deleted since the logs were looked at.
    """
    spans = {part.topic_partition: (part.start_offset, part.stop_offset) for part in inputs}
    with _reading(session, spans, request):
        cut, warnings = cut_by_time(
            session.admin,
            session.reader,
            inputs,
            interval,
            clock=session.clock,
            ahead_ms=session.settings.max_timestamp_ahead_ms,
        )
        ends = {tp: stop for tp, (_, stop) in spans.items()}
        behind = count_behind(session.reader, cut, ends, interval.end_ms, clock=session.clock)
    return cut, warnings, behind


def _with_foreign_stops(
    inputs: tuple[FrozenPartition, ...], ground: Groundwork, request: SliceRequest
) -> tuple[FrozenPartition, ...]:
    """Keep the stop offsets of a run that another writer began in the spec's bare format.

    A partition without one came after that run had begun, and enters the next. One whose committed offset
    lies beyond its stop is done.

    :raises DataLossError: records before a stop are gone, or its partition is.
    """
    kept: list[FrozenPartition] = []
    foreign_stops = ground.facts.metadata.foreign_stops
    drop, run = drop_slice_command(request.plan.application_id), "the run that is under way"
    partitions = {part.topic_partition for part in inputs}
    topics = {part.topic for part in inputs}
    losses = [
        Loss(
            partitions=(),
            text=f"{tp}: {run} stops at {stop}, but there is no such partition (the first one has the "
            "number 0)",
            advice="this drops its slice",
            first=(drop,),
        )
        for tp, stop in sorted(foreign_stops.items())
        if tp.topic in topics and tp not in partitions
    ]
    for part in inputs:
        tp = part.topic_partition
        stop = foreign_stops.get(tp, part.start_offset)
        if stop > part.stop_offset:
            span = (part.start_offset, stop)
            losses.append(truncated_below(tp, span=span, log_end=part.stop_offset, run=run, drop=drop))
        committed = ground.prior.committed.get(tp)
        stop = max(stop, committed.offset if committed is not None else 0)
        start = min(part.start_offset, stop)
        kept.append(
            FrozenPartition(topic=part.topic, partition=part.partition, start_offset=start, stop_offset=stop)
        )
    refuse_losses(losses, request)
    return tuple(kept)


@contextmanager
def _reading(session: CoordinatorSession, spans: Spans, request: SliceRequest) -> Iterator[None]:
    """Read records of some spans, and say what was deleted, if that is why they could not be read.

    :raises DataLossError: records were deleted since the logs were looked at.
    """
    try:
        with session.reading:
            yield
    except KafkaClientError as error:
        if error.code in POSITION_LOST:
            starts = session.admin.start_offsets(spans)
            gone = [
                deleted(tp, expected=start, log_start=starts[tp])
                for tp, (start, stop) in spans.items()
                if start < min(stop, starts[tp])
            ]
            refuse_losses(gone, request)
        raise
