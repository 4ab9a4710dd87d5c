"""Divides a subtopology into stages at its asynchronous nodes (``docs/internals/async.md``), and chooses the
nodes that run on threads.

Rule: the results of an asynchronous node begin in the stage behind its own. A node is in the stage in which
its parents' results begin, or in a later one: the first that its edges and stores allow if its results lead
to an asynchronous node, or if it shares a store with a node of which that holds; else the last. Nodes that
share a store are in the same stage, so that each sees the store as of the record that the stage has come to.

Invariant: along an edge the stage never becomes lower, and behind an asynchronous node it becomes higher. So
a stage can run a record as soon as the stages before it have, and needs nothing of a later one.

Rule of threads (``num.threads.per.task``): a node whose operator has the trait ``on_threads`` runs on
threads, as an asynchronous node whose calls are plain functions; a processor does if it declares itself fit.
The task's results are the same. A node stays on the task's own thread where its calls would let nodes above
it get further than a topology allows: where a store is used on both sides of it, and where a processor below
it may ask for a commit while a node above it keeps a store.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.calls import CallOptions
from airflow_kstreams.streams.graph.components import connected_stores, parents
from airflow_kstreams.streams.graph.nodes import Node, ProcessorNode, options_of, traits_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """The stages of one subtopology.

    :param of: node name -> its stage.
    :param gives_in: node name -> stage in which its results begin.
    :param last: number of the last stage; 0 if there is no asynchronous node.
    """

    of: Mapping[str, int]
    gives_in: Mapping[str, int]
    last: int

    @property
    def early(self) -> frozenset[str]:
        """Names of the nodes that run before the last stage."""
        return frozenset(name for name, stage in self.of.items() if stage < self.last)


def stages_of(nodes: Sequence[Node]) -> Stages:
    """Find the stages of a subtopology.

    :param nodes: the subtopology's nodes, in topological order.
    :raises TopologyError: a store is used above an asynchronous node and below it.
    """
    calling = {node.name for node in nodes if options_of(node) is not None}
    if not calling:
        zeros = {node.name: 0 for node in nodes}
        return Stages(of=zeros, gives_in=zeros, last=0)
    sharing = _sharing(nodes)
    stage = _first_stages(nodes, calling, sharing)
    last = max(stage[name] + 1 for name in calling)
    leading = _leading(nodes, calling, sharing)
    of = {node.name: stage[node.name] if node.name in leading else last for node in nodes}
    gives_in = {name: of[name] + (name in calling) for name in of}
    return Stages(of=of, gives_in=gives_in, last=last)


def _sharing(nodes: Sequence[Node]) -> Mapping[str, tuple[str, ...]]:
    """Return store name -> names of the nodes that use it, in topological order."""
    users: dict[str, list[str]] = {}
    for node in nodes:
        for store in connected_stores(node):
            users.setdefault(store, []).append(node.name)
    return {store: tuple(names) for store, names in users.items()}


def _first_stages(
    nodes: Sequence[Node], calling: Iterable[str], sharing: Mapping[str, Sequence[str]]
) -> dict[str, int]:
    """Return node name -> the first stage in which it can be."""
    stage = {node.name: 0 for node in nodes}
    calls = {*calling}
    changed = True
    while changed:
        changed = False
        for node in nodes:
            first = max((stage[above] + (above in calls) for above in parents(node)), default=0)
            if first > stage[node.name]:
                stage[node.name], changed = first, True
        for store, names in sharing.items():
            latest = max(stage[name] for name in names)
            for name in names:
                if stage[name] < latest:
                    stage[name], changed = latest, True
            if latest > len(calls):
                raise _store_on_both_sides(store, nodes, calls)
    return stage


def _leading(
    nodes: Sequence[Node], calling: Iterable[str], sharing: Mapping[str, Sequence[str]]
) -> frozenset[str]:
    """Return the nodes on which the input of an asynchronous node depends, those nodes among them."""
    above = {node.name: parents(node) for node in nodes}
    stores = {node.name: connected_stores(node) for node in nodes}
    leading: set[str] = set()
    waiting = [*calling]
    while waiting:
        name = waiting.pop()
        if name in leading:
            continue
        leading.add(name)
        waiting += above[name]
        waiting += [other for store in stores[name] for other in sharing[store]]
    # Sources belong to stage 0: every record is decoded when it is chosen.
    return frozenset(leading | {node.name for node in nodes if not parents(node)})


def _store_on_both_sides(store: str, nodes: Sequence[Node], calling: Iterable[str]) -> TopologyError:
    sites = {node.name: node.site for node in nodes}
    users = [n.name for n in nodes if isinstance(n, ProcessorNode) and store in n.stores]
    for call in calling:
        before, behind = _leading_to(nodes, {call}), _reached(nodes, {call}) - {call}
        first = next((name for name in users if name in before), None)
        last = next((name for name in users if name in behind), None)
        if first is not None and last is not None:
            return TopologyError(
                f"store {store!r} is used above the asynchronous node {call!r} ({sites[call]}), by {first!r} "
                f"({sites[first]}), and below it, by {last!r} ({sites[last]}): while calls run, "
                "what stands above has seen later records, so no state is right for both",
                fix="keep two stores, or go through a topic between the two: through('topic')",
            )
    return TopologyError(
        f"the nodes {', '.join(users)} share the store {store!r} around asynchronous nodes, so that no "
        "order of them sees the same records",
        fix="keep two stores",
    )


def on_threads(nodes: Sequence[Node], calls: CallOptions) -> tuple[Node, ...]:
    """Return a subtopology's nodes, with operators that run on threads wherever a node can.

    :param nodes: the subtopology's nodes, in topological order.
    :param calls: options of the calls on threads.
    """
    found = list(nodes)
    keeping = _reached(nodes, {node.name for node in nodes if connected_stores(node)})
    asking = _leading_to(nodes, {node.name for node in nodes if traits_of(node).asks_for_commits})
    calling: dict[int, Node] = {}
    for at, node in enumerate(nodes):
        make = traits_of(node).on_threads
        if make is not None and isinstance(node, ProcessorNode) and node.name not in keeping & asking:
            operator = make(calls)
            if operator is not None:
                calling[at] = dataclasses.replace(node, operator=operator)
    places = [*calling]
    while places:
        allowed = _allowed(found, calling, places)
        for at in places[:allowed]:
            found[at] = calling[at]
        places = places[allowed + 1 :]
    return tuple(found)


def _allowed(nodes: Sequence[Node], calling: Mapping[int, Node], places: Sequence[int]) -> int:
    """Return the largest number n such that the nodes at the first n of ``places`` may all run on threads.

    If the topology refuses n, it refuses any larger number, so the number is found by doubling and halving.

    :param nodes: the subtopology's nodes, in topological order.
    :param calling: index of a node -> the node with an operator that runs on threads.
    :param places: indexes of the candidates, in topological order.
    """
    fits, fails, step = 0, len(places) + 1, 1
    while fails - fits > 1:
        number = min(fits + step, fails - 1)
        found = [*nodes]
        for at in places[:number]:
            found[at] = calling[at]
        try:
            stages_of(found)
        except TopologyError:
            fails = number
            step = max(1, (fails - fits) // 2)
        else:
            fits = number
            step = 2 * step if fails > len(places) else max(1, (fails - fits) // 2)
    return fits


def _reached(nodes: Sequence[Node], names: set[str]) -> set[str]:
    """Return the names of the given nodes and of all nodes below them."""
    reached = set(names)
    for node in nodes:
        if not reached.isdisjoint(parents(node)):
            reached.add(node.name)
    return reached


def _leading_to(nodes: Sequence[Node], names: set[str]) -> set[str]:
    """Return the names of the given nodes and of all nodes above them."""
    above: Mapping[str, tuple[str, ...]] = {node.name: parents(node) for node in nodes}
    leading = set(names)
    for node in reversed(nodes):
        if node.name in leading:
            leading.update(above[node.name])
    return leading
