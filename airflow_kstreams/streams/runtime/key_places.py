"""Chooses the partition of each record that a task writes.

Rule: in a topic that has not grown a key lies where Java's partitioner puts it, by all of its bytes or, of a
windowed key, by those of the key alone; in one that has grown, where linear hashing puts it by the same
bytes. Where the client would find the same place, it is left to the client, which does it faster.
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_kstreams.streams.partitioning.linear_hashing import ANY_PARTITION, places_by_memory
from airflow_kstreams.streams.runtime.task_environment import TaskEnvironment


class KeyPlaces:
    """The partitions of one task's keys, by topic, real names.

    :param environment: knows how many partitions topics have, and had.
    """

    __slots__ = ("_initial", "_partition_count", "_places")

    def __init__(self, environment: TaskEnvironment) -> None:
        self._initial = environment.placements
        self._partition_count = environment.partition_count
        self._places: dict[str, Callable[[bytes], int]] = {}

    def has_grown(self, topic: str) -> bool:
        """Say whether the client does not know where the keys of a topic lie."""
        return topic in self._initial

    def count(self, topic: str) -> int:
        """Return how many partitions a topic has."""
        return self._partition_count(topic)

    def of(self, topic: str) -> Callable[[bytes], int]:
        """Return what gives the partition to which the bytes of a key belong."""
        place = self._places.get(topic)
        if place is None:
            place = self._places[topic] = self._placing(topic)
        return place

    def partition(self, topic: str, key: bytes | None, placed_by: bytes | None) -> int:
        """Return where to send a record.

        :param placed_by: the bytes that decide, where those of the key do not.
        :return: -1 to leave it to the client.
        """
        data = key if placed_by is None and topic in self._initial else placed_by
        return ANY_PARTITION if data is None else self.of(topic)(data)

    def _placing(self, topic: str) -> Callable[[bytes], int]:
        partition_count, initial = self._partition_count, self._initial.get(topic)
        placed = places_by_memory()

        def place(data: bytes) -> int:
            count = partition_count(topic)
            return placed(data, initial or count, count)

        return place
