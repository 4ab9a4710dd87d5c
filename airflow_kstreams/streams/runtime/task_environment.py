"""Holds what a task asks of the world around it, beside records, and connects the nodes of a subtopology: the
topics that lead to each, and forwarding to several.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_kstreams.streams.calls.call import MakeCaller
from airflow_kstreams.streams.errors import RecordError
from airflow_kstreams.streams.graph.nodes import SourceNode
from airflow_kstreams.streams.graph.services import Forward
from airflow_kstreams.streams.graph.store_specs import GlobalEntries
from airflow_kstreams.streams.partitioning.processors import Processors
from airflow_kstreams.streams.partitioning.topic_growth import GrownTopic
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.records.stream_clock import system_clock_ms
from airflow_kstreams.streams.records.timestamp_reading import LatestAllowed, no_bound
from airflow_kstreams.streams.records.topic_limits import BROKER_MAX_BYTES
from airflow_kstreams.streams.topology.topology import Subtopology, Topology


def topics_above(
    topology: Topology, subtopology: Subtopology, application_id: str
) -> dict[str, frozenset[str]]:
    """Return the real names of the source topics that lead to each node."""
    above: dict[str, frozenset[str]] = {}
    for node in subtopology.nodes:
        if isinstance(node, SourceNode):
            above[node.name] = frozenset(topology.real_topic(topic, application_id) for topic in node.topics)
        else:
            above[node.name] = frozenset().union(*(above[parent] for parent in node.parents))
    return above


def partition_bytes_of(
    topology: Topology, subtopology: Subtopology, application_id: str
) -> dict[str, Callable[[bytes], bytes]]:
    """Return functions that take from a serialized key the bytes that decide its partition, by real topic
    name; topics in which all bytes of a key do so are absent.
    """
    found: dict[str, Callable[[bytes], bytes]] = {}
    for node in subtopology.nodes:
        if not isinstance(node, SourceNode):
            continue
        for topic in node.topics:
            real = topology.real_topic(topic, application_id)
            serde = node.key_serde.bound(real, "key")
            if serde.partition_bytes is not None:
                found[real] = _of_bytes(serde.partition_bytes, serde.deserialize)
    return found


def _of_bytes(
    partition_bytes: Callable[[Any], bytes], deserialize: Callable[[bytes], Any]
) -> Callable[[bytes], bytes]:
    return lambda key: partition_bytes(deserialize(key))


def fan_out(targets: tuple[Forward, ...]) -> Forward:
    """Make one forward out of several; each child sees the same key and value, in build order."""
    if not targets:
        return _nowhere
    if len(targets) == 1:
        return targets[0]
    if len(targets) == 2:
        first, second = targets

        def forward_two(key: Any, value: Any) -> None:
            first(key, value)
            second(key, value)

        return forward_two

    def forward_all(key: Any, value: Any) -> None:
        for target in targets:
            target(key, value)

    return forward_all


def _nowhere(key: Any, value: Any) -> None:
    """Take a record that goes to no node."""


def _one_partition(topic: str) -> int:
    return 1


def _unbounded(topic: str) -> LatestAllowed:
    return no_bound


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnvironment:
    """The host's answers.

    :param now_ms: wall clock, epoch milliseconds.
    :param steady_ms: a wall clock that is never set back or forward: it measures a back-off and the budget
        for it; ``now_ms`` unless given.
    :param partition_count: how many partitions a topic has, real name; asked where the client does not place
        a key: where not all of its bytes decide, and for the topics of ``placements``.
    :param placements: topic that has grown, real name -> how many partitions it had before: its keys are
        placed by linear hashing. Every other topic's keys are placed as by Kafka's default.
    :param latest_allowed: how far ahead the records of a topic may be dated, real name; see
        ``max.timestamp.ahead.ms``.
    :param dead_letter_bytes: the largest record that the dead-letter topic takes.
    :param refused: results that the broker refused in earlier attempts, by their content; see
        ``production.exception.handler``.
    :param pause: waits for some seconds, when there is nothing else to do.
    :param grown: topics that have gained partitions, real names; their keys are looked at.
    :param processors: how keys find their task, where there are more tasks than there were partitions.
    :param looked_at: start, and end of what may be looked at, of each partition that waits for others.
    :param topic_ids: of the topics that the task reads, by real name.
    :param global_entries: what global tables hold, by topic.
    :param say_shared: called with the names of a node and of its child that changed a value which the
        children behind it share, in tests; None for not to look.
    :param make_caller: makes what runs the calls of asynchronous nodes; a loop and threads unless given.
    """

    now_ms: Callable[[], int] = system_clock_ms
    steady_ms: Callable[[], int] | None = None
    partition_count: Callable[[str], int] = _one_partition
    latest_allowed: Callable[[str], LatestAllowed] = _unbounded
    dead_letter_bytes: int = BROKER_MAX_BYTES
    refused: Mapping[str, RecordError] = field(default_factory=dict)
    pause: Callable[[float], None] = time.sleep
    grown: Mapping[str, GrownTopic] = field(default_factory=dict)
    looked_at: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    make_caller: MakeCaller | None = None
    say_shared: Callable[[str, str], None] | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    global_entries: Mapping[str, GlobalEntries] = field(default_factory=dict)
    placements: Mapping[str, int] = field(default_factory=dict)
    processors: Processors | None = None
