"""Reads the bounds of a partition's log, and finds out whether it holds a record between two offsets.

Offsets alone do not say how many records there are: transaction markers and aborted records take offsets,
too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from airflow_kstreams.streams.bounded_read import BoundedRead, Spans
from airflow_kstreams.streams.ports import AdminPort, Clock, ReaderPort, TopicPartition

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


def has_records(
    reader: ReaderPort,
    spans: Spans,
    *,
    clock: Clock,
    until_found: bool = False,
) -> set[TopicPartition]:
    """Return the partitions in which a read_committed reader finds a record between two offsets.

    Transaction markers and aborted records take offsets too, so offsets alone do not say.

    :param spans: partition -> (from, to), where ``to`` is at most the last stable offset.
    :param until_found: return as soon as one partition is found.
    """
    found: set[TopicPartition] = set()
    read = BoundedRead(reader, spans, clock=clock, max_records=_PROBE_RECORDS)
    for fetched in read:
        found.update(fetched)
        # The other records of these do not matter, and must not be fetched while others are read.
        read.drop(fetched)
        if found and until_found:
            read.stop()
    return found


def any_record(reader: ReaderPort, spans: Spans, *, clock: Clock) -> bool:
    """Say whether a read_committed reader finds a record in any of the spans.

    It reads few partitions at a time, the widest spans first: mostly the first fetch finds a record.

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
