"""Finds a branch of a stream that changes a value which the branches behind it share, for test drivers.

Children of a node are given one object, in build order, as in Kafka Streams: a function that changes its
argument changes it for the children behind. That is rarely meant, and finding it costs a copy of each value,
so only test drivers do it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_kstreams.streams.codegen.loop_code import Inlining
from airflow_kstreams.streams.graph.services import Forward, LoopCode
from airflow_kstreams.streams.state.stores.value_copies import IMMUTABLE, kept_if_copyable

#: Takes the names of a node and of its child that changed a value.
SayShared = Callable[[str, str], None]


def watched(
    node: str, children: dict[str, Forward], inlining: Inlining, say: SayShared
) -> dict[str, Forward]:
    """Return the children of a node; each but the last compares the value before and behind it.

    :param node: name of the node.
    :param children: child name -> its closure.
    :param inlining: the lines of each closure; this function adds those of the new closures.
    :param say: function to call when a child has changed a value.
    """
    *first, last = children
    return {
        **{name: _watching(node, name, children[name], inlining, say) for name in first},
        last: children[last],
    }


def _watching(node: str, name: str, child: Forward, inlining: Inlining, say: SayShared) -> Forward:
    def look(value: Any) -> Any:
        """Return a copy that equals the value; None if there is none, or no need for one."""
        if type(value) in IMMUTABLE:
            return None
        before = kept_if_copyable(value)
        return before if before is not value and _equal(before, value) else None

    def compare(before: Any, value: Any) -> None:
        if before is not None and not _equal(before, value):
            say(node, name)

    def run(key: Any, value: Any) -> None:
        before = look(value)
        child(key, value)
        compare(before, value)

    known = inlining.codes.get(child)
    if known is not None:
        write_child = known.write

        def write(code: LoopCode, key: str, value: str) -> None:
            before = code.variable("shared")
            code.line(f"{before} = {code.name(look, 'look')}({value})")
            write_child(code, key, value)
            code.line(f"{code.name(compare, 'compare')}({before}, {value})")

        inlining.codes[run] = known._replace(write=write)
    return run


def _equal(one: Any, other: Any) -> bool:
    try:
        return (one == other) is True
    except Exception:
        return False
