"""Keeps the newest record of each key of changelog topics in memory, as after compaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing.in_memory_topics import InMemoryRecord


class KeptChangelogs:
    """Keeps the records of changelogs, from which stores are restored.

    :param topics: the changelogs, real names; records of other topics are not kept.
    """

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = frozenset(topics)
        self._kept: dict[TopicPartition, dict[bytes | None, InMemoryRecord]] = {}

    def add(self, records: Sequence[InMemoryRecord]) -> None:
        """Keep committed records; a tombstone ends its key."""
        for record in records:
            if record.at.topic in self._topics:
                kept = self._kept.setdefault(record.at, {})
                kept.pop(record.key_bytes, None)
                if record.value_bytes is not None:
                    kept[record.key_bytes] = record

    def of(self, partition: TopicPartition) -> list[InMemoryRecord]:
        """Return the records of a partition in the order of their offsets."""
        return list(self._kept.get(partition, {}).values())
