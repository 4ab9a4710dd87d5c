"""The partitions of one task, and which record comes next.

Rule (determinism): a record is chosen only when every unfinished partition holds
``buffered.records.per.partition`` records or all up to its stop offset; the smallest head timestamp goes
first, ties by (topic, partition). A finished, drained partition no longer counts.

Invariant: the order of the chosen records is a function of the logs alone. What the network delivers first,
how large the fetches are and where an earlier attempt crashed decide only *when* a record may be chosen,
never *which*: the choice looks at heads only, and a head is known once its partition holds a record.

Records come out in runs of one partition (as many as the rule allows in a row), so that the hot loop pays for
the choice once per run and a task with one live partition pays nothing at all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import islice
from operator import methodcaller

from airflow_kstreams.streams.ports import Record, TopicPartition

_offset_of = methodcaller("offset")


class RecordQueue:
    """The buffered records of one partition up to its stop offset.

    :param partition: the partition.
    :param start: offset of the first record to process.
    :param stop: offset after the last record to process.
    """

    __slots__ = ("_cursor", "_records", "complete", "partition", "position", "stop")

    def __init__(self, partition: TopicPartition, *, start: int, stop: int) -> None:
        self.partition = partition
        self.stop = stop
        #: Offset after the last record handed out; the committable offset.
        self.position = start
        #: Whether every record up to the stop offset is buffered or was handed out.
        self.complete = start >= stop
        self._records: list[Record] = []
        self._cursor = 0

    def __len__(self) -> int:
        return len(self._records) - self._cursor

    @property
    def drained(self) -> bool:
        """Whether nothing is left to hand out, now or later."""
        return self.complete and not len(self)

    def add(self, records: Sequence[Record]) -> None:
        """Buffer records in offset order; whatever lies at or past the stop offset is left out."""
        if self.complete or not records:
            return
        if records[-1].offset() >= self.stop:
            records = records[: bisect_left(records, self.stop, key=_offset_of)]
            self.complete = True
        if self._cursor:
            del self._records[: self._cursor]
            self._cursor = 0
        self._records.extend(records)
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

    def head_timestamp_ms(self) -> int:
        """Return the timestamp of the next record; the queue must not be empty."""
        return self._records[self._cursor].timestamp()[1]

    def take(self, limit: int) -> Sequence[Record]:
        """Hand out up to ``limit`` records."""
        start = self._cursor
        taken = self._records[start : start + limit]
        self._advance(taken)
        return taken

    def take_while(self, limit: int, bound: tuple[int, TopicPartition]) -> Sequence[Record]:
        """Hand out up to ``limit`` records as long as (timestamp, partition) stays below a bound; at least
        one.
        """
        taken: list[Record] = []
        partition = self.partition
        for record in islice(self._records, self._cursor, self._cursor + limit):
            if taken and (record.timestamp()[1], partition) > bound:
                break
            taken.append(record)
        self._advance(taken)
        return taken

    def _advance(self, taken: Sequence[Record]) -> None:
        if taken:
            self._cursor += len(taken)
            self.position = taken[-1].offset() + 1
            self._settle()

    def _settle(self) -> None:
        if self.complete and self._cursor >= len(self._records):
            self.position = max(self.position, self.stop)
            self._records.clear()
            self._cursor = 0


class PartitionGroup:
    """The record queues of one task.

    :param bounds: start and stop offset of each partition.
    :param buffered: records an unfinished partition must hold before any record is chosen among several.
    """

    def __init__(self, bounds: Mapping[TopicPartition, tuple[int, int]], *, buffered: int) -> None:
        self._queues = {
            partition: RecordQueue(partition, start=start, stop=stop)
            for partition, (start, stop) in sorted(bounds.items())
        }
        self._buffered = buffered

    @property
    def complete(self) -> bool:
        """Whether every record of every partition was handed out."""
        return all(queue.drained for queue in self._queues.values())

    def add(self, partition: TopicPartition, records: Sequence[Record]) -> None:
        """Buffer fetched records."""
        self._queues[partition].add(records)

    def reached(self, partition: TopicPartition, end: int) -> None:
        """Take note that a partition has no more records below an offset."""
        self._queues[partition].reached(end)

    def extend(self, partition: TopicPartition, stop: int) -> None:
        """Move a partition's stop offset further; what lies before it must still be added or reached."""
        self._queues[partition].extend(stop)

    def positions(self) -> dict[TopicPartition, int]:
        """Return the committable offset of every partition."""
        return {partition: queue.position for partition, queue in self._queues.items()}

    def stops(self) -> dict[TopicPartition, int]:
        """Return the stop offset of every partition."""
        return {partition: queue.stop for partition, queue in self._queues.items()}

    def unfinished(self) -> list[TopicPartition]:
        """Return the partitions that still have to be fetched."""
        return [partition for partition, queue in self._queues.items() if not queue.complete]

    def ahead(self) -> list[TopicPartition]:
        """Return the partitions whose queue is full enough while another one keeps the task waiting."""
        full = [p for p, queue in self._queues.items() if not queue.complete and len(queue) >= self._buffered]
        waiting = any(not queue.complete and len(queue) < self._buffered for queue in self._queues.values())
        return full if waiting else []

    def next_run(self, limit: int) -> tuple[TopicPartition, Sequence[Record]] | None:
        """Choose the next records, all of one partition, in processing order.

        :param limit: the most records to hand out.
        :return: None when no record may be chosen now: more must be fetched, or all are processed.
        """
        live = [queue for queue in self._queues.values() if not queue.drained]
        if not live:
            return None
        if len(live) == 1:
            queue = live[0]
            return (queue.partition, queue.take(limit)) if len(queue) else None
        if any(not queue.complete and len(queue) < self._buffered for queue in live):
            return None
        (_, first), *others = sorted((queue.head_timestamp_ms(), queue.partition) for queue in live)
        queue = self._queues[first]
        if not queue.complete:
            limit = min(limit, len(queue) - self._buffered + 1)
        return first, queue.take_while(limit, others[0])
