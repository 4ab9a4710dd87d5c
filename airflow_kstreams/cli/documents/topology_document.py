"""Makes the document of ``describe``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from airflow_kstreams.streams.graph.components import parents
from airflow_kstreams.streams.graph.nodes import Node, ProcessorNode, SinkNode, SourceNode, table_of
from airflow_kstreams.streams.topology.topology import Topology


class TopologyNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a topology.

    :param name: its name.
    :param kind: what it is.
    :param parents: names of the nodes whose records it gets.
    :param topics: topics that a source reads, or the topic that a sink writes.
    :param table: the table that a sink writes to; null if it writes to none.
    :param stores: stores that a processor uses.
    :param defined_at: file and line that defined it; null where they are not known.
    """

    name: str
    kind: Literal["source", "processor", "sink"]
    parents: Sequence[str]
    topics: Sequence[str]
    table: str | None
    stores: Sequence[str]
    defined_at: str | None


class TopologyPart(msgspec.Struct, frozen=True, kw_only=True):
    """A subtopology.

    :param id: its number.
    :param nodes: its nodes, parents before children.
    """

    id: int
    nodes: Sequence[TopologyNode]


class TopologyDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The topology of an application file.

    :param application_id: application by which internal topics are named; null for their logical names.
    :param subtopologies: its subtopologies by their numbers.
    """

    application_id: str | None
    subtopologies: Sequence[TopologyPart]


def topology_document(topology: Topology, application_id: str | None) -> TopologyDocument:
    """Make the document of ``describe``.

    :param application_id: application by which internal topics are named; None for their logical names.
    """

    def shown(topic: str) -> str:
        return topic if application_id is None else topology.real_topic(topic, application_id)

    def entry(node: Node) -> TopologyNode:
        kind: Literal["source", "processor", "sink"]
        topics: tuple[str, ...] = ()
        table = table_of(node)
        match node:
            case SourceNode():
                kind, topics = "source", node.topics
            case ProcessorNode():
                kind = "processor" if table is None else "sink"
            case SinkNode():
                kind, topics = "sink", (node.topic,)
        return TopologyNode(
            name=node.name,
            kind=kind,
            parents=parents(node),
            topics=[*map(shown, topics)],
            table=None if table is None else table.name,
            stores=node.stores if isinstance(node, ProcessorNode) else (),
            defined_at=None if node.site is None else str(node.site),
        )

    return TopologyDocument(
        application_id=application_id,
        subtopologies=[
            TopologyPart(id=sub.id, nodes=[*map(entry, sub.nodes)]) for sub in topology.subtopologies()
        ],
    )
