"""Divides a topology into subtopologies, and finds the nodes that take a table's changes, and those below
which old values are needed.

Rule: two nodes joined by an edge or by a store belong to one subtopology; a topic joins nothing, it orders:
the subtopology that writes it runs before the one that reads it. Ids follow the build order of each
component's first node, so that adding a stream at the end of a file renumbers nothing before it.

An operator takes a :class:`~airflow_kstreams.streams.serde.internal_serdes.OldAndNew` of each key, in place
of the value alone, if its trait ``old_values`` is set. Every other operator gets values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.nodes import Node, ProcessorNode, SinkNode, SourceNode, traits_of
from airflow_kstreams.streams.graph.store_specs import RetryStoreSpec, StoreSpec
from airflow_kstreams.streams.topic_patterns import pattern_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtopology:
    """One connected component.

    :param id: its number, in build order.
    :param nodes: its nodes, in topological order.
    :param stores: the stores its processors use, in build order.
    """

    id: int
    nodes: tuple[Node, ...]
    stores: tuple[StoreSpec, ...] = ()

    @property
    def source_topics(self) -> tuple[str, ...]:
        """Logical names of the topics it reads, sorted."""
        return tuple(
            sorted(topic for node in self.nodes if isinstance(node, SourceNode) for topic in node.topics)
        )

    @property
    def sink_topics(self) -> tuple[str, ...]:
        """Logical names of the topics it writes, sorted."""
        return tuple(sorted({node.topic for node in self.nodes if isinstance(node, SinkNode)}))


class _Union:
    """Disjoint sets over names; the representative is an arbitrary member."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def find(self, name: str) -> str:
        root = name
        while (above := self._parent.setdefault(root, root)) != root:
            root = above
        while self._parent[name] != root:
            self._parent[name], name = root, self._parent[name]
        return root

    def join(self, names: Iterable[str]) -> None:
        first, *others = names
        for other in others:
            self._parent[self.find(other)] = self.find(first)


def subtopologies(nodes: Sequence[Node], stores: Sequence[StoreSpec]) -> tuple[Subtopology, ...]:
    """Divide a topology into its connected components.

    :param nodes: the nodes, parents before children; the components keep this order.
    """
    union = _Union()
    for node in nodes:
        union.join([_node(node.name), *map(_node, parents(node)), *map(_store, connected_stores(node))])
    members: dict[str, list[Node]] = {}
    for node in nodes:
        members.setdefault(union.find(_node(node.name)), []).append(node)
    return tuple(
        Subtopology(
            id=number,
            nodes=tuple(component),
            stores=tuple(store for store in stores if union.find(_store(store.name)) == root),
        )
        for number, (root, component) in enumerate(members.items())
    )


def handing_to_functions(nodes: Sequence[Node]) -> frozenset[str]:
    """Return the names of the nodes whose values go to more than sinks: to a function of the user's, or into
    a store.

    :param nodes: the nodes, parents before children.
    """
    found: set[str] = set()
    for node in reversed(nodes):
        sends = isinstance(node, SinkNode) and node.partitioner is None
        if node.name in found or not (sends or traits_of(node).passes_on):
            found.update(parents(node))
    return frozenset(found)


def in_running_order(subs: Sequence[Subtopology]) -> tuple[Subtopology, ...]:
    """Order subtopologies so that every writer of a topic stands before its readers; by id where that leaves
    a choice.

    :raises TopologyError: no such order exists; the error names the cycle.
    """
    waiting = {sub.id: sub for sub in subs}
    ordered: list[Subtopology] = []
    while waiting:
        ready = next((sub for sub in waiting.values() if _upstream(sub, waiting.values()) is None), None)
        if ready is None:
            raise _cycle_error(tuple(waiting.values()))
        ordered.append(waiting.pop(ready.id))
    return tuple(ordered)


def copartitioned(sub: Subtopology, internal: frozenset[str]) -> tuple[tuple[str, ...], ...]:
    """Return the groups of source topics whose partition counts must be equal.

    State is found by partition number, so all sources of a subtopology with stores form one group. Without
    stores, a repartition topic must equal whatever it meets at a processor, because one of the two would be
    keyed differently.

    :param internal: logical names of the repartition topics.
    """
    topics = sub.source_topics
    several = len(topics) > 1 or any(pattern_of(topic) is not None for topic in topics)
    if not several:
        return ()
    if sub.stores:
        return (topics,)
    union = _Union()
    for node, reaching in _reaching(sub):
        meeting = sorted(reaching)
        if isinstance(node, ProcessorNode) and len(meeting) > 1 and not internal.isdisjoint(meeting):
            union.join(meeting)
    groups: dict[str, list[str]] = {}
    for topic in topics:
        groups.setdefault(union.find(topic), []).append(topic)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def keyed_together(sub: Subtopology) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    """Return the groups of source topics whose equal keys must lie in partitions of equal numbers, each with
    the stores in which they meet.

    A fold, a table or a join finds the entry of a record's key in its own task. Stores that a user's code
    keeps have keys of its choice, and those of waiting records have none that meet.

    :return: for each group its topics, sorted, and its stores, in build order.
    """
    users = {name for node in sub.nodes for name in _stores_of_user(node)}
    users.update(store.name for store in sub.stores if isinstance(store, RetryStoreSpec))
    union = _Union()
    for node, reaching in _reaching(sub):
        if keyed := [*map(_store, {*connected_stores(node)} - users)]:
            union.join([*keyed, *map(_node, sorted(reaching))])
    groups: dict[str, tuple[list[str], list[str]]] = {}
    for store in sub.stores:
        if store.name not in users:
            groups.setdefault(union.find(_store(store.name)), ([], []))[1].append(store.name)
    for topic in sub.source_topics:
        if (root := union.find(_node(topic))) in groups:
            groups[root][0].append(topic)
    return tuple((tuple(topics), tuple(stores)) for topics, stores in groups.values())


def _reaching(sub: Subtopology) -> Iterator[tuple[Node, set[str]]]:
    """Yield each node below a source, with the source topics whose records come to it."""
    reaching: dict[str, set[str]] = {}
    for node in sub.nodes:
        if isinstance(node, SourceNode):
            reaching[node.name] = set(node.topics)
            continue
        reaching[node.name] = set().union(*(reaching[parent] for parent in node.parents))
        yield node, reaching[node.name]


def _stores_of_user(node: Node) -> tuple[str, ...]:
    kept = traits_of(node).stores_of_user
    return connected_stores(node) if kept == "all" else tuple(kept)


def parents(node: Node) -> tuple[str, ...]:
    """Return the names of a node's parents."""
    return () if isinstance(node, SourceNode) else node.parents


def connected_stores(node: Node) -> tuple[str, ...]:
    """Return the names of the stores a node is connected to."""
    return node.stores if isinstance(node, ProcessorNode) else ()


def _node(name: str) -> str:
    return f"node {name}"


def _store(name: str) -> str:
    return f"store {name}"


def _shared(writer: Subtopology, reader: Subtopology) -> str | None:
    """Return the first topic by name that ``writer`` writes and ``reader`` reads; None if there is none."""
    return next(iter(sorted({*writer.sink_topics} & {*reader.source_topics})), None)


def _upstream(sub: Subtopology, others: Iterable[Subtopology]) -> Subtopology | None:
    """Return a subtopology that writes a topic which ``sub`` reads; it may be ``sub`` itself. None if there
    is none.
    """
    return next((other for other in others if _shared(other, sub) is not None), None)


def _walk_up(subs: Sequence[Subtopology]) -> Iterator[Subtopology]:
    """Go from reader to writer for ever; every one of ``subs`` must have a writer among them."""
    at = subs[0]
    while True:
        yield at
        above = _upstream(at, subs)
        if above is None:
            return
        at = above


def _cycle_error(stuck: Sequence[Subtopology]) -> TopologyError:
    trail: list[Subtopology] = []
    for sub in _walk_up(stuck):
        if sub in trail:
            trail = trail[trail.index(sub) :]
            break
        trail.append(sub)
    # The walk went against the flow of records; from the topic's writer to its reader reads better.
    flow = [*reversed(trail), trail[-1]]
    steps = [f"subtopology {flow[0].id}"]
    sites: list[str] = []
    for writer, reader in pairwise(flow):
        topic = _shared(writer, reader)
        steps.append(f"topic {topic!r} -> subtopology {reader.id}")
        sites += [
            f"{n.site}" for n in writer.nodes if isinstance(n, SinkNode) and n.topic == topic and n.site
        ]
    return TopologyError(
        f"the topology can never stop, it writes what it reads: {' -> '.join(steps)} (written at "
        f"{', '.join(sites)})",
        fix="send to a topic that nothing upstream of it reads; to join a rekeyed stream with a table of the "
        "same input, make the table behind a through('topic'); to join a table with what was grouped from "
        "it, or with itself by a foreign key, join a copy: table.to_stream().repartition(n).to_table(); to "
        "join it with itself by its keys, name it twice, without a copy",
    )


@dataclass(frozen=True, slots=True)
class TableChanges:
    """The nodes of one subtopology that deal with changes of tables.

    :param takers: names of the nodes that take changes.
    :param old_needed: names of the nodes below which old values are needed.
    """

    takers: frozenset[str]
    old_needed: frozenset[str]


def table_changes(nodes: Sequence[Node]) -> TableChanges:
    """Find the nodes that take changes of tables.

    :param nodes: the subtopology's nodes, in topological order.
    """
    takers: set[str] = set()
    needed: set[str] = set()
    for node in reversed(nodes):
        old_values = traits_of(node).old_values
        if old_values is None:
            continue
        takers.add(node.name)
        if old_values == "needs" or (old_values == "passes on" and node.name in needed):
            needed.update(parents(node))
    return TableChanges(frozenset(takers), frozenset(needed))
