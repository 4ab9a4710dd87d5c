"""Chooses the nodes that run on the threads of a task that has several (``num.threads.per.task``).

Rule: a node whose operator has the trait ``on_threads`` runs on threads, as an asynchronous node whose calls
are plain functions; a processor does if it declares itself fit. What leaves the task is the same. A node
stays as it is where its calls would let nodes above it go further than a topology allows: where a store is
used on both sides of it, and where a processor below it may ask for a commit while something above it keeps a
store.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.calls import CallOptions
from airflow_kstreams.streams.graph.components import connected_stores, parents
from airflow_kstreams.streams.graph.nodes import Node, ProcessorNode, traits_of
from airflow_kstreams.streams.graph.stages import stages_of


def on_threads(nodes: Sequence[Node], calls: CallOptions) -> tuple[Node, ...]:
    """Return a subtopology's nodes, those that can on threads.

    :param nodes: in topological order.
    :param calls: how they are called.
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
    """Return how many of the first places may call at once. What a topology does not allow it does not allow
    with more of them either, so the number is found by doubling and halving.
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
    """Return the nodes at or below some."""
    reached = set(names)
    for node in nodes:
        if not reached.isdisjoint(parents(node)):
            reached.add(node.name)
    return reached


def _leading_to(nodes: Sequence[Node], names: set[str]) -> set[str]:
    """Return the nodes at or above some."""
    above: Mapping[str, tuple[str, ...]] = {node.name: parents(node) for node in nodes}
    leading = set(names)
    for node in reversed(nodes):
        if node.name in leading:
            leading.update(above[node.name])
    return leading
