"""Reads the first keys of partitions, which show how the producers of a topic place them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

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


def to_read(
    session: CoordinatorSession,
    partitions: Sequence[TopicPartition],
    interval_ms: tuple[int, int] | None,
) -> dict[TopicPartition, tuple[int, int]]:
    """Return for each partition the offsets ``[from, to)`` that may be read.

    :param interval_ms: data interval that is to be read, if the run keeps to one, in epoch milliseconds.
    """
    settings, admin = session.settings, session.admin
    starts = admin.start_offsets(partitions)
    ends = admin.end_offsets(partitions, isolation="read_committed")
    if settings.keeps_to_interval and interval_ms is not None:
        found = admin.offsets_for_times(dict.fromkeys(partitions, max(0, interval_ms[0])))
        starts = {tp: found.get(tp, ends[tp]) for tp in partitions}
    else:
        committed = session.committed_so_far(partitions)
        first = starts if settings.first_run_offsets == "earliest" else ends
        starts = {
            tp: max(starts[tp], committed[tp].offset if tp in committed else first[tp]) for tp in partitions
        }
    return {tp: (starts[tp], ends[tp]) for tp in partitions}


def whole(
    session: CoordinatorSession, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return for each partition the offsets ``[from, to)`` that there are."""
    starts = session.admin.start_offsets(partitions)
    ends = session.admin.end_offsets(partitions, isolation="read_committed")
    return {tp: (starts[tp], ends[tp]) for tp in partitions}


def seen_keys(
    session: CoordinatorSession, spans: Spans, placing: Callable[[bytes], bytes | None] = bytes
) -> Iterator[KeySeen]:
    """Yield keys from the beginning of each offset range, each once for each partition.

    :param placing: returns the bytes of a key that decide its partition, None if there are none.
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
                            placed_by = None if key is None else placing(key)
                            if placed_by is not None and len(keys[tp]) < _KEYS:
                                keys[tp].setdefault(placed_by, record.offset())
                    read.drop([tp for tp in some if len(keys[tp]) >= _KEYS or looked[tp] >= _RECORDS])
        except KafkaClientError as error:
            # Records were deleted meanwhile: the freeze reports it.
            if error.code not in POSITION_LOST:
                raise
        yield from (
            KeySeen(key, tp, offset, key_hash(key)) for tp in some for key, offset in keys[tp].items()
        )
