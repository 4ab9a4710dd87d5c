"""Which repartition topics take records without key.

Rule, that of Kafka Streams (KIP-962): ``repartition`` leaves them out, unless a left or outer join lies
behind it, however far, but not behind a topic of the user's. Such a join joins them with None.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from airflow_kstreams.streams.graph.nodes import Node, ProcessorNode, SinkNode, SourceNode
from airflow_kstreams.streams.kstream.operators.stateless import DropNulls
from airflow_kstreams.streams.topology.topology import Topology


def kept_ahead(topology: Topology, joins: Sequence[str]) -> Topology:
    """Return the topology in which records without key pass all ``repartition`` ahead of joins.

    :param joins: the nodes that take such records.
    """
    ahead = _ahead(topology, joins)
    return dataclasses.replace(
        topology, nodes=tuple(_keeping(node) if node.name in ahead else node for node in topology.nodes)
    )


def _ahead(topology: Topology, joins: Sequence[str]) -> set[str]:
    """Return the nodes whose results may come to some nodes, through internal topics too."""
    nodes = {node.name: node for node in topology.nodes}
    writers = {node.topic: node.name for node in topology.nodes if isinstance(node, SinkNode)}
    internal = {topic.name: writers[topic.name] for topic in topology.internal_topics}
    waiting, ahead = [*joins], {*joins}
    while waiting:
        parents = {*_parents(nodes[waiting.pop()], internal)} - ahead
        waiting += parents
        ahead |= parents
    return ahead


def _parents(node: Node, internal: dict[str, str]) -> Iterable[str]:
    if isinstance(node, SourceNode):
        return [internal[topic] for topic in node.topics if topic in internal]
    return node.parents


def _keeping(node: Node) -> Node:
    # Topics ahead of a fold take no record without value either: it would drop those without key itself.
    if isinstance(node, ProcessorNode) and isinstance(node.operator, DropNulls):
        drop = node.operator
        if drop.keep_null_values:
            return dataclasses.replace(node, operator=dataclasses.replace(drop, keep_null_keys=True))
    return node
