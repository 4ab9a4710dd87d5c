"""Start and stop offsets of a new slice, and whether there is anything new.

Rule: ``[start, stop)`` with start = committed offset, else the stop offset of the last finished run, else the
first-run policy; stop = last stable offset, after a bounded wait for it to reach the high watermark read
first (a commit returns before its markers are written). Nothing is ever skipped silently: a start outside the
log is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from airflow_kstreams.batch.log_read import refuse_silence
from airflow_kstreams.batch.model import FrozenPartition
from airflow_kstreams.batch.offset_metadata import OffsetMetadata
from airflow_kstreams.streams.errors import DataLossError
from airflow_kstreams.streams.ports import AdminPort, Clock, CommittedOffset, ReaderPort, TopicPartition
from airflow_kstreams.streams.settings import ApplicationSettings

log = logging.getLogger(__name__)

_SETTLE_STEP_SECONDS = 0.02
_PROBE_SECONDS = 0.2
_PROBED_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What earlier runs left behind.

    :param committed: the group's committed offsets.
    :param last_stops: stop offsets of the last finished run, of inputs and intermediates.
    :param topic_ids: topic ids that the last run froze.
    """

    committed: Mapping[TopicPartition, CommittedOffset]
    last_stops: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]


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
    read.
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
    for tp in behind:
        log.warning(
            "%s: an open transaction holds the last stable offset at %d below the high watermark %d; what "
            "lies behind "
            "it goes to the next run (find the producer with: kafka-transactions.sh --bootstrap-server "
            "<broker> "
            "describe-producers --topic %s --partition %d)",
            tp,
            stable[tp],
            high[tp],
            tp.topic,
            tp.partition,
        )
    return {tp: LogBounds(start=starts[tp], stable=stable[tp], high=high[tp]) for tp in partitions}


def freeze_inputs(
    bounds: Mapping[TopicPartition, LogBounds],
    known: Known,
    topic_ids: Mapping[str, str],
    *,
    run_id: str,
    settings: ApplicationSettings,
) -> tuple[FrozenPartition, ...]:
    """Fix start and stop of every input partition.

    :param topic_ids: of the topics as they are now.
    :raises DataLossError: what a partition's start refers to is gone.
    """
    frozen: list[FrozenPartition] = []
    for tp, log_of in sorted(bounds.items()):
        refuse_loss(tp, log_of, known, topic_ids, run_id=run_id)
        start = start_of(tp, log_of, known, settings)
        frozen.append(
            FrozenPartition(
                topic=tp.topic,
                partition=tp.partition,
                start_offset=start,
                stop_offset=max(start, log_of.stable),
            )
        )
    return tuple(frozen)


def start_of(tp: TopicPartition, log_of: LogBounds, known: Known, settings: ApplicationSettings) -> int:
    """Return where a partition's slice starts."""
    remembered = _remembered(tp, known)
    if remembered is not None:
        return remembered
    # A partition added to a topic that earlier runs read enters from its beginning, whatever the first-run
    # policy.
    added_later = any(other.topic == tp.topic for other in (*known.last_stops, *known.committed))
    if added_later or settings.first_run_offsets == "earliest":
        return log_of.start
    return log_of.stable


def refuse_loss(
    tp: TopicPartition, log_of: LogBounds, known: Known, topic_ids: Mapping[str, str], *, run_id: str
) -> None:
    """Refuse to begin where records that had to be read are gone.

    A committed offset without our metadata was set by a person with Kafka's own tools, who thereby accepted
    the topic as it is.

    :raises DataLossError: the topic was created again, or the remembered offset lies outside the log.
    """
    remembered = _remembered(tp, known)
    if remembered is None:
        return
    accept = (
        "restore the topic, or accept the gap with: kafka-consumer-groups.sh --bootstrap-server <broker> "
        "--group "
        f"<application id> --topic {tp.topic}:{tp.partition} --reset-offsets --to-earliest --execute"
    )
    before, now = known.topic_ids.get(tp.topic), topic_ids[tp.topic]
    ours = tp not in known.committed or OffsetMetadata.decode(known.committed[tp].metadata).run_id
    if before is not None and before != now and ours:
        raise DataLossError(
            f"topic {tp.topic} was created again since the last run: its id is {now}, expected {before}; "
            f"offset {remembered} of partition {tp.partition} refers to records that are gone",
            fix=accept,
            run_id=run_id,
        )
    if remembered < log_of.start:
        raise DataLossError(
            f"{tp}: records from offset {remembered} to {log_of.start} are gone, the log starts at "
            f"{log_of.start}",
            fix=accept,
            run_id=run_id,
        )
    if remembered > log_of.high:
        raise DataLossError(
            f"{tp}: the log ends at {log_of.high}, but runs have processed it up to {remembered}: it was "
            "truncated "
            "or created again",
            fix=accept,
            run_id=run_id,
        )


def has_records(
    reader: ReaderPort,
    spans: Mapping[TopicPartition, tuple[int, int]],
    *,
    clock: Clock,
    until_found: bool = False,
) -> set[TopicPartition]:
    """Return the partitions in which a read_committed reader finds a record between two offsets.

    Transaction markers and aborted records take offsets too, so offsets alone cannot tell.

    :param spans: partition -> (from, to), where ``to`` is at most the last stable offset.
    :param until_found: return as soon as one partition is found.
    """
    waiting = {tp: to for tp, (start, to) in spans.items() if start < to}
    found: set[TopicPartition] = set()
    if not waiting:
        return found
    reader.assign({tp: spans[tp][0] for tp in waiting})
    heard = clock.monotonic_seconds()
    while waiting and not (until_found and found):
        fetched = reader.poll(max_records=100, timeout_seconds=_PROBE_SECONDS)
        heard = refuse_silence(fetched, heard, ", ".join(map(str, waiting)), clock)
        for tp, records in fetched.records.items():
            to = waiting.pop(tp, None)
            if to is not None and any(record.offset() < to for record in records):
                found.add(tp)
        if waiting and fetched.records:
            # What else these hold does not matter, and must not be fetched while others are looked into.
            reader.pause(fetched.records)
        for tp, end in fetched.ends.items():
            if tp in waiting and end >= waiting[tp]:
                del waiting[tp]
    # Assigned partitions would go on being fetched in the background.
    reader.assign({})
    return found


def any_record(reader: ReaderPort, spans: Mapping[TopicPartition, tuple[int, int]], *, clock: Clock) -> bool:
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


def _remembered(tp: TopicPartition, known: Known) -> int | None:
    if tp in known.committed:
        return known.committed[tp].offset
    return known.last_stops.get(tp)
