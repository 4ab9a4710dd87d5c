"""Sinks: what a task runs for each record that it writes to a topic.

Chooses the partition of each record that a task writes.

Rule: in a topic that has not grown a key lies where Java's partitioner puts it, by all of its bytes or, of a
windowed key, by those of the key alone; in one that has grown, where linear hashing puts it by the same
bytes. Where the client would find the same place, it is left to the client, which does it faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_kstreams.streams.graph.nodes import Partitioner, SinkNode
from airflow_kstreams.streams.graph.services import Encoding, LoopCode, WriteCode
from airflow_kstreams.streams.hints.hidden_values import UnfitResultError
from airflow_kstreams.streams.partitioning.linear_hashing import ANY_PARTITION, places_by_memory
from airflow_kstreams.streams.records.dead_letter_format import Produce
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


def sink_code(node: SinkNode, topic: str, *, produce: Produce, places: KeyPlaces) -> WriteCode:
    """Return what writes a sink's lines; they count what they send.

    :param node: with the serdes of its topic.
    :param topic: real name.
    :param places: where keys lie.
    """
    partition_bytes = node.key_serde.partition_bytes
    by_object = None if partition_bytes is None else _of_part(partition_bytes, places.of(topic))
    by_user = None if node.partitioner is None else _by_user(node.partitioner, topic, places)
    by_bytes = None if by_object or not places.has_grown(topic) else places.of(topic)

    key_encoding = Encoding("key", topic, node.key_serde)
    value_encoding = Encoding("value", topic, node.value_serde)

    def write(code: LoopCode, key: str, value: str) -> None:
        encodes_key = (key, key_encoding)
        key_bytes, partition = code.serialized(key, node.key_serde), str(ANY_PARTITION)
        if by_object is not None:
            partition = f"{ANY_PARTITION} if {key} is None else {code.name(by_object, 'partition_of')}({key})"
        elif by_bytes is not None:
            made = code.variable("key_bytes")
            code.line(f"{made} = {key_bytes}", encodes_key)
            partition = (
                f"{ANY_PARTITION} if {made} is None else {code.name(by_bytes, 'partition_of')}({made})"
            )
            key_bytes = made
        # A line for each argument: the one of an error says which failed.
        code.line(f"{code.name(produce, 'produce')}({code.name(topic, 'topic')},")
        code.line(f"{code.serialized(value, node.value_serde)},", (value, value_encoding))
        code.line(f"{key_bytes},", encodes_key)
        if by_user is not None:
            code.line(f"{code.name(by_user, 'partition_for')}({key}, {value},")
            partition += ")"
        code.line(f"{partition},", None if by_object is None else encodes_key)
        code.line(f"{code.timestamp_ms}, {code.headers})")
        code.count_written(topic)

    return write


def _of_part(partition_bytes: Callable[[Any], bytes], place: Callable[[bytes], int]) -> Callable[[Any], int]:
    return lambda key: place(partition_bytes(key))


def _by_user(partitioner: Partitioner, topic: str, places: KeyPlaces) -> Callable[[Any, Any, int], int]:
    """Return what gives the partition of a key and a value: the user's, else the one that it is given."""

    def partition_for(key: Any, value: Any, otherwise: int) -> int:
        count = places.count(topic)
        partition = partitioner(topic, key, value, count)
        if partition is None:
            return otherwise
        if type(partition) is not int or not 0 <= partition < count:
            found = "another number" if type(partition) is int else type(partition).__name__
            raise UnfitResultError(
                f"the partitioner of {topic} returned {found}, expected one of its {count} partitions, "
                f"0 to {count - 1}, or None"
            )
        return partition

    return partition_for
