"""Reads partitions from known starts to known ends, and divides offsets into requests that a group's
coordinator can take.

One loop serves all reads that end. Rule: ``[from, to)`` of every partition, no more. A partition is read to
its end when a record at or past ``to - 1`` came, or an end of partition at or past ``to``: offsets have gaps
(compaction, transactions), so records alone do not prove the end. A partition that ends first is paused, so
that it is not fetched while the read waits for others.

A caller that needs whole transactions asks for them: the read then goes on until the reader reports an end of
partition at or past ``to``, because the last fetched records may be the first part of a transaction that came
meanwhile. Records past ``to`` are yielded then, too.

Every fetch is yielded to the caller, the empty ones as well, so that a caller with a bound of its own can
:meth:`BoundedRead.stop`. The read ends without an assignment of the reader, for assigned partitions would go
on being fetched in the background; after an error the assignment stays.

The coordinator writes the offsets of one request as one batch of its own topic, and refuses a request that
does not fit there (about 1 MB): 3,400 offsets with 298 bytes beside each do not. Several requests of one
transaction become visible together, because the transaction commits them together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from airflow_kstreams.streams.errors import KafkaClientError, KStreamsError
from airflow_kstreams.streams.ports import Clock, CommittedOffset, Fetched, ReaderPort, Record, TopicPartition

#: Most offsets of one request, to commit them or to ask for committed ones.
PORTION_OFFSETS = 1_000
#: Most bytes of one request, half of what the smallest coordinator takes.
PORTION_BYTES = 500_000
#: Bytes of an offset in the coordinator's batch, without topic and metadata.
_OVERHEAD_BYTES = 64
_FETCH_RECORDS = 10_000
_FETCH_SECONDS = 0.2
#: Seconds without a record or an end of partition after which a read fails: longer than any wait for an open
#: transaction, during which a reader gets nothing.
_SILENCE_SECONDS = 35.0
#: Partition -> (from, to), half open.
Spans = Mapping[TopicPartition, tuple[int, int]]
#: One fetch: records by partition, in offset order.
Records = Mapping[TopicPartition, Sequence[Record]]


class BoundedRead:
    """One read; iterate over it once. It leaves the reader alone when there is nothing to read.

    :param reader: reader to use; its assignment is replaced.
    :param spans: partition -> (offset of the first record, offset after the last one); a span whose end is
        not past its start is left out.
    :param clock: clock for waits; None for the machine's.
    :param max_records: most records of one fetch.
    :param poll_seconds: longest wait of one fetch.
    :param patience: bound of the wait.
    :param whole_transactions: True to read on until an end of partition, see above.
    :ivar positions: partition -> offset of the next record to read.
    :ivar ends: partition -> the last end of partition that the reader reported.
    """

    def __init__(
        self,
        reader: ReaderPort,
        spans: Spans,
        *,
        clock: Clock | None = None,
        max_records: int = _FETCH_RECORDS,
        poll_seconds: float = _FETCH_SECONDS,
        patience: Patience | None = None,
        whole_transactions: bool = False,
    ) -> None:
        self._reader = reader
        self._monotonic = time.monotonic if clock is None else clock.monotonic_seconds
        self.max_records = max_records
        self._poll_seconds = poll_seconds
        self._patience = patience or Patience()
        self._whole = whole_transactions
        self._waiting = {tp: stop for tp, (start, stop) in spans.items() if start < stop}
        self.positions = {tp: spans[tp][0] for tp in self._waiting}
        self.ends: dict[TopicPartition, int] = {}

    @property
    def waiting(self) -> tuple[TopicPartition, ...]:
        """The partitions that are not yet read to their end."""
        return tuple(self._waiting)

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Read no more of these partitions."""
        dropped = [tp for tp in partitions if self._waiting.pop(tp, None) is not None]
        if dropped and self._waiting:
            self._reader.pause(dropped)

    def stop(self) -> None:
        """Read no more."""
        self._waiting.clear()

    def __iter__(self) -> Iterator[Records]:
        """Fetch until every partition is at its end, and yield the records of each fetch.

        :raises KStreamsError: the wait was longer than the patience; by default a KafkaClientError.
        """
        if not self._waiting:
            return
        self._reader.assign(dict(self.positions))
        since = self._monotonic()
        while self._waiting:
            fetched = self._reader.poll(max_records=self.max_records, timeout_seconds=self._poll_seconds)
            yield self._taken(fetched)
            since = self._refuse_to_wait(fetched, since)
        self._reader.assign({})

    def _taken(self, fetched: Fetched) -> Records:
        """Move the positions on, and return the fetched records without those past the ends."""
        taken: dict[TopicPartition, Sequence[Record]] = {}
        finished: list[TopicPartition] = []
        for tp, stop in self._waiting.items():
            records, end = fetched.records.get(tp, ()), fetched.ends.get(tp)
            position = self.positions[tp]
            if records:
                position = records[-1].offset() + 1
                if position > stop and not self._whole:
                    records = [record for record in records if record.offset() < stop]
            if end is not None:
                self.ends[tp] = end
                position = max(position, end)
            self.positions[tp] = position if self._whole else min(position, stop)
            if records:
                taken[tp] = records
            if position >= stop and (end is not None or not self._whole):
                finished.append(tp)
        self.drop(finished)
        return taken

    def _refuse_to_wait(self, fetched: Fetched, since: float) -> float:
        """Bound the wait, and return the monotonic time, in seconds, from which it counts."""
        now, patience = self._monotonic(), self._patience
        if patience.since != "start" and (fetched.records or (fetched.ends and patience.since == "anything")):
            return now
        if self._waiting and now - since > patience.seconds:
            if patience.error is not None:
                raise patience.error(self.waiting, now - since)
            self.stop()
        return since


def unanswered(partitions: Sequence[TopicPartition], seconds: float) -> KafkaClientError:
    """Build the error for partitions whose leaders do not answer."""
    return KafkaClientError(
        f"{', '.join(map(str, partitions))}: nothing could be read for {seconds:.0f} s",
        fix="check that the brokers that lead this partition are up, then retry",
        kafka_code="_TIMED_OUT",
        retriable_code=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Bounds the wait of a read.

    :param seconds: longest wait.
    :param since: the event from which it counts: the last record or end of partition, the last record, or the
        start of the read.
    :param error: function that builds the error, given the partitions that are not read to their end and the
        seconds of the wait; None for a read that ends there, incomplete.
    """

    seconds: float = _SILENCE_SECONDS
    since: Literal["anything", "record", "start"] = "anything"
    error: Callable[[Sequence[TopicPartition], float], KStreamsError] | None = unanswered


def portions(
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> Iterator[dict[TopicPartition, CommittedOffset]]:
    """Divide offsets into requests, in their order; none of them is empty."""
    portion: dict[TopicPartition, CommittedOffset] = {}
    size = 0
    for partition, offset in offsets.items():
        more = len(partition.topic) + len(offset.metadata.encode()) + _OVERHEAD_BYTES
        if portion and (len(portion) >= PORTION_OFFSETS or size + more > PORTION_BYTES):
            yield portion
            portion, size = {}, 0
        portion[partition] = offset
        size += more
    if portion:
        yield portion


def partition_portions(partitions: Collection[TopicPartition]) -> Iterator[list[TopicPartition]]:
    """Divide partitions into requests for committed offsets."""
    wanted = list(partitions)
    for at in range(0, len(wanted), PORTION_OFFSETS):
        yield wanted[at : at + PORTION_OFFSETS]
