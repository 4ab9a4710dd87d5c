"""Sinks: what a task runs for each record that it writes to a topic, as a closure and as lines of a loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from airflow_kstreams.streams.graph.inlining import LoopCode
from airflow_kstreams.streams.graph.nodes import Forward, SinkNode
from airflow_kstreams.streams.partitioning.murmur2 import partition_for_key
from airflow_kstreams.streams.records.error_handling import Produce
from airflow_kstreams.streams.records.record_context import TaskRecordContext

#: Keys whose partition a sink remembers: working it out costs more than everything else it does.
_PLACED_KEYS = 100_000


class Sink:
    """A sink bound to a task.

    :param node: with the serdes of its topic.
    :param topic: real name.
    :param sent: holds the number of records handed to sinks.
    :param partition_count: of a topic, given its real name.
    """

    def __init__(
        self,
        node: SinkNode,
        topic: str,
        *,
        produce: Produce,
        context: TaskRecordContext,
        sent: list[int],
        partition_count: Callable[[str], int],
    ) -> None:
        self._node = node
        self._topic = topic
        self._produce = produce
        self._context = context
        self._sent = sent
        self._partition_of = _partitioner(node, topic, partition_count)

    def closure(self) -> Forward:
        """Return what runs for each record."""
        topic, produce, context, sent = self._topic, self._produce, self._context, self._sent
        serialize_key = self._node.key_serde.serialize
        serialize_value = self._node.value_serde.serialize
        headers_of = context.headers
        partition_of = self._partition_of

        def sink(key: Any, value: Any, _node: str = self._node.name) -> None:
            produce(
                topic,
                None if value is None else serialize_value(value),
                None if key is None else serialize_key(key),
                -1 if partition_of is None or key is None else partition_of(key),
                context.timestamp_ms,
                headers_of(),
            )
            sent[0] += 1

        return sink

    def write(self, code: LoopCode, key: str, value: str) -> None:
        """Write it into a loop, which counts in its variable ``sent``."""
        produce, topic = code.name(self._produce, "produce"), code.name(self._topic, "topic")
        value_bytes = code.serialized(value, self._node.value_serde)
        key_bytes = code.serialized(key, self._node.key_serde)
        partition = "-1"
        if self._partition_of is not None:
            partition_of = code.name(self._partition_of, "partition_of")
            partition = f"-1 if {key} is None else {partition_of}({key})"
        arguments = (topic, value_bytes, key_bytes, partition, code.timestamp_ms, code.headers)
        code.line(f"{produce}({', '.join(arguments)})")
        code.line("sent += 1")


def _partitioner(
    node: SinkNode, topic: str, partition_count: Callable[[str], int]
) -> Callable[[Any], int] | None:
    """Return the function that places a key as Java's partitioner places some of its bytes, None where all
    of its bytes count, so that the client can do it.
    """
    partition_bytes = node.key_serde.partition_bytes
    if partition_bytes is None:
        return None
    placed = lru_cache(_PLACED_KEYS)(partition_for_key)

    def partition_of(key: Any) -> int:
        return placed(partition_bytes(key), partition_count(topic))

    return partition_of
