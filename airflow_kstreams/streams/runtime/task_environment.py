"""Defines the services that a task needs from its host, beside records, and connects the nodes of a
subtopology: the topics that lead to each, and forwarding to several.
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
from airflow_kstreams.streams.tables.table_rows import TableRows
from airflow_kstreams.streams.topology.topology import Subtopology, Topology


def topics_above(
    topology: Topology, subtopology: Subtopology, application_id: str
) -> dict[str, frozenset[str]]:
    """Return node name -> real names of the source topics above it."""
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
    """Return real name of a topic -> the function from a serialized key to the bytes that decide its
    partition; topics in which all bytes of a key do so are absent.
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
    """The services of a task's host. Topics stand under their real names.

    :param now_ms: function that gives the wall clock's time, epoch milliseconds.
    :param steady_ms: function that gives the time of a wall clock that is never set back or forward: it
        measures back-offs and their budget; None for ``now_ms``.
    :param partition_count: function that gives the number of a topic's partitions; called where the client
        does not place a key: where not all of its bytes decide, and for the topics of ``placements``.
    :param placements: topic that has grown -> its number of partitions before: its keys are placed by linear
        hashing. Every other topic's keys are placed by Kafka's default.
    :param latest_allowed: function that gives a topic's bound on the timestamps of its records; see
        ``max.timestamp.ahead.ms``.
    :param dead_letter_bytes: size of the largest record that the dead-letter topic takes.
    :param refused: id of a result's content -> the broker's error in an earlier attempt; see
        ``production.exception.handler``.
    :param pause: function that waits for some seconds, when the task has nothing else to do.
    :param grown: topic that has gained partitions -> its growth; its keys are checked.
    :param processors: the processors, by which keys find their task, where there are more tasks than there
        were partitions; None where there are not.
    :param looked_at: partition that waits for its ancestors -> (start offset, end offset) of the records that
        are read ahead for their times only.
    :param topic_ids: topic that the task reads -> its id.
    :param global_entries: topic of a global table -> its entries.
    :param run_id: id of the run, for rows that say where they come from.
    :param table_rows: table -> what takes the task's rows for it.
    :param say_shared: function that takes the names of a node and of its child that changed a value which the
        children behind it share, in tests; None to skip the check.
    :param make_caller: function that makes the caller of asynchronous nodes; None for one with an event loop
        and threads.
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
    run_id: str = ""
    table_rows: Mapping[str, TableRows] = field(default_factory=dict)
    placements: Mapping[str, int] = field(default_factory=dict)
    processors: Processors | None = None
