"""Connects the nodes of a subtopology: the topics that lead to each, and forwarding to several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_kstreams.streams.graph.nodes import SourceNode
from airflow_kstreams.streams.graph.services import Forward
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
    """Return what makes, of a serialized key, the bytes that decide its partition, by real topic name; topics
    in which all bytes of a key do are absent.
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
