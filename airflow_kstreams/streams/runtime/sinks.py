"""Sinks: what a task runs for each record that it writes to a topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_kstreams.streams.graph.inlining import Encoding, LoopCode, WriteCode
from airflow_kstreams.streams.graph.nodes import Partitioner, SinkNode
from airflow_kstreams.streams.hints.hidden_values import UnfitResultError
from airflow_kstreams.streams.partitioning.linear_hashing import ANY_PARTITION
from airflow_kstreams.streams.records.dead_letter_format import Produce
from airflow_kstreams.streams.runtime.key_places import KeyPlaces


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
