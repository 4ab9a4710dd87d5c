"""Finds which nodes of a subtopology take a table's changes, and where old values are needed.

An operator takes a :class:`~airflow_kstreams.streams.serde.changed.Change` of each key, in place of the value
alone, if its trait ``old_values`` is set. Every other operator gets values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_kstreams.streams.graph.components import parents
from airflow_kstreams.streams.graph.nodes import Node, traits_of


@dataclass(frozen=True, slots=True)
class TableChanges:
    """Where changes go in one subtopology.

    :param takers: names of the nodes that take changes.
    :param old_needed: names of the nodes below which old values are needed.
    """

    takers: frozenset[str]
    old_needed: frozenset[str]


def table_changes(nodes: Sequence[Node]) -> TableChanges:
    """Find where changes go.

    :param nodes: in topological order.
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
