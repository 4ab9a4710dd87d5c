"""Buffers the records of one partition, keeps its partition time, and leaves out records dated outside an
interval.

Rule (KIP-28, "Stream Time"): partition time is the smallest timestamp among the records in the buffer, and it
never goes back. The buffer that counts is the next ``buffered.records.per.partition`` records, or all up to
the stop offset, whatever else a large fetch brought along: so partition time is a function of the log and of
the stop alone. A stop ends the look-ahead: partition time before it is never earlier than without it, and
behind the last record of a task no buffered record holds stream time back (``partition_group.py``). A
record counts as buffered until it is processed.

Partition time moves when a record is taken and not before: a partition whose next record lies far ahead has
not got there yet, and would otherwise make everything that is merged with it late.

Rule of an interval: a record is kept when its own timestamp lies in ``[from, to)``. A record that is left out
never reaches the buffer, so it moves neither time nor order.

Invariant: the count of left-out records covers exactly those below the committable offset. Both are committed
together, so a crash neither loses nor doubles a count: each kept record carries the number of records left
out right before it, which counts when that record is processed. Records left out at the end of the buffer
count once no buffered record lies before them.
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
#: Fetched records -> (records to buffer, their timestamps in epoch milliseconds); see
#: ``timestamp_reading.py``.
ReadTimestamps = Callable[[Sequence[Record]], tuple[Sequence[Record], list[int]]]


class Closing(NamedTuple):
    """The committed facts of a windowed store (``runtime/window_closings.py``).

    :param open_ms: milliseconds of stream time for which a window takes records, from the time at which its
        age begins.
    :param closed_ms: epoch milliseconds; windows whose age begins then or earlier were closed under less
        grace. None if stream time closes them under the present grace, too.
    """

    open_ms: int
    closed_ms: int | None = None


class PartitionTimes(NamedTuple):
    """The times of a partition that survive crashes and runs.

    :param partition_time_ms: partition time, epoch milliseconds; -1 before the first record.
    :param latest_ms: largest timestamp of the records before the committed offset; -1 without any.
    :param stream_time_ms: stream time of the topic in the task, epoch milliseconds; -1 before the first
        record.
    :param closings: name of a windowed store of the task -> its closing.
    """

    partition_time_ms: int = -1
    latest_ms: int = -1
    stream_time_ms: int = -1
    closings: Mapping[str, Closing] = {}


class LastRecord(NamedTuple):
    """The last record that a reader saw before a committed offset.

    A log that was truncated below that offset and has grown again holds another record there, or none, for
    an offset is given twice only by leaders of different epochs.

    :param offset: offset of the record; -1 when it is not known.
    :param epoch: leader epoch under which it was written; -1 when it is not known.
    """

    offset: int = -1
    epoch: int = -1

    @property
    def known(self) -> bool:
        """True if both offset and epoch are known."""
        return self.offset >= 0 and self.epoch >= 0


class QueueFacts(NamedTuple):
    """The facts of a partition to commit after one of its records; the queue has attributes of these names.

    :param partition: topic and partition.
    :param position: offset of the next record to process.
    :param time_ms: partition time, epoch milliseconds.
    :param latest_ms: largest timestamp below the position, epoch milliseconds; -1 without any.
    :param last: the last record below the position, or its offset and epoch.
    :param skipped: number of records below the position that this attempt left out because of their time.
    :param misdated: number of records below the position that this attempt processed with an implausible
        time.
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

    :param partition: topic and partition.
    :param bounds: (offset of the first record to process, offset after the last one).
    :param buffered: number of records in the buffer whose smallest timestamp is the partition time.
    :param times: the partition's times as committed by earlier attempts and runs.
    :param read_timestamps: reader of its records' timestamps.
    :param last: the last record before the first one to process.
    :param allowed: function that gives the latest timestamp that a record may have; a later one does not
        count as the largest.
    :ivar misdated: number of records below the position that this attempt processed although they are dated
        later than that, or lie in :data:`SECONDS`.
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
        #: True if every record up to the stop offset is buffered or was processed.
        self.complete = start >= self.stop
        self.time_ms = times.partition_time_ms
        self.latest_ms = times.latest_ms
        self._buffered = buffered
        self._filter: IntervalFilter | None = None
        self._read_timestamps = read_timestamps
        self._allowed = allowed
        self._allowed_ms = allowed()
        self.misdated = 0
        #: True after a timestamp in :data:`SECONDS` was read.
        self._in_seconds = False
        self._records: list[Record] = []
        self._timestamps: list[int] = []
        self._cursor = 0
        #: The last record among those that were processed and dropped from the buffer.
        self._last = last
        #: Partition time at each record of the run chosen last, and the number of these records processed.
        self._run_times: Sequence[int] | None = None
        self._run_at = 0
        #: Smallest timestamp of each buffer, from the one that starts at index ``_minima_at`` on.
        self._minima: Sequence[int] = ()
        self._minima_at = 0

    def __len__(self) -> int:
        return len(self._records) - self._cursor

    @property
    def drained(self) -> bool:
        """True if no record is left to process, now or later."""
        return self.complete and len(self._records) == self._cursor

    @property
    def ready(self) -> bool:
        """True if the buffer is full, or holds all records that are left."""
        return self.complete or len(self._records) - self._cursor >= self._buffered

    @property
    def skipped(self) -> int:
        """Number of records below the position that this attempt left out because of their time."""
        return 0 if self._filter is None else self._filter.skipped

    @property
    def last_record(self) -> LastRecord:
        """The last record below the position; unknown where records are left out, since one of them may be
        it.
        """
        if self._filter is not None:
            return LastRecord()
        return last_of(self._records[self._cursor - 1]) if self._cursor else self._last

    def facts(self) -> QueueFacts:
        """Return the facts to commit with the records below the position."""
        cursor, skipped = self._cursor, 0
        last: Record | LastRecord = self._records[cursor - 1] if cursor else self._last
        if self._filter is not None:
            last, skipped = LastRecord(), self._filter.skipped
        return QueueFacts(
            self.partition, self.position, self.time_ms, self.latest_ms, last, skipped, self.misdated
        )

    def keep_only(self, interval_ms: tuple[int, int]) -> None:
        """Leave out every record, from the first one on, that is dated outside an interval.

        :param interval_ms: from (inclusive) and to (exclusive), epoch milliseconds.
        """
        self._filter = IntervalFilter(interval_ms)

    def add(self, records: Sequence[Record]) -> None:
        """Buffer records in offset order; those at or past the stop offset are left out."""
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
        """Note that there are no more records below an offset: markers and aborted records leave gaps."""
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
        """Note that the log of a partition that is read for ever ends at an offset for now: until
        :meth:`reopen` the partition counts as finished there.
        """
        if self._records and end <= self._records[-1].offset():
            return  # the end was read before the records that are here by now were fetched
        self.stop = max(end, self.position)
        self.complete = True
        self._settle()

    def reopen(self) -> None:
        """Note that the log of a partition that had caught up goes on."""
        self.extend(UNBOUNDED)

    def head_ms(self) -> int:
        """Return the timestamp of the next record; the queue must not be empty."""
        return self._timestamps[self._cursor]

    def floor_ms(self) -> int:
        """Return the partition time at the next record; the queue must be ready and not empty."""
        return max(self._buffer_minima(1)[0], self.time_ms)

    def most_ready(self) -> int:
        """Return the number of records that may be taken in a row while the buffer stays full enough."""
        left = len(self._records) - self._cursor
        return left if self.complete else left - self._buffered + 1

    def count_below(self, bound: tuple[int, TopicPartition], limit: int) -> int:
        """Return the number of next records in a row whose (timestamp, partition) is at most ``bound``; at
        least one, ``limit`` at most.
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
        """Return for each of the next records the largest timestamp up to it: a record waits behind one that
        is dated later.

        :param limit: most records to consider; only those that may be taken count.
        """
        start = self._cursor
        timestamps = self._timestamps[start : start + min(limit, self.most_ready())]
        return timestamps if _in_order(timestamps) else list(accumulate(timestamps, max))

    def head(self, count: int) -> tuple[Sequence[Record], Sequence[int]]:
        """Return the next records and their timestamps; they stay in the queue until :meth:`advance`."""
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
        """Note that the next ``count`` records were processed."""
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
        """Note that the next record was processed, and return the facts to commit then: :meth:`advance` and
        :meth:`facts` in one step, for records with calls.
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
    """Return offset and leader epoch of the last record processed.

    :param record: an element of the queue, consumed or decoded.
    """
    epoch = as_consumed(record).leader_epoch()
    return LastRecord(record.offset(), -1 if epoch is None else epoch)


def _in_order(timestamps: Sequence[int]) -> bool:
    """Return True if each timestamp is at least the one before it, as in most logs."""
    return all(map(le, timestamps, islice(timestamps, 1, None)))


def lookahead_minima(timestamps: Sequence[int], start: int, count: int, window: int) -> Sequence[int]:
    """Return for each of ``count`` timestamps the smallest of ``window`` timestamps from this one on.

    :param start: index of the first of the ``count`` timestamps.
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
    :ivar skipped: number of records below the committable offset that this attempt left out.
    """

    __slots__ = ("_before", "_behind", "_from_ms", "_next_offset", "_to_ms", "skipped")

    def __init__(self, interval_ms: tuple[int, int]) -> None:
        self._from_ms, self._to_ms = interval_ms
        self.skipped = 0
        #: For each buffered record, the number of records left out right before it.
        self._before: deque[int] = deque()
        #: Number of records left out behind the last buffered record, and the offset after the last of them.
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
        """Note that the next ``count`` buffered records were processed."""
        for _ in range(count):
            self.skipped += self._before.popleft()

    def pass_rest(self) -> int:
        """Note that no record is buffered, and count the records left out at the end.

        :return: the offset after them; -1 if no record was left out at the end.
        """
        passed = self._next_offset if self._behind else -1
        self.skipped += self._behind
        self._behind = 0
        return passed
