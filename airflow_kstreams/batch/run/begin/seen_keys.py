"""Reads the first keys of partitions, which show how the producers of a topic place them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.protocol.logs.log_read import POSITION_LOST
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.streams.bounded_read import BoundedRead, Spans
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.partitioning.linear_hashing import key_hash
from airflow_kstreams.streams.partitioning.topic_growth import GrowthKind, History, places
from airflow_kstreams.streams.ports import TopicPartition

#: Number of partitions that are looked at: a topic's first ones, from which growth takes keys.
PARTITIONS = 64
_READ_AT_ONCE = 8
#: Number of keys, and of records, of a partition that are looked at.
_KEYS = 32
_RECORDS = 1_000
#: Number of offsets of a partition that are looked at before those that a run may read.
_BACK = 100

#: Returns the bytes of a key that decide its partition, None if there are none.
Placing = Callable[[bytes], bytes | None]


@dataclass(frozen=True, slots=True)
class KeySeen:
    """A key, where it was seen first in a partition, and its hash.

    :param key: the bytes that decide its partition.
    """

    key: bytes
    at: TopicPartition
    offset: int
    hashed: int

    def fits(self, history: History, kind: GrowthKind) -> bool:
        """Return True if growth of this kind puts the key where it lies."""
        return self.at.partition in places(self.hashed, history, kind)

    def __str__(self) -> str:
        return f"{self.at}@{self.offset}"


def first_partitions(topic: str, count: int, most: int = PARTITIONS) -> list[TopicPartition]:
    """Return the first partitions of a topic.

    :param count: number of its partitions.
    :param most: number of those that are looked at.
    """
    return [TopicPartition(topic, number) for number in range(min(count, most))]


class KeyLook:
    """Tells one begin from which offset to which it reads a partition to see its keys. It asks the broker for
    an offset when that is needed first, and remembers the answer.

    :param session: session of the coordinator.
    :param ledger: ledger, which knows where earlier runs left the topics.
    :param interval_ms: data interval that is to be read, if the run keeps to one, in epoch milliseconds.
    """

    def __init__(
        self, session: CoordinatorSession, ledger: Ledger, interval_ms: tuple[int, int] | None
    ) -> None:
        self.session = session
        self._ledger = ledger
        self._interval_ms = interval_ms if session.settings.keeps_to_interval else None
        self._log_starts: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._begun: dict[TopicPartition, int] = {}

    def find_new(self, partitions: Sequence[TopicPartition]) -> set[str]:
        """Return the topics in which something was written since the last run that read them."""
        left = self._ledger.left_at({tp.topic for tp in partitions})
        ends = self._ends_of(partitions)
        return {tp.topic for tp in partitions if ends[tp] > left.get(tp, 0)}

    def to_read(self, partitions: Sequence[TopicPartition]) -> Spans:
        """Return for each partition the offsets ``[from, to)`` that the run may read."""
        ends = self._ends_of(partitions)
        written = [tp for tp in partitions if ends[tp]]
        starts = self._starts_of(written)
        if asked := [tp for tp in written if tp not in self._begun]:
            self._begun |= self._begin_at(asked, starts, ends)
        found = {tp: (max(starts[tp], self._begun[tp]), ends[tp]) for tp in written}
        return {tp: found.get(tp, (0, 0)) for tp in partitions}

    def reaching_back(self, partitions: Sequence[TopicPartition]) -> Spans:
        """Return for each partition the offsets that the run may read, and some before them where these are
        few: what was written last shows how that is placed which comes next.
        """
        left = self._ledger.left_at({tp.topic for tp in partitions})
        first = self.to_read([tp for tp in partitions if tp not in left])
        begun = {**left, **{tp: at for tp, (at, _) in first.items()}}
        return {
            tp: (max(start, min(begun[tp], end - _BACK)), end)
            for tp, (start, end) in self.whole(partitions).items()
        }

    def whole(self, partitions: Sequence[TopicPartition]) -> Spans:
        """Return for each partition the offsets ``[from, to)`` that there are."""
        starts, ends = self._starts_of(partitions), self._ends_of(partitions)
        return {tp: (starts[tp], ends[tp]) for tp in partitions}

    def _begin_at(
        self,
        asked: Sequence[TopicPartition],
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> Mapping[TopicPartition, int]:
        """Return the offsets at which the run would begin to read."""
        settings = self.session.settings
        if self._interval_ms is not None:
            found = self.session.admin.offsets_for_times(dict.fromkeys(asked, max(0, self._interval_ms[0])))
            return {tp: found.get(tp, ends[tp]) for tp in asked}
        committed = self.session.committed_so_far(asked)
        first = starts if settings.first_run_offsets == "earliest" else ends
        return {tp: committed[tp].offset if tp in committed else first[tp] for tp in asked}

    def _starts_of(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        if asked := [tp for tp in partitions if tp not in self._log_starts]:
            self._log_starts |= self.session.admin.start_offsets(asked)
        return self._log_starts

    def _ends_of(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        if asked := [tp for tp in partitions if tp not in self._ends]:
            self._ends |= self.session.admin.end_offsets(asked, isolation="read_committed")
        return self._ends


def seen_keys(
    session: CoordinatorSession, spans: Spans, placings: Mapping[str, Placing] = {}
) -> Iterator[KeySeen]:
    """Yield keys from the beginning of each offset range, each once for each partition.

    :param placings: by topic, returns the bytes of a key that decide its partition, None if there are none;
        all of them unless given.
    """
    wanted = sorted(tp for tp, (start, end) in spans.items() if start < end)
    for at_once in range(0, len(wanted), _READ_AT_ONCE):
        some = wanted[at_once : at_once + _READ_AT_ONCE]
        keys: dict[TopicPartition, dict[bytes, int]] = {tp: {} for tp in some}
        looked = dict.fromkeys(some, 0)
        try:
            with session.reading:
                read = BoundedRead(
                    session.reader,
                    {tp: spans[tp] for tp in some},
                    clock=session.clock,
                    max_records=_RECORDS,
                )
                for fetched in read:
                    for tp, records in fetched.items():
                        looked[tp] += len(records)
                        for record in records:
                            key = record.key()
                            placed_by = None if key is None else placings.get(tp.topic, bytes)(key)
                            if placed_by is not None and len(keys[tp]) < _KEYS:
                                keys[tp].setdefault(placed_by, record.offset())
                    read.drop([tp for tp in some if len(keys[tp]) >= _KEYS or looked[tp] >= _RECORDS])
        except KafkaClientError as error:
            # Records were deleted meanwhile: the freeze reports it.
            if error.kafka_code not in POSITION_LOST:
                raise
        yield from (
            KeySeen(key, tp, offset, key_hash(key)) for tp in some for key, offset in keys[tp].items()
        )
