"""Writes topics in memory in transactions, as a task does: all of a commit or nothing of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_kstreams.streams.partitioning.linear_hashing import partition_of_key
from airflow_kstreams.streams.ports import Headers, TopicPartition

#: Kafka's timestamp type "create time".
_CREATE_TIME = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class InMemoryRecord:
    """A record in a topic, with the attributes of the port ``Record``."""

    at: TopicPartition
    position: int
    key_bytes: bytes | None
    value_bytes: bytes | None
    timestamp_ms: int
    header_list: Headers | None

    def topic(self) -> str:
        """Return the topic's real name."""
        return self.at.topic

    def partition(self) -> int:
        """Return the partition."""
        return self.at.partition

    def offset(self) -> int:
        """Return the offset in the partition."""
        return self.position

    def key(self) -> bytes | None:
        """Return the serialized key."""
        return self.key_bytes

    def value(self) -> bytes | None:
        """Return the serialized value."""
        return self.value_bytes

    def timestamp(self) -> tuple[int, int]:
        """Return the timestamp's type and the timestamp, epoch milliseconds."""
        return _CREATE_TIME, self.timestamp_ms

    def headers(self) -> Headers | None:
        """Return the headers in order."""
        return self.header_list

    def leader_epoch(self) -> int | None:
        """Return None: there are no leaders."""
        return None


class InMemoryTopics:
    """Gives records their partition and offset, but does not keep them.

    :param partitions: partition count of every topic of the topology, real names; other topics have one.
    """

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self.partitions = dict(partitions)
        self._ends = {
            TopicPartition(topic, partition): 0
            for topic, count in partitions.items()
            for partition in range(count)
        }
        self._keyless = dict.fromkeys(partitions, 0)
        self._open: list[InMemoryRecord] = []

    def append(self, record: InMemoryRecord) -> InMemoryRecord:
        """Write a record at the end of its partition, in no transaction.

        :return: the record with its offset.
        """
        offset = self._ends.get(record.at, 0)
        self._ends[record.at] = offset + 1
        return InMemoryRecord(
            at=record.at,
            position=offset,
            key_bytes=record.key_bytes,
            value_bytes=record.value_bytes,
            timestamp_ms=record.timestamp_ms,
            header_list=record.header_list,
        )

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        timestamp_ms: int,
        headers: Headers | None,
    ) -> None:
        """Write a record in the open transaction, see ``WriterPort``."""
        if partition < 0:
            partition = self.partition_for(topic, key)
        self._open.append(
            InMemoryRecord(
                at=TopicPartition(topic, partition),
                position=-1,
                key_bytes=key,
                value_bytes=value,
                timestamp_ms=timestamp_ms,
                header_list=headers,
            )
        )

    def partition_for(self, topic: str, key: bytes | None) -> int:
        """Return the partition of a serialized key, by Java's default partitioner; records without key are
        spread in turn.
        """
        count = self.partitions.get(topic, 1)
        if key is not None:
            return partition_of_key(key, count, count)
        turn = self._keyless.get(topic, 0)
        self._keyless[topic] = turn + 1
        return turn % count

    def commit(self) -> list[InMemoryRecord]:
        """Commit, and return the records of the transaction in the order they were written, with offsets."""
        written, self._open = self._open, []
        return [self.append(record) for record in written]
