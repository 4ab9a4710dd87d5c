"""Counts the records that an application has not processed, each once however often it is asked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from airflow_kstreams.batch.inspect.conditions import NewRecords
from airflow_kstreams.batch.inspect.round_memory import RoundMemory
from airflow_kstreams.streams.bounded_read import BoundedRead
from airflow_kstreams.streams.ports import AdminPort, Clock, ReaderPort, TopicPartition

_MAX_RECORDS = 10_000


@dataclass(slots=True, kw_only=True)
class _Count:
    """Records of one partition counted so far.

    :param processed: up to where runs had it; the first offset that counts is this, or the log's start after
        it.
    :param start: the first offset that counts.
    :param position: where to go on.
    :param count: records in ``[start, position)``.
    :param oldest_ms: timestamp of the first one.
    """

    processed: int
    start: int
    position: int
    count: int = 0
    oldest_ms: int | None = None

    def is_stale(self, processed: int, end: int) -> bool:
        """Whether runs went on, a reset moved the offsets, or the topic was made anew since."""
        return self.processed != processed or self.position > max(end, self.start)


class NewRecordCounts:
    """Counts that go on from round to round, as far as they are asked for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: RoundMemory[tuple[str, TopicPartition], _Count] = RoundMemory()

    def next_round(self) -> None:
        """Forget the counts that were not asked for in the last round."""
        self._counts.next_round()

    def up_to(
        self,
        ends: Mapping[TopicPartition, int],
        *,
        application_id: str,
        processed: Mapping[TopicPartition, int],
        at_most: int,
        admin: Callable[[], AdminPort],
        reader: Callable[[], ReaderPort],
    ) -> NewRecords:
        """Count committed records from the processed offsets, or the log starts, to the ends, up to a number.

        :param ends: last stable offset of each partition.
        :param admin: gives a client, where one is needed.
        :param reader: the same; what it was assigned before is lost.
        """
        counts = self._counts_from(application_id, processed, ends, admin)
        waiting = {tp for tp, count in counts.items() if count.position < ends[tp]}
        total = sum(count.count for count in counts.values())
        if waiting and total < at_most:
            self._go_on(reader(), counts, waiting, ends, at_most - total)
        per_topic: dict[str, int] = {}
        for tp, count in counts.items():
            per_topic[tp.topic] = per_topic.get(tp.topic, 0) + count.count
        oldest = [count.oldest_ms for count in counts.values() if count.oldest_ms is not None]
        return NewRecords(sum(per_topic.values()), per_topic, min(oldest, default=None))

    def _counts_from(
        self,
        application_id: str,
        processed: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        admin: Callable[[], AdminPort],
    ) -> dict[TopicPartition, _Count]:
        """Return the counts kept of partitions, new ones in place of those that are stale."""
        counts = {tp: self._counts.get((application_id, tp)) for tp in ends}
        kept = {
            tp: count
            for tp, count in counts.items()
            if count is not None and not count.is_stale(processed.get(tp, 0), ends[tp])
        }
        asked = [tp for tp in ends if tp not in kept]
        log_starts = admin().start_offsets(asked) if asked else {}
        for tp in asked:
            at = processed.get(tp, 0)
            start = max(at, log_starts[tp])
            kept[tp] = _Count(processed=at, start=start, position=start)
            self._counts.put((application_id, tp), kept[tp])
        return {tp: kept[tp] for tp in ends}

    def _go_on(
        self,
        reader: ReaderPort,
        counts: Mapping[TopicPartition, _Count],
        waiting: Collection[TopicPartition],
        ends: Mapping[TopicPartition, int],
        left: int,
    ) -> None:
        """Go on counting, until the ends or until enough were found."""
        spans = {tp: (counts[tp].position, ends[tp]) for tp in sorted(waiting)}
        read = BoundedRead(reader, spans, clock=self._clock, max_records=min(left, _MAX_RECORDS))
        for fetched in read:
            for tp, records in fetched.items():
                count = counts[tp]
                if count.oldest_ms is None:
                    count.oldest_ms = records[0].timestamp()[1]
                count.count += len(records)
                left -= len(records)
            read.max_records = min(left, _MAX_RECORDS)
            if left <= 0:
                read.stop()
        for tp, position in read.positions.items():
            counts[tp].position = position
