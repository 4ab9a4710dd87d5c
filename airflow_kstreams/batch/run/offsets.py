"""Start and stop offsets of a new slice, and whether there is anything new.

Rule: ``[start, stop)`` with start = committed offset, else the stop offset of the last finished run, else the
first-run policy; stop = last stable offset, after a bounded wait for it to reach the high watermark read
first (a commit returns before its markers are written). Nothing is ever skipped silently: a start outside the
log is an error, and so is a partition that was read and of which nobody knows how far. What earlier runs left
is gathered in ``known.py``, what a loss is called in ``data_loss.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass

from airflow_kstreams.batch.protocol.data_loss import (
    Loss,
    deleted,
    forgotten,
    gone,
    recreated,
    slice_lost,
    truncated,
    vanished,
)
from airflow_kstreams.batch.protocol.model import FrozenPartition
from airflow_kstreams.batch.run.prior_runs import Known
from airflow_kstreams.streams.bounded_read import BoundedRead, Spans
from airflow_kstreams.streams.ports import AdminPort, Clock, ReaderPort, TopicDescription, TopicPartition
from airflow_kstreams.streams.protocol_topics import ProtocolTopics
from airflow_kstreams.streams.settings import ApplicationSettings

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
    """Read the bounds of partitions, waiting for last stable offsets to reach the high watermarks first
    read. Where one did not, an open transaction holds it back.
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
        # Never past the high watermark first read: what arrives while others settle belongs to the next run.
        later = admin.end_offsets(behind, isolation="read_committed")
        stable |= {tp: min(offset, high[tp]) for tp, offset in later.items()}
    stable = {tp: min(offset, high[tp]) for tp, offset in stable.items()}
    return {tp: LogBounds(start=starts[tp], stable=stable[tp], high=high[tp]) for tp in partitions}


def freeze_inputs(
    bounds: Mapping[TopicPartition, LogBounds], known: Known, settings: ApplicationSettings
) -> tuple[FrozenPartition, ...]:
    """Fix start and stop of every input partition, after :func:`find_losses` found none."""
    frozen: list[FrozenPartition] = []
    for tp, log_of in sorted(bounds.items()):
        start = start_of(tp, log_of, known, settings)
        stop = max(start, log_of.stable)
        frozen.append(
            FrozenPartition(topic=tp.topic, partition=tp.partition, start_offset=start, stop_offset=stop)
        )
    return tuple(frozen)


def start_of(tp: TopicPartition, log_of: LogBounds, known: Known, settings: ApplicationSettings) -> int:
    """Return where a partition's slice starts."""
    remembered = known.remembered(tp)
    if remembered is not None:
        return remembered
    # A partition added to a topic that earlier runs read enters from its beginning, whatever the first-run
    # policy.
    added_later = known.read.get(tp.topic, 0) or any(
        other.topic == tp.topic for other in (*known.last_stops, *known.committed)
    )
    if added_later or known.foreign_run or settings.first_run_offsets == "earliest":
        return log_of.start
    return log_of.stable


def find_losses(
    bounds: Mapping[TopicPartition, LogBounds], known: Known, topic_ids: Mapping[str, str]
) -> list[Loss]:
    """Return what a new slice would have to read and that is gone, or not known to be unread.

    :param topic_ids: of the topics as they are now.
    """
    losses: list[Loss] = []
    for tp, log_of in sorted(bounds.items()):
        remembered = known.remembered(tp)
        if _created_again(tp, known, topic_ids):
            continue
        if remembered is None:
            if known.was_read(tp) and log_of.start < log_of.high:
                losses.append(forgotten(tp, _evidence(tp, known)))
        elif remembered < log_of.start:
            losses.append(deleted(tp, expected=remembered, log_start=log_of.start))
        elif remembered > log_of.high:
            why = "runs have processed it up to"
            losses.append(truncated(tp, expected=remembered, log_end=log_of.high, why=why))
    return losses + find_recreated(bounds, known, topic_ids)


def find_lost_slice(known: Known, application_id: str, *, run_id: str) -> list[Loss]:
    """Return the slice of a run that had begun, if nothing says any more where it stops.

    :param run_id: of the run that is to begin.
    """
    lost = known.lost_slice(run_id)
    return [slice_lost(lost, application_id, ProtocolTopics(application_id).metadata)] if lost else []


def find_recreated(
    partitions: Collection[TopicPartition], known: Known, topic_ids: Mapping[str, str]
) -> list[Loss]:
    """Return the topics that runs have read and that are other ones now.

    :param topic_ids: of the topics as they are now.
    """
    again: dict[str, list[tuple[int, int]]] = {}
    for tp in sorted(partitions):
        if _created_again(tp, known, topic_ids):
            read_to = known.remembered(tp) or known.last_stops.get(tp, 0)
            again.setdefault(tp.topic, []).append((tp.partition, read_to))
    return [
        recreated(topic, offsets, now=topic_ids[topic], before=known.topic_ids[topic])
        for topic, offsets in again.items()
    ]


def find_vanished(topics: Set[str], found: Mapping[str, TopicDescription], known: Known) -> list[Loss]:
    """Return the topics and partitions that runs have read and that are not there, unless a person accepted
    that by setting the offset of every partition that is there.

    :param topics: source topics that are not made by the engine.
    """
    losses: list[Loss] = []
    for topic in sorted(topics & known.read.keys()):
        count = found[topic].partitions if topic in found else 0
        there = [TopicPartition(topic, number) for number in range(count)]
        missing = [TopicPartition(topic, number) for number in range(count, known.read[topic])]
        if not missing or (there and all(map(known.set_by_a_person, there))):
            continue
        offsets = [(tp.partition, known.last_stops.get(tp)) for tp in missing]
        losses.append(vanished(topic, offsets, there) if there else gone(topic, offsets))
    return losses


def _created_again(tp: TopicPartition, known: Known, topic_ids: Mapping[str, str]) -> bool:
    before = known.topic_ids.get(tp.topic)
    if before is None or before == topic_ids[tp.topic] or known.set_by_a_person(tp):
        return False
    return known.remembered(tp) is not None or known.was_read(tp)


def _evidence(tp: TopicPartition, known: Known) -> str:
    if not known.unfinished_run:
        return "runs have read it"
    if known.continuous:
        return f"continuous run {known.unfinished_run!r} had committed one"
    at_least = known.last_stops.get(tp)
    return f"run {known.unfinished_run!r} was under way when the metadata topic was lost" + (
        f", from offset {at_least} on" if at_least is not None else ""
    )


def has_records(
    reader: ReaderPort,
    spans: Spans,
    *,
    clock: Clock,
    until_found: bool = False,
) -> set[TopicPartition]:
    """Return the partitions in which a read_committed reader finds a record between two offsets.

    Transaction markers and aborted records take offsets too, so offsets alone cannot tell.

    :param spans: partition -> (from, to), where ``to`` is at most the last stable offset.
    :param until_found: return as soon as one partition is found.
    """
    found: set[TopicPartition] = set()
    read = BoundedRead(reader, spans, clock=clock, max_records=_PROBE_RECORDS)
    for fetched in read:
        found.update(fetched)
        # What else these hold does not matter, and must not be fetched while others are looked into.
        read.drop(fetched)
        if found and until_found:
            read.stop()
    return found


def any_record(reader: ReaderPort, spans: Spans, *, clock: Clock) -> bool:
    """Say whether a read_committed reader finds a record in any of the spans.

    Few partitions are asked at a time, the widest spans first: where there is news, the first fetch tells.

    :param spans: as for :func:`has_records`.
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
