"""Freezes the start and the stop of a new slice in every partition, and finds records that are lost at its
start.

Rule of the start: the committed offset, else the stop offset of the last finished run, else the first-run
policy. Nothing is ever skipped silently: a start outside the log is an error, and so is a partition that was
read, if nothing says how far. ``evidence/prior_runs.py`` gathers what earlier runs left; ``data_loss.py``
words each loss.

Rule of the stop: the ends of the logs (E) are read first, and records that come after them belong to the next
run. An end is the last stable offset, after a bounded wait for it to reach the high watermark that was read
first (a commit returns before its markers are written). Then, by ``autostop.at``:

- ``eol``: ``[committed, E)``.
- ``interval_end``: up to the first committed record that is dated at or past the cut, the end of the run's
  data interval, if there is one before E, else up to E. A record dated further ahead of now than
  ``max.timestamp.ahead.ms`` does not count: it would hold the stop for ever. What lies behind the stop and
  is dated before the cut is counted, and is the next run's (``intervals.py``).
- ``interval``, a backfill: ``[first offset dated at or after the interval's start, E)``, of which the tasks
  process the records that are dated in the interval; see ``RunPlan.kept_ms``.

Only topics that come from outside are cut or filtered by time. The coordinator
(``coordinator.py``) writes all of it with the slice, in one transaction, so a retry resumes the same one:
nothing here is worked out a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from airflow_kstreams.batch.evidence.contradictions import find_rolled_back
from airflow_kstreams.batch.evidence.live_application import LiveInterval, find_live_interval
from airflow_kstreams.batch.evidence.moved_offsets import find_moved_between_runs
from airflow_kstreams.batch.evidence.prior_runs import PriorRuns, find_rewritten
from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.growing.grown_groups import (
    blocked,
    blocked_partitions,
    blocked_warnings,
    levels,
    with_boundaries,
)
from airflow_kstreams.batch.ledger.facts import GroupedPartitions
from airflow_kstreams.batch.protocol.logs.data_loss import (
    Loss,
    deleted,
    forgotten,
    recreated,
    slice_lost,
    truncated,
    truncated_below,
)
from airflow_kstreams.batch.protocol.logs.log_read import POSITION_LOST, LogBounds, any_record, log_bounds
from airflow_kstreams.batch.protocol.slice.slice import BehindCut, EndOfRun, FrozenPartition
from airflow_kstreams.batch.run.begin.groundwork import Groundwork, SliceRequest, refuse_losses
from airflow_kstreams.batch.run.begin.intervals import (
    ANY_TIME,
    Interval,
    count_behind,
    cut_by_time,
    find_interval_losses,
    find_unproven,
    first_dated,
    is_accepted,
    start_by_time,
    unproven_warning,
)
from airflow_kstreams.batch.run.begin.stream_time import anything_due, bounded_end_of_run
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.streams.bounded_read import Spans
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.naming.commands import drop_slice_command
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.partitioning.partition_groups import NAMED
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.settings import ApplicationSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """The offsets that a new slice reads, with all that is frozen beside them.

    :param inputs: start and stop of every input partition.
    :param begun: partition -> the offset to commit: the start of every source partition; its end if the slice
        is empty.
    :param empty: whether there is no record in the slice, none is parked, and no task has anything to do when
        stream time advances.
    :param held: partition -> (last stable offset, high watermark) where an open transaction holds the end
        back.
    :param kept_ms: the interval in which input records must be dated to be processed; None for all.
    :param warnings: warnings for an operator.
    :param grouped: subtopology id -> its partition groups, with the boundaries that are still to be reached.
    :param blocked: partition that waits for its ancestors -> the end of its log.
    :param behind_cut: number of records behind the cut that are dated before it; None where no cut was made.
    :param end_of_run: the moment to which the end of the run brings stream time, as far as records allow it.
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
    end_of_run: EndOfRun | None = None


def freeze(
    session: CoordinatorSession,
    *,
    request: SliceRequest,
    ground: Groundwork,
    end_of_run: EndOfRun | None = None,
) -> Frozen:
    """Freeze a new slice.

    :param ground: facts of a start: no slice of ours is under way; the stop offsets of another program's
        slice are kept.
    :param end_of_run: the moment to which the end of the run is to bring stream time.
    :raises DataLossError: records at which the new slice would start are gone.
    """
    plan, settings, prior, topic_ids = request.plan, session.settings, ground.prior, ground.topics.topic_ids
    bounds = read_bounds(session, ground, settle_ms=settings.settle_ms)
    # Not before the bounds, so that every record within them is of these epochs, too.
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
        inputs, warnings = _dated_inside(session, interval, outside, ground, request, lost)
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
        end_of_run, bounded = bounded_end_of_run(session, end_of_run, inputs, request.plan, prior)
    # Parked records, and timers that are due, are work for this run, whether new records have come or not.
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
        warnings=(*warnings, *bounded),
        end_of_run=end_of_run,
        grouped=grouped,
        blocked={tp: max(bounds[tp].stable, spans[tp][0]) for tp in waits},
        behind_cut=behind_cut,
    )


def read_bounds(
    session: CoordinatorSession, ground: Groundwork, *, settle_ms: int
) -> dict[TopicPartition, LogBounds]:
    """Read the bounds of all source partitions, first of those that came to a topic later, then of their
    ancestors.
    """
    bounds: dict[TopicPartition, LogBounds] = {}
    for partitions in levels(ground.partitions, ground.topics.grouped.values()):
        bounds |= log_bounds(session.admin, partitions, settle_ms=settle_ms, clock=session.clock)
    return bounds


def boundaries_ahead(
    ground: Groundwork, bounds: Mapping[TopicPartition, LogBounds], settings: ApplicationSettings
) -> dict[int, GroupedPartitions]:
    """Return the partition groups, with the boundaries that partitions that came later have to wait for.

    :param bounds: bounds of the logs, as :func:`read_bounds` returns them.
    """
    return with_boundaries(
        ground.topics.grouped,
        ground.topics.bound,
        highs={tp: log_of.high for tp, log_of in bounds.items()},
        position=lambda tp: start_of(tp, bounds[tp], ground.prior, settings),
    )


def find_ahead(session: CoordinatorSession, ground: Groundwork) -> list[Loss]:
    """Return losses for the committed offsets that are older than the state of their tasks."""
    committed = ground.prior.committed
    with session.reading:
        return ground.changelogs.find_ahead(
            ground.facts.ledger, committed, session.admin, session.reader, clock=session.clock
        )


def freeze_inputs(
    bounds: Mapping[TopicPartition, LogBounds], prior: PriorRuns, settings: ApplicationSettings
) -> tuple[FrozenPartition, ...]:
    """Freeze start and stop of every input partition, after :func:`find_losses` found no loss."""
    return _frozen(bounds, lambda tp, log_of: start_of(tp, log_of, prior, settings))


def _frozen(
    bounds: Mapping[TopicPartition, LogBounds], start_at: Callable[[TopicPartition, LogBounds], int]
) -> tuple[FrozenPartition, ...]:
    """Return every input partition from its start to the end of its log."""
    starts = {tp: start_at(tp, log_of) for tp, log_of in sorted(bounds.items())}
    return tuple(
        FrozenPartition(
            topic=tp.topic,
            partition=tp.partition,
            start_offset=start,
            stop_offset=max(start, bounds[tp].stable),
        )
        for tp, start in starts.items()
    )


def start_of(tp: TopicPartition, log_of: LogBounds, prior: PriorRuns, settings: ApplicationSettings) -> int:
    """Return the offset at which a partition's slice starts."""
    remembered = prior.remembered(tp)
    if remembered is not None:
        return remembered
    # A partition added to a topic that earlier runs read enters from its beginning, whatever the first-run
    # policy.
    added_later = prior.read.get(tp.topic, 0) or any(
        other.topic == tp.topic for other in (*prior.last_stops, *prior.committed)
    )
    if added_later or prior.foreign_run or settings.first_run_offsets == "earliest":
        return log_of.start
    return log_of.stable


def find_unfit(
    facts: RunFacts,
    bounds: Mapping[TopicPartition, LogBounds],
    prior: PriorRuns,
    topic_ids: Mapping[str, str],
    *,
    ahead: Sequence[Loss],
) -> list[Loss]:
    """Return losses for the partitions in which a new slice must not start: at offsets that ledger or
    changelogs contradict, or at records that are gone.

    Records behind an offset that was rolled back are no loss: they were read. An offset beyond the log's end
    is named as a truncation.

    :param bounds: bounds of the partitions whose slice starts at the committed offset.
    :param ahead: losses found in changelogs that know of later commits; where the ledger knows of them, too,
        its losses stand in their place, as they give the offsets.
    """
    inside = {tp: at for tp, at in prior.committed.items() if tp in bounds and at.offset <= bounds[tp].high}
    if prior.no_slice or prior.reset_by_hand:
        # Offsets of begun runs whose slice is lost are refused as a lost slice, or were accepted by hand.
        inside = {tp: at for tp, at in inside.items() if facts.ledger.is_finished(prior.run_of(tp))}
    back = find_rolled_back(facts.application_id, facts.ledger, inside, {tp.topic for tp in bounds})
    named = {tp for loss in back for tp in loss.partitions}
    rest = {tp: log_of for tp, log_of in bounds.items() if tp not in named}
    return [*(back or ahead), *find_losses(rest, prior, topic_ids)]


def find_losses(
    bounds: Mapping[TopicPartition, LogBounds], prior: PriorRuns, topic_ids: Mapping[str, str]
) -> list[Loss]:
    """Return losses for records that a new slice would have to read and that are gone, or may have been
    unread.

    :param topic_ids: topic -> its id now.
    """
    losses: list[Loss] = []
    for tp, log_of in sorted(bounds.items()):
        remembered = prior.remembered(tp)
        if _created_again(tp, prior, topic_ids):
            continue
        if remembered is None:
            # Nothing unread is gone from an empty log if runs alone delete its records.
            may_lack = log_of.high > 0 and (log_of.start < log_of.high or tp.topic not in prior.purged)
            if prior.was_read(tp) and may_lack:
                losses.append(forgotten(tp, _evidence(tp, prior), log_start=log_of.start))
        elif remembered < log_of.start:
            losses.append(deleted(tp, expected=remembered, log_start=log_of.start))
        elif remembered > log_of.high:
            why = "runs have processed it up to"
            losses.append(truncated(tp, expected=remembered, log_end=log_of.high, why=why))
    named = {tp for loss in losses for tp in loss.partitions}
    inside = {tp: log_of for tp, log_of in bounds.items() if tp not in named}
    losses += find_moved_between_runs(inside, prior, topic_ids)
    return losses + find_recreated(bounds, prior, topic_ids)


def find_lost_slice(prior: PriorRuns, application_id: str, *, finished: Callable[[str], bool]) -> list[Loss]:
    """Return the slice of a run that had begun, if its stop offsets are lost.

    :param finished: returns whether the ledger has a run as finished.
    """
    lost = prior.lost_slice(finished)
    return [slice_lost(lost, application_id, ProtocolTopics(application_id).metadata)] if lost else []


def find_recreated(
    partitions: Collection[TopicPartition], prior: PriorRuns, topic_ids: Mapping[str, str]
) -> list[Loss]:
    """Return the topics that runs have read and that are other ones now.

    :param topic_ids: topic -> its id now.
    """
    again: dict[str, list[tuple[int, int]]] = {}
    for tp in sorted(partitions):
        if _created_again(tp, prior, topic_ids):
            read_to = prior.remembered(tp) or prior.last_stops.get(tp, 0)
            again.setdefault(tp.topic, []).append((tp.partition, read_to))
    return [
        recreated(topic, offsets, now=topic_ids[topic], before=prior.topic_ids[topic])
        for topic, offsets in again.items()
    ]


def _created_again(tp: TopicPartition, prior: PriorRuns, topic_ids: Mapping[str, str]) -> bool:
    before = prior.topic_ids.get(tp.topic)
    accepted = prior.set_by_a_person(tp) or tp in prior.accepted
    if before is None or before == topic_ids[tp.topic] or accepted:
        return False
    return prior.remembered(tp) is not None or prior.was_read(tp)


def _evidence(tp: TopicPartition, prior: PriorRuns) -> str:
    if not prior.unfinished_run:
        return "runs have read it"
    if prior.continuous:
        return f"continuous run {prior.unfinished_run!r} had committed one"
    at_least = prior.last_stops.get(tp)
    return f"run {prior.unfinished_run!r} was under way when the metadata topic was lost" + (
        f", from offset {at_least} on" if at_least is not None else ""
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
) -> tuple[tuple[FrozenPartition, ...], tuple[str, ...]]:
    """Freeze the inputs of a run that keeps to its data interval, and warn where records of it may be gone.

    Committed offsets do not count, for an earlier interval's run has left them, or another program has,
    unless a person accepted a loss.

    :param lost: losses that were found before.
    :raises DataLossError: records of the interval may be gone.
    """
    # Negative times have a meaning of their own in the protocol.
    found = session.admin.offsets_for_times(dict.fromkeys(outside, max(0, interval.start_ms)))
    prior, topic_ids = ground.prior, ground.topics.topic_ids
    with session.reading:
        live = find_live_interval(ground.live, interval, topic_ids)
    losses = [*lost, *find_recreated(outside, prior, topic_ids)]
    losses += _made_anew(outside, prior, topic_ids, live)
    losses += find_interval_losses(outside, found, prior, interval, live)
    refuse_losses(losses, request)
    unproven = find_unproven(outside, prior, live)
    spans = {tp: (outside[tp].start, outside[tp].stable) for tp in unproven[:NAMED]}
    with _reading(session, spans, request):
        dated = first_dated(session.reader, spans, ANY_TIME, clock=session.clock)
    starts = [(tp, outside[tp].start) for tp in unproven]
    warning = unproven_warning(starts, dated, interval, session.settings.backfill_of)
    inputs = _frozen(outside, lambda tp, log_of: start_by_time(tp, log_of, found, prior))
    return inputs, (warning,) if unproven else ()


def _made_anew(
    outside: Mapping[TopicPartition, LogBounds],
    prior: PriorRuns,
    topic_ids: Mapping[str, str],
    live: LiveInterval,
) -> list[Loss]:
    """Return losses for the topics that were created again since the live application's run read the
    interval, unless a person accepted that.
    """
    gone: dict[str, list[tuple[int, int]]] = {}
    for tp, log_of in sorted(outside.items()):
        if tp.topic in live.made_anew and not is_accepted(tp, log_of, prior):
            gone.setdefault(tp.topic, []).append((tp.partition, 0))
    since = f"run {live.run_id!r} of the live application read the data interval in it"
    return [
        recreated(topic, offsets, now=topic_ids[topic], before=live.made_anew[topic], since=since)
        for topic, offsets in gone.items()
    ]


def _cut(
    session: CoordinatorSession,
    inputs: tuple[FrozenPartition, ...],
    interval: Interval,
    request: SliceRequest,
) -> tuple[tuple[FrozenPartition, ...], tuple[str, ...], BehindCut]:
    """Stop before the first record that is dated at or past the interval's end, and count the records behind
    it that are dated before.

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
    """Read records of some offset ranges; if deleted records make that fail, raise an error that names them.

    :raises DataLossError: records were deleted since the logs were looked at.
    """
    try:
        with session.reading:
            yield
    except KafkaClientError as error:
        if error.kafka_code in POSITION_LOST:
            starts = session.admin.start_offsets(spans)
            gone = [
                deleted(tp, expected=start, log_start=starts[tp])
                for tp, (start, stop) in spans.items()
                if start < min(stop, starts[tp])
            ]
            refuse_losses(gone, request)
        raise
