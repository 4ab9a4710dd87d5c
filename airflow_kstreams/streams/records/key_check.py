"""Checks that the keys of a topic that has grown lie in the partitions in which its kind of growth puts them.

Rule: every key of such a topic is checked before its record is buffered. A kind of growth that would not
put it into its partition, at any count of the topic's history, is ruled out. When no kind is left, the
topic's producers place keys in a way that parts them from their state, and the task fails before it touches
the state.

Where processors were added, a key may still lie in a partition of the task that had it before, if a producer
went on with the counts it knew. This task would process it without the key's state. So such a record is not
processed: when its turn comes, ``processing.exception.handler`` decides. As a dead letter it comes back to
the task that has the key (``batch/replay/destinations.py``).

Invariant: the possible kinds are those that all checked keys allow. A key that was seen in its partition
excludes nothing more, so it is not checked again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.partitioning.linear_hashing import key_hash
from airflow_kstreams.streams.partitioning.processors import Processors
from airflow_kstreams.streams.partitioning.topic_growth import GrownTopic, GrowthKind, places
from airflow_kstreams.streams.ports import Record, TopicPartition
from airflow_kstreams.streams.records.timestamp_reading import UnfitRecord

#: Most keys of a partition that are remembered; some 10 MB of short ones.
_SEEN_KEYS = 100_000

#: Serialized key -> the bytes of it that decide its partition.
PartitionBytes = Callable[[bytes], bytes]


class KeyCheck:
    """The topics of one task that have grown.

    :param grown: real name of a topic -> its growth.
    :param partition_bytes: topic in which not all bytes of a key decide its partition -> the function that
        gives the bytes that do.
    :param task_id: the task's id, for messages.
    :param group: number of the task's partition group.
    :param processors: the processors, by which a key's task is found; None where all keys of a partition have
        one task.
    """

    def __init__(
        self,
        grown: Mapping[str, GrownTopic],
        partition_bytes: Mapping[str, PartitionBytes],
        *,
        task_id: str,
        group: int,
        processors: Processors | None = None,
    ) -> None:
        self._grown = grown
        self._partition_bytes = partition_bytes
        self._task_id = task_id
        self._group = group
        self._processors = processors
        self._possible = {topic: set(growth.kinds) for topic, growth in grown.items()}
        self._seen: dict[TopicPartition, set[bytes]] = {}

    def look_at(self, partition: TopicPartition, records: Sequence[Record], end: int) -> Sequence[Record]:
        """Check the keys of records of one partition.

        :param end: offset after the last record of the slice.
        :return: the records; one whose key has its state with another task is an :class:`UnfitRecord`.
        :raises TopologyError: a key lies in a partition in which no kind of growth puts it.
        """
        growth = self._grown.get(partition.topic)
        if growth is None:
            return records
        seen, moved = self._seen.setdefault(partition, set()), dict[int, MovedKeyError]()
        for index, record in enumerate(records):
            key = record.key()
            if key is None or key in seen or record.offset() >= end:
                continue
            home = self._home(growth, partition, record.offset(), key)
            if home != self._group:
                moved[index] = MovedKeyError(
                    f"its key has its state with task {self._task_id.rpartition('_')[0]}_{home} since "
                    f"processors were added; its producer placed it as if {partition.topic} had not grown to "
                    f"{counted(growth.history[-1], 'partition')}"
                )
                continue
            if len(seen) >= _SEEN_KEYS:
                seen.clear()
            seen.add(key)
        if not moved:
            return records
        return [
            UnfitRecord(record, moved[index]) if index in moved else record
            for index, record in enumerate(records)
        ]

    def ruled_out(self, topic: str) -> tuple[GrowthKind, ...]:
        """Return the kinds of growth that keys exclude, of those that were possible at first."""
        growth = self._grown.get(topic)
        if growth is None:
            return ()
        return tuple(kind for kind in growth.kinds if kind not in self._possible[topic])

    def _home(self, growth: GrownTopic, partition: TopicPartition, offset: int, key: bytes) -> int:
        """Return the partition group of the task that has a key's state.

        :raises TopologyError: the key lies in a partition in which no kind of growth puts it.
        """
        possible = self._possible[partition.topic]
        hashed = key_hash(self._hashed_bytes(key, partition.topic, f"keys of topic {partition.topic!r}"))
        allowing = {kind for kind in possible if partition.partition in places(hashed, growth.history, kind)}
        if allowing:
            self._possible[partition.topic] = allowing
            return self._group if self._processors is None else self._processors.of_hash(hashed)
        counts = " -> ".join(map(str, growth.history))
        expected = "; ".join(
            f"{kind}: {', '.join(map(str, sorted(places(hashed, growth.history, kind))))}"
            for kind in growth.kinds
        )
        others = (
            "" if len(possible) == len(growth.kinds) else f" (keys before it leave {' or '.join(possible)})"
        )
        raise TopologyError(
            f"task {self._task_id}: topic {partition.topic} grew over {counts} partitions, and the key of "
            f"{partition}@{offset} is in a partition that this growth does not give it (expected {expected})"
            f"{others}: another task has the key's state",
            fix="have all producers of the topic place keys by Kafka's default partitioner and grow it to "
            "multiples only, or use the LinearHashPartitioner; or go through repartition(n), then start over "
            "with empty state; if the topic began with another count than the recorded "
            f"{growth.history[0]}, or all that is read was written by one, start over with "
            f"initial.partitions={partition.topic}=<that count>, for what is recorded outlives state",
        )

    def _hashed_bytes(self, key: bytes, topic: str, _serde_of: str) -> bytes:
        whole = self._partition_bytes.get(topic)
        return key if whole is None else whole(key)


class MovedKeyError(ValueError):
    """A record lies in a partition from which its key has moved away; the processing handler takes it."""

    own_words = True  # the text holds no data of a user's
