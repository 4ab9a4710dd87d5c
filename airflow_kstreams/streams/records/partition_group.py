"""Holds the partitions of one task, and chooses the record that comes next.

Rule (determinism): a record is chosen only when every unfinished partition holds
``buffered.records.per.partition`` records or all up to its stop offset; the smallest head timestamp goes
first, ties by (topic, partition). A finished, drained partition no longer counts.

A partition that is read for ever (continuous mode) counts as finished while it has caught up: from the time
at which the reader has seen the end of its log until the next record comes. So a quiet input keeps no other
one waiting, as with Kafka Streams' ``max.task.idle.ms=0``; the order then depends on the records' arrival,
too.

Stream time of a topic is the smallest partition time of its undrained partitions; see ``record_queue.py`` for
partition time. Where all of the task's are drained, it is the largest timestamp of the topic's records, as it
is when they are in order: else a last record out of order would hold closed windows back, until the next run
reads past it. So a stop can make a record behind it late that lies out of order, as it can without such a
record before it; with grace enough for that, results are the same wherever runs are cut.

Invariant, up to stop offsets: the order of the chosen records, and stream time at each of them, are functions
of the logs alone. The order of fetches, their sizes, and the place where an earlier attempt crashed decide
only *when* a record may be chosen, never *which*: the choice looks at heads and full buffers only.

Invariant, over stop offsets: where a slice is a prefix of the order without stops, its records come in that
order, since a head that is smallest among all is smallest among those before their stops. Cuts at the first
record of each partition that is dated at or past one moment give such prefixes: up to there every head before
a cut is dated before the moment, and every head at a cut at or past it. Other stops change the order across
partitions, never within one.

Two cursors: a task with asynchronous nodes takes records one by one (:meth:`PartitionGroup.take`) and
releases each, in the same order, when all of its work is done. While records of a partition are under way,
everything that is to be committed of it is as of the last one released. Any other task has one cursor: it
advances.

A partition that waits is looked at and not read: its ancestors, from which its keys came when the topic
gained it, are drained first, in this run and perhaps others. Its first records hold stream time of every
topic of the task, so that none of them will be late because of the wait, for a window or for a join.

Records come out in runs of one partition (as many as the rule allows in a row), so that the hot loop pays for
the choice once per run and a task with one live partition pays nothing at all. Where partitions alternate,
runs are short; a task that needs no stream time then asks for a mixed run, which is chosen as a whole.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar

from airflow_kstreams.streams.graph.services import NEVER
from airflow_kstreams.streams.ports import Record, TopicPartition
from airflow_kstreams.streams.records.record_queue import (
    LastRecord,
    PartitionTimes,
    QueueFacts,
    ReadTimestamps,
    RecordQueue,
)
from airflow_kstreams.streams.records.timestamp_reading import (
    LatestAllowed,
    RecordTimestamps,
    implausible_times,
    no_bound,
)

T = TypeVar("T")

#: A partition is paused when it is so many full buffers ahead, and resumed when fewer than so many are left:
#: a client that pauses a partition drops what it has fetched of it, and fetches it once more.
PAUSED_BUFFERS, RESUMED_BUFFERS = 10, 5


class RecordRun(NamedTuple):
    """Records to process next, all of one partition, in processing order.

    :param partition: topic and partition of all of them.
    :param records: the records, one or more.
    :param timestamps_ms: timestamp of each record, epoch milliseconds.
    :param stream_times_ms: stream time of the topic at each record; empty unless the group is timed.
    """

    partition: TopicPartition
    records: Sequence[Record]
    timestamps_ms: Sequence[int]
    stream_times_ms: Sequence[int]


class MixedRun(NamedTuple):
    """Records to process next, of several partitions, in processing order.

    :param counts: partition -> number of its records.
    :param records: the records, one or more.
    :param timestamps_ms: timestamp of each record, epoch milliseconds.
    :param topics: topic of each record.
    """

    counts: Mapping[TopicPartition, int]
    records: Sequence[Record]
    timestamps_ms: Sequence[int]
    topics: Sequence[str]


class PartitionGroup:
    """The record queues of one task.

    :param bounds: partition -> (start offset, stop offset).
    :param buffered: number of records that an unfinished partition must hold before a record is chosen among
        several partitions.
    :param timed: True if stream time is used; then a single partition waits for a full buffer, too.
    :param times: partition -> its times as committed by earlier attempts and runs.
    :param last_records: partition -> the last record before its start, where it is known.
    :param read_timestamps: partition -> reader of its records' timestamps, where an extractor gives them.
    :param allowed: function that gives a partition's bound on its records' timestamps; None for no bound.
    :param looked_at: partition that waits for its ancestors -> (start offset, end offset) of the records that
        are read ahead for their times only.
    """

    def __init__(  # noqa: PLR0913 - all but two have defaults
        self,
        bounds: Mapping[TopicPartition, tuple[int, int]],
        *,
        buffered: int,
        timed: bool = False,
        times: Mapping[TopicPartition, PartitionTimes] | None = None,
        last_records: Mapping[TopicPartition, LastRecord] | None = None,
        read_timestamps: Mapping[TopicPartition, ReadTimestamps] | None = None,
        allowed: Callable[[TopicPartition], LatestAllowed] | None = None,
        looked_at: Mapping[TopicPartition, tuple[int, int]] | None = None,
    ) -> None:
        known = times or {}
        self._timed = timed
        self._buffered = buffered
        self._queues: dict[TopicPartition, RecordQueue] = {}
        #: The first records of partitions that wait for their ancestors; empty where no stream time is used.
        self._waiting: dict[TopicPartition, RecordQueue] = {}
        #: Partition with records under way -> (their number, the facts to commit).
        self._under_way: dict[TopicPartition, tuple[int, QueueFacts]] = {}
        for partition, start_and_stop in sorted(bounds.items()):
            queues = [(self._queues, start_and_stop)]
            if timed and looked_at and partition in looked_at:
                queues.append((self._waiting, looked_at[partition]))
            left = known.get(partition, PartitionTimes())
            latest_allowed = no_bound if allowed is None else allowed(partition)
            reading = (read_timestamps or {}).get(partition) or RecordTimestamps(
                latest_ms=left.latest_ms, allowed=latest_allowed, timed=timed
            )
            for kept, its_bounds in queues:
                kept[partition] = RecordQueue(
                    partition,
                    its_bounds,
                    buffered=buffered,
                    times=left,
                    read_timestamps=reading,
                    last=(last_records or {}).get(partition, LastRecord()),
                    allowed=latest_allowed,
                )

    @property
    def complete(self) -> bool:
        """True if every record of every partition was processed."""
        return not self._under_way and all(queue.drained for queue in self._queues.values())

    @property
    def skipped(self) -> int:
        """Number of records below the positions that this attempt left out because of their time."""
        return sum(facts.skipped for _, facts in self._committable())

    def skipped_by_topic(self) -> dict[str, int]:
        """Return topic -> number of its records below the positions that this attempt left out, if any."""
        skipped: dict[str, int] = {}
        for partition, facts in self._committable():
            if facts.skipped:
                skipped[partition.topic] = skipped.get(partition.topic, 0) + facts.skipped
        return skipped

    @property
    def misdated(self) -> int:
        """Number of records below the positions that this attempt processed with an implausible time."""
        return sum(facts.misdated for _, facts in self._committable())

    def misdated_warning(self) -> str:
        """Return a warning of the records with an implausible time, empty if there are none."""
        found = {partition: facts for partition, facts in self._committable() if facts.misdated}
        if not found:
            return ""
        latest_ms = {partition: facts.latest_ms for partition, facts in found.items()}
        return implausible_times(self.misdated, {partition.topic for partition in found}, latest_ms)

    def keep_only(self, partition: TopicPartition, interval_ms: tuple[int, int]) -> None:
        """Leave out every record of a partition that is dated outside an interval, from the first one on."""
        self._queues[partition].keep_only(interval_ms)

    def add(self, partition: TopicPartition, records: Sequence[Record]) -> None:
        """Buffer fetched records."""
        self._fetched(partition).add(records)

    def reached(self, partition: TopicPartition, end: int) -> None:
        """Note that a partition has no more records below an offset."""
        self._fetched(partition).reached(end)

    def add_live(self, partition: TopicPartition, records: Sequence[Record]) -> None:
        """Buffer fetched records of a partition that is read for ever."""
        queue = self._queues[partition]
        queue.reopen()
        queue.add(records)

    def caught_up(self, partition: TopicPartition, end: int) -> None:
        """Note that a partition that is read for ever has no more records for now."""
        self._queues[partition].caught_up(end)

    def extend(self, partition: TopicPartition, stop: int) -> None:
        """Move a partition's stop offset further; the records before it must still be added or reached."""
        self._queues[partition].extend(stop)

    def positions(self) -> dict[TopicPartition, int]:
        """Return the committable offset of every partition."""
        return {partition: facts.position for partition, facts in self._committable()}

    def stops(self) -> dict[TopicPartition, int]:
        """Return the stop offset of every partition."""
        return {partition: queue.stop for partition, queue in self._queues.items()}

    def read_to(self, partition: TopicPartition) -> int:
        """Return the offset after the last record to fetch of a partition."""
        return self._fetched(partition).stop

    def partition_times(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return (partition time, largest timestamp processed) of every partition."""
        return {partition: (facts.time_ms, facts.latest_ms) for partition, facts in self._committable()}

    def latest_times(self) -> dict[str, int]:
        """Return topic -> its largest timestamp, or the smaller time to which partitions that wait for their
        ancestors hold stream time. Empty before every record of every partition was processed.
        """
        if not self.complete or not all(queue.ready for queue in self._waiting.values()):
            return {}
        held_ms = min((queue.floor_ms() for queue in self._waiting.values() if len(queue)), default=NEVER)
        latest: dict[str, int] = {}
        for partition, queue in self._queues.items():
            latest[partition.topic] = max(latest.get(partition.topic, -1), min(queue.latest_ms, held_ms))
        return latest

    def last_records(self) -> dict[TopicPartition, LastRecord]:
        """Return the last record below the committable offset of every partition."""
        return {partition: facts.last_record for partition, facts in self._committable()}

    def unfinished(self) -> list[TopicPartition]:
        """Return the partitions that still have to be fetched."""
        looked_at = [partition for partition, queue in self._waiting.items() if not queue.ready]
        return [*(partition for partition, queue in self._queues.items() if not queue.complete), *looked_at]

    def ahead(self, paused: Collection[TopicPartition] = ()) -> list[TopicPartition]:
        """Return the partitions with so many buffered records that they need not be fetched for now, while
        another partition keeps the task waiting.

        :param paused: partitions whose fetching is paused; they stay so until fewer records are left.
        """
        if all(queue.ready for queue in self._queues.values()):
            return []
        return [
            partition
            for partition, queue in self._queues.items()
            if not queue.complete
            and len(queue) >= self._buffered * (RESUMED_BUFFERS if partition in paused else PAUSED_BUFFERS)
        ]

    def choose(self, limit: int) -> RecordRun | None:
        """Choose the next records; they count as processed after :meth:`advance`.

        :param limit: most records to return.
        :return: the records; None when no record may be chosen now: more must be fetched, or all are
            processed.
        """
        live = [queue for queue in self._queues.values() if not queue.drained]
        if not live or (self._waiting and not all(queue.ready for queue in self._waiting.values())):
            return None
        if len(live) == 1:
            queue = live[0]
            if not (queue.ready if self._timed else len(queue)):
                return None
            count = min(limit, queue.most_ready() if self._timed else len(queue))
        else:
            queue = other = live[0]
            first_ms = next_ms = NEVER
            for each in live:  # sorted by partition: of equal heads, the first one goes first
                if not each.ready:
                    return None
                head_ms = each.head_ms()
                if head_ms < first_ms:
                    other, next_ms = queue, first_ms
                    queue, first_ms = each, head_ms
                elif head_ms < next_ms:
                    other, next_ms = each, head_ms
            count = queue.count_below((next_ms, other.partition), min(limit, queue.most_ready()))
        records, timestamps_ms = queue.head(count)
        stream_times_ms = self._stream_times(queue, live, count) if self._timed else ()
        return RecordRun(queue.partition, records, timestamps_ms, stream_times_ms)

    def mix(self, limit: int) -> MixedRun | None:
        """Choose the next records, in the order in which calls of :meth:`choose` would, for a group that is
        not timed; they count as processed after :meth:`advance` for each partition.

        A queue's head keeps the records behind it from being chosen, so each record is placed by the largest
        timestamp up to it in its queue. So the queues are merged as sorted lists, up to the last known record
        of the first one that ends.

        :param limit: most records to return, one or more.
        :return: the records; None when fewer than two partitions are left, or no record may be chosen now.
        """
        live = [queue for queue in self._queues.values() if not queue.drained]
        ways = len(live)
        if ways < 2 or not all(queue.ready for queue in live):
            return None
        # By timestamp, then by partition.
        moments = [[ms * ways + way for ms in queue.rising(limit)] for way, queue in enumerate(live)]
        order = sorted(chain.from_iterable(moments))
        del order[min(limit, bisect_right(order, min(known[-1] for known in moments))) :]
        chosen = [moment % ways for moment in order]
        counts = {queue.partition: chosen.count(way) for way, queue in enumerate(live)}
        heads = [queue.head(counts[queue.partition]) for queue in live]
        topics = [queue.partition.topic for queue in live]
        return MixedRun(
            counts,
            _mixed([records for records, _ in heads], chosen),
            _mixed([timestamps_ms for _, timestamps_ms in heads], chosen),
            [*map(topics.__getitem__, chosen)],
        )

    def advance(self, partition: TopicPartition, count: int) -> None:
        """Note that the first ``count`` of the records chosen last were processed."""
        self._queues[partition].advance(count)

    def take(self, partition: TopicPartition) -> QueueFacts:
        """Take the first of the records chosen last that was not taken; its processing may end after others
        have been taken.

        :return: the partition's facts to commit once the record is released.
        """
        queue = self._queues[partition]
        number, standing = self._under_way.get(partition) or (0, queue.facts())
        self._under_way[partition] = (number + 1, standing)
        return queue.take()

    def release(self, taken: QueueFacts) -> None:
        """Note that the first record under way of its partition was processed.

        :param taken: the facts that :meth:`take` returned for it.
        """
        number, _ = self._under_way.pop(taken.partition)
        if number > 1:
            self._under_way[taken.partition] = (number - 1, taken)

    def _fetched(self, partition: TopicPartition) -> RecordQueue:
        """Return the queue that takes the fetched records of a partition."""
        waiting = self._waiting.get(partition)
        return self._queues[partition] if waiting is None else waiting

    def _committable(self) -> list[tuple[TopicPartition, QueueFacts | RecordQueue]]:
        """Return pairs of partition and its facts to commit."""
        under_way = self._under_way
        if not under_way:
            return [*self._queues.items()]
        return [
            (partition, under_way[partition][1] if partition in under_way else queue)
            for partition, queue in self._queues.items()
        ]

    def _stream_times(self, queue: RecordQueue, live: Sequence[RecordQueue], count: int) -> Sequence[int]:
        times = queue.head_times(count)
        topic = queue.partition.topic
        siblings = [q.floor_ms() for q in live if q is not queue and q.partition.topic == topic]
        siblings += [waits.floor_ms() for waits in self._waiting.values() if len(waits)]
        if not siblings:
            return times
        bound = min(siblings)
        return [time_ms if time_ms < bound else bound for time_ms in times]


def _mixed(rows: Sequence[Sequence[T]], order: Sequence[int]) -> list[T]:
    """Return the elements of all rows in one list.

    :param order: for each element of the result, the index of the row that it comes from.
    """
    iterators = [iter(row) for row in rows]
    return [*map(next, map(iterators.__getitem__, order))]
