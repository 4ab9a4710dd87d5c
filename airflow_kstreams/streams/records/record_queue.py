"""Buffers the records of one partition, knows its partition time, and leaves out what is dated outside an
interval.

Rule (KIP-28, "Stream Time"): partition time is the smallest timestamp among the records in the buffer, and it
never goes back. The buffer that counts is the next ``buffered.records.per.partition`` records, or all up to
the stop offset, whatever else a large fetch brought along: so partition time is a function of the log and of
the stop alone. A stop ends the look-ahead: partition time before it is never earlier than without it, and
behind the last record of a task nothing is buffered that holds stream time back (``partition_group.py``). A
record counts as buffered until it is processed.

Partition time moves when a record is taken and not before: a partition whose next record lies far ahead has
not got there yet, and would otherwise make everything that is merged with it late.

Rule of an interval: a record is kept when its own timestamp lies in ``[from, to)``. What is left out never
reaches the buffer, so it moves neither time nor order.

Invariant: the count of what is left out covers exactly the records left out below the committable offset.
Both are committed together, so a crash neither loses nor doubles what was counted: each kept record carries
the number of those left out right before it, which counts when that record is processed. Those at the end of
the buffer count once nothing is buffered before them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, islice
from operator import le, methodcaller
from typing import Any, NamedTuple

from airflow_kstreams.streams.ports import Record, TopicPartition
from airflow_kstreams.streams.records.timestamp_reading import SECONDS, LatestAllowed, as_consumed, no_bound

_offset_of = methodcaller("offset")
#: Stop offset of a partition that is read for ever.
UNBOUNDED = (1 << 63) - 1
#: Gives the records to buffer and their timestamps, epoch milliseconds; see ``timestamp_reading.py``.
ReadTimestamps = Callable[[Sequence[Record]], tuple[Sequence[Record], list[int]]]


class Closing(NamedTuple):
    """What a commit says about a windowed store (``runtime/window_closings.py``).

    :param open_ms: for how long after the moment it ages from a window takes records, in stream time.
    :param closed_ms: windows that age from this moment or earlier were closed under less grace, epoch
        milliseconds; None if stream time closes them under the present one, too.
    """

    open_ms: int
    closed_ms: int | None = None


class PartitionTimes(NamedTuple):
    """The times of a partition that survive crashes and runs.

    :param partition_time_ms: its partition time, -1 before its first record.
    :param latest_ms: largest timestamp of the records before the committed offset, -1 when there was none.
    :param stream_time_ms: stream time of its topic in the task, -1 before its first record.
    :param closings: of the task's windowed stores, by name.
    """

    partition_time_ms: int = -1
    latest_ms: int = -1
    stream_time_ms: int = -1
    closings: Mapping[str, Closing] = {}


class LastRecord(NamedTuple):
    """The last record that a reader saw before a committed offset.

    A log that was truncated below that offset and has grown again holds another record there, or none, for
    an offset is given twice only by leaders of different epochs.

    :param offset: its offset, -1 when it is not known.
    :param epoch: leader epoch under which it was written, -1 when it is not known.
    """

    offset: int = -1
    epoch: int = -1

    @property
    def known(self) -> bool:
        """Whether both are."""
        return self.offset >= 0 and self.epoch >= 0


class QueueFacts(NamedTuple):
    """The facts of a partition to commit at one of its records; the queue has attributes of these names.

    :param last: the last record below the position, as the queue holds it, or what is kept of it.
    """

    partition: TopicPartition
    position: int
    time_ms: int
    latest_ms: int
    last: Record | LastRecord
    skipped: int
    misdated: int

    @property
    def last_record(self) -> LastRecord:
        """The offset and epoch of the last record."""
        return self.last if isinstance(self.last, LastRecord) else last_of(self.last)


class RecordQueue:
    """The buffered records of one partition up to its stop offset.

    :param partition: the partition.
    :param bounds: offset of the first record to process, and the offset after the last one.
    :param buffered: size of the buffer whose smallest timestamp is the partition time.
    :param times: what earlier attempts and runs left.
    :param read_timestamps: of its topic.
    :param last: the last record before the first one to process.
    :param allowed: the latest time that a record may be dated; one dated later is not remembered.
    :ivar misdated: records below the position that were processed, by this attempt, and are dated later, or
        so as seconds are that are taken for milliseconds.
    """

    def __init__(
        self,
        partition: TopicPartition,
        bounds: tuple[int, int],
        *,
        buffered: int,
        times: PartitionTimes,
        read_timestamps: ReadTimestamps,
        last: LastRecord = LastRecord(),  # noqa: B008 - immutable
        allowed: LatestAllowed = no_bound,
    ) -> None:
        start, self.stop = bounds
        self.partition = partition
        #: Offset after the last record processed; the committable offset.
        self.position = start
        #: Whether every record up to the stop offset is buffered or was processed.
        self.complete = start >= self.stop
        self.time_ms = times.partition_time_ms
        self.latest_ms = times.latest_ms
        self._buffered = buffered
        self._filter: IntervalFilter | None = None
        self._read_timestamps = read_timestamps
        self._allowed = allowed
        self._allowed_ms = allowed()
        self.misdated = 0
        #: Whether a time of :data:`SECONDS` was read.
        self._in_seconds = False
        self._records: list[Record] = []
        self._timestamps: list[int] = []
        self._cursor = 0
        #: Of the records that were processed and are not kept any more.
        self._last = last
        #: Partition time at each record of the run that was chosen last, and how many of it were processed.
        self._run_times: Sequence[int] | None = None
        self._run_at = 0
        #: Smallest timestamp of the buffers that start at ``_minima_at`` and behind it.
        self._minima: Sequence[int] = ()
        self._minima_at = 0

    def __len__(self) -> int:
        return len(self._records) - self._cursor

    @property
    def drained(self) -> bool:
        """Whether nothing is left to process, now or later."""
        return self.complete and len(self._records) == self._cursor

    @property
    def ready(self) -> bool:
        """Whether the buffer is full, or holds all that is left."""
        return self.complete or len(self._records) - self._cursor >= self._buffered

    @property
    def skipped(self) -> int:
        """Records below the position that were left out because of their time, by this attempt."""
        return 0 if self._filter is None else self._filter.skipped

    @property
    def last_record(self) -> LastRecord:
        """The last record below the position, unknown where records are left out: one of those may be it."""
        if self._filter is not None:
            return LastRecord()
        return last_of(self._records[self._cursor - 1]) if self._cursor else self._last

    def facts(self) -> QueueFacts:
        """Return what is to be committed with the records below the position."""
        cursor, skipped = self._cursor, 0
        last: Record | LastRecord = self._records[cursor - 1] if cursor else self._last
        if self._filter is not None:
            last, skipped = LastRecord(), self._filter.skipped
        return QueueFacts(
            self.partition, self.position, self.time_ms, self.latest_ms, last, skipped, self.misdated
        )

    def keep_only(self, interval_ms: tuple[int, int]) -> None:
        """Leave out every record, from the first one on, that is dated outside an interval."""
        self._filter = IntervalFilter(interval_ms)

    def add(self, records: Sequence[Record]) -> None:
        """Buffer records in offset order; whatever lies at or past the stop offset is left out."""
        if self.complete or not records:
            return
        if records[-1].offset() >= self.stop - 1:
            records = records[: bisect_left(records, self.stop, key=_offset_of)]
            self.complete = True
        if self._cursor:
            self._last = self.last_record
            del self._records[: self._cursor]
            del self._timestamps[: self._cursor]
            self._cursor = 0
            self._minima, self._minima_at = (), 0
        if self._filter is not None:
            records = self._filter.keep(records)
        if records:
            self._allowed_ms = self._allowed()
            kept, timestamps = self._read_timestamps(records)
            self._records.extend(kept)
            self._timestamps.extend(timestamps)
            self._in_seconds = self._in_seconds or min(timestamps) < SECONDS.stop
        self._settle()

    def reached(self, end: int) -> None:
        """Take note that the reader sees nothing more below an offset: markers and aborted records leave such
        gaps.
        """
        if end >= self.stop:
            self.complete = True
            self._settle()

    def extend(self, stop: int) -> None:
        """Move the stop offset further, for a host whose logs grow while the task runs."""
        if stop > self.stop:
            self.stop = stop
            self.complete = False
            self._minima, self._minima_at = (), 0

    def caught_up(self, end: int) -> None:
        """Take note that the log of a partition that is read for ever goes on no further than an offset for
        now: until :meth:`reopen` it counts as one that has ended there.
        """
        if self._records and end <= self._records[-1].offset():
            return  # the end was read before the records that are here by now were fetched
        self.stop = max(end, self.position)
        self.complete = True
        self._settle()

    def reopen(self) -> None:
        """Take note that the log of a partition that had caught up goes on."""
        self.extend(UNBOUNDED)

    def head_ms(self) -> int:
        """Return the timestamp of the next record; the queue must not be empty."""
        return self._timestamps[self._cursor]

    def floor_ms(self) -> int:
        """Return the partition time the queue is about to have; it must be ready and not empty."""
        return max(self._buffer_minima(1)[0], self.time_ms)

    def most_ready(self) -> int:
        """Return how many records may be taken in a row while the buffer stays full enough."""
        left = len(self._records) - self._cursor
        return left if self.complete else left - self._buffered + 1

    def count_below(self, bound: tuple[int, TopicPartition], limit: int) -> int:
        """Return how many records lie in a row whose (timestamp, partition) is at most a bound; at least one
        and up to a limit.
        """
        bound_ms, other = bound
        if self.partition > other:
            bound_ms -= 1
        timestamps, first = self._timestamps, self._cursor
        # By index: an iterator would pass what was processed before, and partitions alternate all the time.
        for index in range(first + 1, first + limit):
            if timestamps[index] > bound_ms:
                return index - first
        return limit

    def rising(self, limit: int) -> Sequence[int]:
        """Return for each of the next records the largest timestamp up to it: what a record waits for that
        lies behind one that is dated later.

        :param limit: of how many, at most; only those that may be taken are given.
        """
        start = self._cursor
        timestamps = self._timestamps[start : start + min(limit, self.most_ready())]
        return timestamps if _in_order(timestamps) else list(accumulate(timestamps, max))

    def head(self, count: int) -> tuple[Sequence[Record], Sequence[int]]:
        """Return the next records and their timestamps; they stay in the queue until ``advance``."""
        start, end = self._cursor, self._cursor + count
        self._run_times, self._run_at = None, 0
        return self._records[start:end], self._timestamps[start:end]

    def head_times(self, count: int) -> Sequence[int]:
        """Return the partition time at each of the next records, ``most_ready()`` of them at most."""
        minima = self._buffer_minima(count)
        self._run_times = list(islice(accumulate(minima, max, initial=self.time_ms), 1, None))
        return self._run_times

    def _buffer_minima(self, count: int) -> Sequence[int]:
        """Return the smallest timestamp of the buffer that starts at each of the next records.

        They are worked out for all that are ready at once: several partitions whose records alternate are
        chosen a record at a time, and looking through a buffer for each would cost more than processing it.
        A full buffer does not change any more when records are added behind it.
        """
        start = self._cursor - self._minima_at
        if start + count > len(self._minima):
            self._minima = lookahead_minima(self._timestamps, self._cursor, self.most_ready(), self._buffered)
            self._minima_at = self._cursor
            start = 0
        return self._minima[start : start + count]

    def advance(self, count: int) -> None:
        """Take note that the next records were processed."""
        if not count:
            return
        end = self._cursor + count
        timestamps = self._timestamps[self._cursor : end]
        latest_ms = max(timestamps)
        if latest_ms > self._allowed_ms:
            remembered = [timestamp_ms for timestamp_ms in timestamps if timestamp_ms <= self._allowed_ms]
            self.misdated += count - len(remembered)
            latest_ms = max(remembered, default=-1)
        if self._in_seconds:
            self.misdated += sum(timestamp_ms in SECONDS for timestamp_ms in timestamps)
        self.latest_ms = max(self.latest_ms, latest_ms)
        if self._run_times is not None:
            self._run_at += count
            self.time_ms = self._run_times[self._run_at - 1]
        self.position = self._records[end - 1].offset() + 1
        if self._filter is not None:
            self._filter.processed(count)
        self._cursor = end
        self._settle()

    def take(self) -> QueueFacts:
        """Take note that the next record was processed, as ``advance``, and return what ``facts`` gives then:
        what a record with calls needs, in one step.
        """
        cursor = self._cursor
        end = cursor + 1
        if self._filter is not None or end >= len(self._records):
            self.advance(1)
            return self.facts()
        record, timestamp_ms = self._records[cursor], self._timestamps[cursor]
        if timestamp_ms > self._allowed_ms:
            self.misdated += 1
        else:
            self.misdated += timestamp_ms in SECONDS
            if timestamp_ms > self.latest_ms:
                self.latest_ms = timestamp_ms
        if self._run_times is not None:
            self.time_ms = self._run_times[self._run_at]
            self._run_at += 1
        self.position = position = record.offset() + 1
        self._cursor = end
        return QueueFacts(self.partition, position, self.time_ms, self.latest_ms, record, 0, self.misdated)

    def _settle(self) -> None:
        if self._filter is not None and self._cursor >= len(self._records):
            self.position = max(self.position, self._filter.pass_rest())
        if self.complete and self._cursor >= len(self._records):
            self.position = max(self.position, self.stop)
            self._last = self.last_record
            self._records.clear()
            self._timestamps.clear()
            self._cursor = 0
            self._minima, self._minima_at = (), 0


def last_of(record: Any) -> LastRecord:
    """Return what is kept of the last record processed.

    :param record: as the queue holds it: decoded ahead of its turn, perhaps.
    """
    epoch = as_consumed(record).leader_epoch()
    return LastRecord(record.offset(), -1 if epoch is None else epoch)


def _in_order(timestamps: Sequence[int]) -> bool:
    """Return whether each timestamp is at least the one before it, as in most logs."""
    return all(map(le, timestamps, islice(timestamps, 1, None)))


def lookahead_minima(timestamps: Sequence[int], start: int, count: int, window: int) -> Sequence[int]:
    """Return for each of ``count`` timestamps the smallest among itself and those that follow, ``window`` in
    all.

    :param start: index of the first one.
    """
    seen = timestamps[start : start + count + window - 1]
    if _in_order(seen):
        return seen[:count]  # each is the smallest of what follows
    minima: deque[int] = deque()
    rising: deque[int] = deque()  # indexes whose timestamps rise from the smallest of the window
    for index in range(len(seen) - 1, -1, -1):
        while rising and seen[rising[0]] >= seen[index]:
            rising.popleft()
        rising.appendleft(index)
        if rising[-1] >= index + window:
            rising.pop()
        if index < count:
            minima.appendleft(seen[rising[-1]])
    return list(minima)


class IntervalFilter:
    """Filters one partition.

    :param interval_ms: from (inclusive) and to (exclusive), epoch milliseconds.
    :ivar skipped: records left out below the committable offset, by this attempt.
    """

    __slots__ = ("_before", "_behind", "_from_ms", "_next_offset", "_to_ms", "skipped")

    def __init__(self, interval_ms: tuple[int, int]) -> None:
        self._from_ms, self._to_ms = interval_ms
        self.skipped = 0
        #: How many were left out right before each record that is buffered.
        self._before: deque[int] = deque()
        #: How many were left out behind the last record that is buffered, and the offset after the last.
        self._behind = 0
        self._next_offset = -1

    def keep(self, records: Sequence[Record]) -> Sequence[Record]:
        """Return the records to buffer, in order."""
        kept: list[Record] = []
        for record in records:
            if self._from_ms <= record.timestamp()[1] < self._to_ms:
                kept.append(record)
                self._before.append(self._behind)
                self._behind = 0
            else:
                self._behind += 1
        if self._behind and records:
            self._next_offset = records[-1].offset() + 1
        return kept

    def processed(self, count: int) -> None:
        """Take note that the next buffered records were processed."""
        for _ in range(count):
            self.skipped += self._before.popleft()

    def pass_rest(self) -> int:
        """Take note that nothing is buffered, so that what was left out lies behind.

        :return: the offset after it, -1 when nothing was left out at the end.
        """
        passed = self._next_offset if self._behind else -1
        self.skipped += self._behind
        self._behind = 0
        return passed
