"""Checks that the counts of a task's nodes fit together, by identities that hold within a subtopology.

Rule: a source node forwards the records read from its topics, less those it left out. An operator whose trait
``flow`` is ``kept`` forwards each record once, to every child, or counts it as left out; the children of an
operator whose flow is ``parted`` together get the records that arrive there. So from the sources down the
number of records that arrive at a node is known, until an operator stands in between whose flow is ``free``
(``flat_map``, folds, joins of streams, processors): no number is known below it. Nor is it below a node with
a retry topic, which a record may leave in a later run than it came in; the number of parked records stands
beside the counts in every commit. A topic gets, through sinks, the records that arrived at its sinks less
those they left out, and a table gets rows likewise. Where all of these are known, the count of written
records must be the same number.

Both numbers are added up over attempts and committed with the offsets, so the check holds at every commit,
and also finds records lost while counts are written, read and added up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from airflow_kstreams.streams.figures.record_counts import OTHER_NODES, RecordCounts
from airflow_kstreams.streams.graph.nodes import Node, ProcessorNode, SinkNode, SourceNode, traits_of
from airflow_kstreams.streams.table_plan import table_label
from airflow_kstreams.streams.topology.topology import Subtopology


class Unbalanced(NamedTuple):
    """A topic for which the counts do not fit together.

    :param topic: the topic's real name.
    :param arrived: number of records that must have been written, computed from those read and left out.
    :param written: number of records counted as written.
    """

    topic: str
    arrived: int
    written: int


class FlowCheck:
    """The identities of one subtopology.

    :param subtopology: the subtopology.
    :param real_topic: function that gives the real name of a topic's logical name.
    """

    def __init__(self, subtopology: Subtopology, real_topic: Callable[[str], str]) -> None:
        self._nodes: Mapping[str, Node] = {node.name: node for node in subtopology.nodes}
        self._real_topic = real_topic
        self._children: dict[str, list[str]] = {name: [] for name in self._nodes}
        for node in subtopology.nodes:
            for parent in set() if isinstance(node, SourceNode) else set(node.parents):
                self._children[parent].append(node.name)
        #: Topic or table -> the nodes that write to it.
        self._sinks: dict[str, list[Node]] = {}
        for node in subtopology.nodes:
            if (written := self._written_by(node)) is not None:
                self._sinks.setdefault(written, []).append(node)

    def _written_by(self, node: Node) -> str | None:
        """Return the topic or table that a node writes to; None if records go through it."""
        if isinstance(node, SinkNode):
            return self._real_topic(node.topic)
        table = traits_of(node).table
        return None if table is None else table_label(table.name)

    def _counted(self, counts: RecordCounts, name: str) -> int:
        """Return the number of records that sinks have written to a topic, or rows to a table."""
        to_table = traits_of(self._sinks[name][0]).table is not None
        return (counts.sent if to_table else counts.written).get(name, 0)

    def unbalanced(self, counts: RecordCounts) -> list[Unbalanced]:
        """Return the topics for which the counts do not fit together, among those whose numbers are known."""
        if any(entry.node == OTHER_NODES for entry in counts.left_out):
            return []
        arrived: dict[str, int | None] = {}
        for name in self._nodes:
            arrived[name] = self._arrived(name, arrived, counts)
        found = []
        for topic, sinks in self._sinks.items():
            expected = _sum([_less(arrived[sink.name], counts.at(sink.name)) for sink in sinks])
            written = self._counted(counts, topic)
            if expected is not None and expected != written:
                found.append(Unbalanced(topic, expected, written))
        return found + self._unbalanced_branches(arrived, counts)

    def _arrived(self, name: str, above: Mapping[str, int | None], counts: RecordCounts) -> int | None:
        """Return the number of records that arrived at a node; None if not known.

        :param above: node -> number of records that arrived, of all nodes above.
        """
        node = self._nodes[name]
        if isinstance(node, SourceNode):
            return sum(counts.read.get(self._real_topic(topic), 0) for topic in node.topics)
        return _sum([self._forwarded(parent, name, above, counts) for parent in sorted(set(node.parents))])

    def _forwarded(
        self, name: str, child: str, above: Mapping[str, int | None], counts: RecordCounts
    ) -> int | None:
        """Return the number of records that a node gave to a child; None if not known."""
        node = self._nodes[name]
        if traits_of(node).flow == "parted":
            return self._taken(child, counts)
        if isinstance(node, ProcessorNode) and traits_of(node).flow == "free":
            return None
        return _less(above[name], counts.at(name))

    def _taken(self, name: str, counts: RecordCounts) -> int | None:
        """Return the number of records that a node must have got, computed from the nodes below; None if not
        known.
        """
        node = self._nodes[name]
        if isinstance(node, SourceNode) or len(set(node.parents)) > 1:
            return None
        if (written := self._written_by(node)) is not None:
            alone = len(self._sinks[written]) == 1
            return self._counted(counts, written) + counts.at(name) if alone else None
        below = [self._taken(child, counts) for child in self._children[name]]
        if traits_of(node).flow == "parted":
            forwarded = _sum(below)
        else:
            known = [taken for taken in below if taken is not None] if traits_of(node).flow == "kept" else []
            forwarded = known[0] if known else None
        return None if forwarded is None else forwarded + counts.at(name)

    def _unbalanced_branches(
        self, arrived: Mapping[str, int | None], counts: RecordCounts
    ) -> list[Unbalanced]:
        """Return a topic below each branching node whose branches got more or fewer records than arrived."""
        found = []
        for name, node in self._nodes.items():
            got, taken = (
                arrived[name],
                self._taken(name, counts) if traits_of(node).flow == "parted" else None,
            )
            if got is not None and taken is not None and got != taken:
                topics = sorted(self._topics_below(name))
                found.append(Unbalanced(topics[0] if topics else name, got, taken))
        return found

    def _topics_below(self, name: str) -> set[str]:
        node = self._nodes[name]
        if (written := self._written_by(node)) is not None:
            return {written}
        return set().union(*(self._topics_below(child) for child in self._children[name]))


def _less(number: int | None, taken: int) -> int | None:
    return None if number is None else number - taken


def _sum(numbers: list[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None
