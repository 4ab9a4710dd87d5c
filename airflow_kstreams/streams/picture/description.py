"""Writes a topology as text, in the form of Kafka Streams' ``Topology#describe``, which its viewers read.

The form is that of ``TopologyDescription#toString`` to the last blank, blank line and line end. Where Kafka
Streams promises no order (it prints sets), names are in build order here: nodes, parents before children; the
topics of a source and the stores of a processor as they were given; global tables come last. Kafka Streams
has no tables of a lakehouse: a node that writes to one is a sink with ``table:`` in the place of ``topic:``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from airflow_kstreams.streams.graph.components import Subtopology, parents
from airflow_kstreams.streams.graph.nodes import (
    Node,
    ProcessorNode,
    SinkNode,
    SourceNode,
    global_tables_of,
    purpose_of,
    table_of,
)
from airflow_kstreams.streams.graph.store_specs import GlobalTableDef
from airflow_kstreams.streams.printable import printable

#: Turns a topic's logical name into the one to show.
TopicName = Callable[[str], str]


def describe(subs: Sequence[Subtopology], topic_name: TopicName = str, *, purposes: bool = False) -> str:
    """Return the text.

    :param subs: subtopologies by id.
    :param topic_name: function that gives the printed name of a topic.
    :param purposes: whether each node's line ends with what it does and the user's line, behind a ``#``;
        viewers read a line up to its brackets.
    """
    tables = global_tables_of(node for sub in subs for node in sub.nodes)
    return "Topologies:\n " + "".join(
        [
            *(_subtopology(sub, topic_name, purposes=purposes) for sub in subs),
            *(_global_table(number, tables[topic]) for number, topic in enumerate(sorted(tables), len(subs))),
        ]
    )


def _subtopology(sub: Subtopology, topic_name: TopicName, *, purposes: bool) -> str:
    children: dict[str, list[str]] = {node.name: [] for node in sub.nodes}
    for node in sub.nodes:
        for parent in parents(node):
            children[parent].append(node.name)
    lines = [f"  Sub-topology: {sub.id}"]
    for node in sub.nodes:
        purpose = f" # {printable(purpose_of(node))}" if purposes else ""
        lines.append(f"    {_headline(node, topic_name)}{purpose}")
        if not isinstance(node, SinkNode) and table_of(node) is None:
            lines.append(f"      --> {_names(children[node.name])}")
        if parents(node):
            lines.append(f"      <-- {_names(parents(node))}")
    return "\n".join(lines) + "\n\n"


def _global_table(number: int, definition: GlobalTableDef) -> str:
    """Return the text of a global table, which Kafka Streams counts among the subtopologies."""
    topic = definition.topic
    source, table = map(printable, definition.node_names)
    lines = [
        f"  Sub-topology: {number} for global store (will not generate tasks)",
        f"    Source: {source} (topics: [{printable(topic)}])",
        f"      --> {table}",
        f"    Processor: {table} (stores: [{printable(topic)}])",
        "      --> none",
        f"      <-- {source}",
    ]
    return "\n".join(lines) + "\n"


def _headline(node: Node, topic_name: TopicName) -> str:
    name, table = printable(node.name), table_of(node)
    if table is not None:
        return f"Sink: {name} (table: {printable(table.name)})"
    match node:
        case SourceNode():
            return f"Source: {name} (topics: [{', '.join(map(topic_name, node.topics))}])"
        case ProcessorNode():
            return f"Processor: {name} (stores: [{', '.join(node.stores)}])"
        case SinkNode():
            return f"Sink: {name} (topic: {topic_name(node.topic)})"


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(printable, names)) or "none"
