"""Gives a fold by sliding windows a second store for closed windows where one store cannot keep them.

Rule: windows of later records begin with what closed ones hold, so a fold keeps them for another size. It
keeps them where the open ones are. Where ``suppress`` waits for windows it cannot: a store hands a window
over as the window leaves it. There, and where a processor of the user reads it, the closed ones have a second
store.
"""

from __future__ import annotations

import dataclasses

from airflow_kstreams.streams.graph.nodes import ProcessorNode
from airflow_kstreams.streams.graph.store_specs import WindowStoreSpec
from airflow_kstreams.streams.kstream.operators.windows.sliding_fold import SlidingWindowFold
from airflow_kstreams.streams.kstream.operators.windows.suppress import Suppress
from airflow_kstreams.streams.topology.topology import Topology


def kept_together(topology: Topology) -> Topology:
    """Return the topology in which each sliding fold has one store, unless it needs two."""
    nodes = [node for node in topology.nodes if isinstance(node, ProcessorNode)]
    suppressed = {node.operator.store.name for node in nodes if isinstance(node.operator, Suppress)}
    users = [store for node in nodes for store in node.stores]
    for node in nodes:
        fold = node.operator
        if (
            isinstance(fold, SlidingWindowFold)
            and fold.closed is not None
            and fold.store.name not in suppressed
            and users.count(fold.closed.name) == 1
        ):
            topology = _with_one_store(topology, node, fold, fold.closed)
    return topology


def _with_one_store(
    topology: Topology, node: ProcessorNode, fold: SlidingWindowFold, closed: WindowStoreSpec
) -> Topology:
    """Return the topology in which a fold's first store keeps what the second one would.

    :param closed: the second store.
    """
    store = dataclasses.replace(fold.store, retention_ms=closed.retention_ms)
    folding = dataclasses.replace(
        node,
        operator=dataclasses.replace(fold, store=store, closed=None),
        stores=tuple(name for name in node.stores if name != closed.name),
    )
    return dataclasses.replace(
        topology,
        nodes=tuple(folding if each is node else each for each in topology.nodes),
        stores=tuple(
            store if spec.name == store.name else spec for spec in topology.stores if spec.name != closed.name
        ),
    )
