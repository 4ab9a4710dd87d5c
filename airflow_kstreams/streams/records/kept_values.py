"""Copies keys and values that wait for a call or for a later stage.

Rule: a waiting object is a copy, made where the record reached the node, unless nothing else can change the
object: it is immutable, or a source decoded it for this node alone. So a call, and a sink beside it, see the
value of the time at which the record reached the node, whatever other nodes and later records do with the
object.

The aggregate of a fold is copied by the same rule where the task goes on after an error (:func:`standing`):
an aggregator that changes it in place and then raises has changed a copy.

A value that cannot be copied is refused by name. A plain function that runs on a thread only because the task
has several threads is then called at once, on the task's own thread, and its answer is kept instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.components import parents
from airflow_kstreams.streams.graph.nodes import Node, SourceNode
from airflow_kstreams.streams.state.stores.value_copies import UncopyableError, kept


def standing(node: str) -> Callable[[Any], Any]:
    """Return the function that copies the aggregate which a node's fold gives to its aggregator.

    :param node: name of the node.
    :return: function from aggregate to copy; it raises TopologyError for one that cannot be copied.
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
    """Return the error for a value that must wait and cannot be copied.

    :param error: the failed copy.
    :param node: name of the node for which the value waits.
    :param task_id: the task's id.
    :param implicit: True if the node calls on threads only because the task has several.
    """
    fix = "forward plain data to the node, or give the class a __deepcopy__"
    return TopologyError(
        f"task {task_id}: {error}, and node {node!r} needs a copy of each value that waits while calls run",
        fix=f"{fix}, or set num.threads.per.task=1" if implicit else fix,
    )


def given_alone(nodes: Sequence[Node]) -> frozenset[str]:
    """Return the names of the sources with one child, which alone holds the decoded objects."""
    children: dict[str, int] = {}
    for node in nodes:
        for parent in parents(node):
            children[parent] = children.get(parent, 0) + 1
    return frozenset(
        node.name for node in nodes if isinstance(node, SourceNode) and children.get(node.name) == 1
    )
