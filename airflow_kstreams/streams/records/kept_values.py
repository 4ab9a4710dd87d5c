"""Copies keys and values that wait for a call or for a later stage.

Rule: what waits is a copy, made where the record reached the node, unless no one else can change it: it is
immutable, or a source decoded it for this node alone. So a call, and a sink beside it, see the value as it is
where it was reached, whatever other nodes and later records do with the object.

The aggregate of a fold is kept likewise where the task goes on after an error (:func:`standing`): an
aggregator that changes it in place and then raises has changed a copy.

A value that cannot be copied is refused by name. A plain function that runs on a thread only because the task
has several is then called where the record is, on the task's own thread, and what it gives is kept instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.components import parents
from airflow_kstreams.streams.graph.nodes import Node, SourceNode
from airflow_kstreams.streams.state.stores.value_copies import UncopyableError, kept


def standing(node: str) -> Callable[[Any], Any]:
    """Return the function that copies the aggregate a node's fold is about to give to its aggregator.

    :return: raises TopologyError for an aggregate that cannot be copied.
    """

    def copied(aggregate: Any) -> Any:
        try:
            return kept(aggregate)
        except UncopyableError as error:
            raise TopologyError(
                f"{error}, and the aggregate of node {node!r} must stay as it is when its function raises, "
                "since processing.exception.handler goes on then",
                fix="aggregate plain data, give the class a __deepcopy__, or set "
                "processing.exception.handler=fail",
            ) from error

    return copied


def refused(error: UncopyableError, node: str, *, task_id: str, implicit: bool) -> TopologyError:
    """Return what is said of a value that must wait and cannot be copied.

    :param implicit: whether the node waits only because the task has several threads.
    """
    fix = "forward plain data to the node, or give the class a __deepcopy__"
    return TopologyError(
        f"task {task_id}: {error}, and what waits for node {node!r} while calls run must stay as it is",
        fix=f"{fix}, or set num.threads.per.task=1" if implicit else fix,
    )


def given_alone(nodes: Sequence[Node]) -> frozenset[str]:
    """Return the sources whose records go to one node: it alone has what was decoded."""
    children: dict[str, int] = {}
    for node in nodes:
        for parent in parents(node):
            children[parent] = children.get(parent, 0) + 1
    return frozenset(
        node.name for node in nodes if isinstance(node, SourceNode) and children.get(node.name) == 1
    )
