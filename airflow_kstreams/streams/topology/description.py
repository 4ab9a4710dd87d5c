"""A topology as text, in the shape that Kafka Streams' ``Topology#describe`` prints and its viewers read."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_kstreams.streams.topology.components import Subtopology, parents
from airflow_kstreams.streams.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode


def describe(subs: Sequence[Subtopology]) -> str:
    """Return the text; internal topics appear without the application id."""
    return "Topologies:\n " + "\n".join(_subtopology(sub) for sub in subs)


def _subtopology(sub: Subtopology) -> str:
    children: dict[str, list[str]] = {node.name: [] for node in sub.nodes}
    for node in sub.nodes:
        for parent in parents(node):
            children[parent].append(node.name)
    lines = [f"  Sub-topology: {sub.id}"]
    for node in sub.nodes:
        lines.append(f"    {_headline(node)}")
        if not isinstance(node, SinkNode):
            lines.append(f"      --> {', '.join(children[node.name]) or 'none'}")
        if parents(node):
            lines.append(f"      <-- {', '.join(parents(node))}")
    return "\n".join(lines) + "\n"


def _headline(node: Node) -> str:
    match node:
        case SourceNode():
            return f"Source: {node.name} (topics: [{', '.join(node.topics)}])"
        case ProcessorNode():
            return f"Processor: {node.name} (stores: [{', '.join(node.stores)}])"
        case SinkNode():
            return f"Sink: {node.name} (topic: {node.topic})"
