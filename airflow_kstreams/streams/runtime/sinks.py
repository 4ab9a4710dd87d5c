"""Sinks: what a task runs for each record that it writes to a topic."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from airflow_kstreams.streams.graph.inlining import LoopCode, WriteCode
from airflow_kstreams.streams.graph.nodes import SinkNode
from airflow_kstreams.streams.partitioning.linear_hashing import partition_of_key
from airflow_kstreams.streams.records.dead_letters import Produce

#: Keys whose partition a sink remembers: working it out costs more than everything else it does.
_PLACED_KEYS = 100_000


def sink_code(
    node: SinkNode, topic: str, *, produce: Produce, partition_count: Callable[[str], int]
) -> WriteCode:
    """Return what writes a sink's lines; they count what they send.

    :param node: with the serdes of its topic.
    :param topic: real name.
    :param partition_count: of a topic, given its real name.
    """
    place_key = _partitioner(node, topic, partition_count)

    def write(code: LoopCode, key: str, value: str) -> None:
        partition = "-1"
        if place_key is not None:
            partition = f"-1 if {key} is None else {code.name(place_key, 'partition_of')}({key})"
        arguments = (
            code.name(topic, "topic"),
            code.serialized(value, node.value_serde),
            code.serialized(key, node.key_serde),
            partition,
            code.timestamp_ms,
            code.headers,
        )
        code.line(f"{code.name(produce, 'produce')}({', '.join(arguments)})")
        code.count_written(topic)

    return write


def _partitioner(
    node: SinkNode, topic: str, partition_count: Callable[[str], int]
) -> Callable[[Any], int] | None:
    """Return the function that places a key as Java's partitioner places some of its bytes, None where all
    of its bytes count, so that the client can do it.
    """
    partition_bytes = node.key_serde.partition_bytes
    if partition_bytes is None:
        return None
    placed = lru_cache(_PLACED_KEYS)(partition_of_key)

    def partition_of(key: Any) -> int:
        count = partition_count(topic)
        return placed(partition_bytes(key), count, count)

    return partition_of
