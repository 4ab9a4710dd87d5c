"""Branches of a stream: ``KStream.branch`` and ``KStream.split`` add one node that tries predicates in order,
and a child below it for each branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.hints.call_site import call_site
from airflow_kstreams.streams.hints.function_checks import declares_context
from airflow_kstreams.streams.hints.java_classes import answers_methods_of
from airflow_kstreams.streams.kstream.known import KnownStream
from airflow_kstreams.streams.kstream.operators.stateless import Branch, PassThrough, Predicate
from airflow_kstreams.streams.records.record_context import InContext, RecordContext

T = TypeVar("T")


@answers_methods_of("BranchedKStream")
class Branches(dict[str, T]):
    """Branches by their names."""


def branched(
    known: KnownStream,
    call: str,
    predicates: Sequence[tuple[str, Predicate | InContext]],
    *,
    default: str | None = None,
    name: str | None = None,
) -> list[KnownStream]:
    """Add a node that branches, and return a stream of what each of its children gets.

    :param call: the DSL method, for messages.
    :param predicates: in order of trial, each behind the name of its branch.
    :param default: name of the branch of the records for which none holds; None leaves them out.
    :param name: that the user gave the node.
    :raises TopologyError: there is no predicate, or one of them is no function.
    """
    if not predicates:
        raise TopologyError(f"{call} at {call_site()} has no predicate", fix="pass one predicate per branch")
    taking = [
        declares_context(f"split({branch}=)" if call == "split" else call, predicates=predicate)
        for branch, predicate in predicates
    ]
    graph = known.graph
    node = graph.node_name("KSTREAM-BRANCH", name)
    names = [branch for branch, _ in predicates] + ([] if default is None else [default])
    children = [graph.name("KSTREAM-BRANCHCHILD") if name is None else f"{name}-{each}" for each in names]
    operator = Branch(
        predicates=tuple(
            predicate if takes or not any(taking) else _without_context(predicate)
            for (_, predicate), takes in zip(predicates, taking, strict=True)
        ),
        children=tuple(children[: len(predicates)]),
        rest=None if default is None else children[-1],
        with_context=any(taking),
    )
    graph.topology.add_operator(node, operator, known.node)
    for child in children:
        graph.topology.add_operator(child, PassThrough(type="branch_child"), node)
    return [known.at(child) for child in children]


def _without_context(predicate: Any) -> InContext:
    """Return a predicate that is given a context, as others of its node are, and leaves it aside."""

    def beside_others(key: Any, value: Any, /, *, context: RecordContext) -> Any:
        return predicate(key, value)

    return beside_others
