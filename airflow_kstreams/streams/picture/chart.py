"""Lists what every picture of a topology shows: topics, tables of a lakehouse, nodes and stores, and the
flows between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from airflow_kstreams.streams.graph.components import Subtopology, connected_stores, parents
from airflow_kstreams.streams.graph.nodes import (
    Node,
    ProcessorNode,
    SinkNode,
    SourceNode,
    global_tables_of,
    purpose_of,
    table_of,
    tables_of,
)
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.picture.description import TopicName
from airflow_kstreams.streams.printable import printable
from airflow_kstreams.streams.table_plan import table_label

ShapeKind = Literal["topic", "table", "source", "processor", "sink", "store"]
#: Fill and edge of each kind: light boxes with dark text can be read on light and dark pages alike.
COLOURS: dict[ShapeKind, tuple[str, str]] = {
    "topic": ("#fef3c7", "#d97706"),
    "table": ("#cffafe", "#0891b2"),
    "source": ("#dbeafe", "#3b82f6"),
    "processor": ("#f1f5f9", "#64748b"),
    "sink": ("#dcfce7", "#16a34a"),
    "store": ("#ede9fe", "#8b5cf6"),
}
TEXT_COLOUR = "#1e293b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A topic, a table of a lakehouse, a node or a store.

    :param id: unique in the chart: a word of letters and digits that starts with a letter.
    :param name: printable.
    :param note: kind of the shape, in a word or two; of a node what it does, and the user's line.
    :param subtopology: id of its subtopology; None for a topic or a table, which lie outside of them.
    """

    id: str
    kind: ShapeKind
    name: str
    note: str
    subtopology: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """A flow of records, or the use of a store by a processor.

    Arrows make no circle: a store lies below the first processor that uses it and above all others.

    :param start: id of a shape.
    :param end: id of a shape.
    :param state: True if it connects a processor and a store; such a line has no direction.
    """

    start: str
    end: str
    state: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """The whole picture.

    :param shapes: topics first, then tables; nodes parents before children, each followed by the stores it is
        the first to use.
    :param arrows: the arrows, in the order of their lower ends.
    :param subtopologies: ids in running order.
    """

    shapes: tuple[Shape, ...]
    arrows: tuple[Arrow, ...]
    subtopologies: tuple[int, ...]

    def of(self, subtopology: int) -> tuple[Shape, ...]:
        """Return the shapes of one subtopology."""
        return tuple(shape for shape in self.shapes if shape.subtopology == subtopology)

    @property
    def outside(self) -> tuple[Shape, ...]:
        """The topics, and the tables of a lakehouse."""
        return tuple(shape for shape in self.shapes if shape.subtopology is None)


def chart(subs: Sequence[Subtopology], topic_name: TopicName, internal: frozenset[str]) -> Chart:
    """Return the chart of these subtopologies: a global table is a store of each that uses it.

    :param subs: the subtopologies, in running order.
    :param topic_name: function that gives the printed name of a topic.
    :param internal: logical names of the repartition topics.
    """
    nodes = [node for sub in subs for node in sub.nodes]
    topics = {
        topic: Shape(
            id=f"topic{number}",
            kind="topic",
            name=topic_name(topic),
            note="repartition topic" if topic in internal else "topic",
        )
        for number, topic in enumerate(dict.fromkeys(topic for node in nodes for topic in _topics(node)))
    }
    node_ids = {node.name: f"node{number}" for number, node in enumerate(nodes)}
    stores = {
        store.name: Shape(
            id=f"store{number}", kind="store", name=store.name, note=_store_note(store), subtopology=sub.id
        )
        for number, (sub, store) in enumerate((sub, store) for sub in subs for store in sub.stores)
    }
    written = {
        name: Shape(
            id=f"lake{number}",
            kind="table",
            name=printable(name),
            note=f"{table.plan.format.capitalize()} table",
        )
        for number, (name, table) in enumerate(tables_of(nodes).items())
    }
    outside = {topic: shape.id for topic, shape in topics.items()}
    outside |= {table_label(name): shape.id for name, shape in written.items()}
    tables = {
        (sub.id, table.topic): Shape(
            id=f"table{number}",
            kind="store",
            name=f"{table.name} ({table.topic})" if table.name else table.topic,
            note="global table",
            subtopology=sub.id,
        )
        for number, (sub, table) in enumerate(
            (sub, table) for sub in subs for table in global_tables_of(sub.nodes).values()
        )
    }
    shapes: list[Shape] = [*topics.values(), *written.values()]
    arrows: list[Arrow] = []
    drawn: set[str] = set()
    for sub in subs:
        for node in sub.nodes:
            shapes.append(_node(node, node_ids[node.name], sub.id))
            arrows += _flows(node, node_ids, outside)
            held = [stores[name] for name in connected_stores(node)]
            held += [tables[sub.id, topic] for topic in global_tables_of([node])]
            for shape in held:
                ends = [node_ids[node.name], shape.id]
                start, end = reversed(ends) if shape.id in drawn else ends
                arrows.append(Arrow(start=start, end=end, state=True))
                if shape.id not in drawn:
                    shapes.append(shape)
                    drawn.add(shape.id)
    return Chart(shapes=tuple(shapes), arrows=tuple(arrows), subtopologies=tuple(sub.id for sub in subs))


def _node(node: Node, shape_id: str, subtopology: int) -> Shape:
    name = printable(node.name)
    note = printable(purpose_of(node))
    kind: ShapeKind
    match node:
        case SourceNode():
            kind = "source"
        case ProcessorNode():
            kind = "processor" if table_of(node) is None else "sink"
        case SinkNode():
            kind = "sink"
    return Shape(id=shape_id, kind=kind, name=name, note=note, subtopology=subtopology)


def _flows(node: Node, node_ids: dict[str, str], outside: Mapping[str, str]) -> Iterator[Arrow]:
    """Yield the arrows to a node, and those between it and what lies outside.

    :param outside: topic, or label of a table -> id of its shape.
    """
    me, table = node_ids[node.name], table_of(node)
    for parent in parents(node):
        yield Arrow(start=node_ids[parent], end=me)
    if table is not None:
        yield Arrow(start=me, end=outside[table_label(table.name)])
    for topic in _topics(node):
        ends = (me, outside[topic]) if isinstance(node, SinkNode) else (outside[topic], me)
        yield Arrow(start=ends[0], end=ends[1])


def _topics(node: Node) -> tuple[str, ...]:
    match node:
        case SourceNode():
            return node.topics
        case ProcessorNode():
            return ()
        case SinkNode():
            return (node.topic,)


def _store_note(store: StoreSpec) -> str:
    return f"{store.type.replace('_', '-')} store" + ("" if store.logged else ", not logged")
