"""How a table hands its changes to its children (:mod:`.table_changes` says why so)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from airflow_kstreams.streams.changes import Change
from airflow_kstreams.streams.graph.inlining import LoopCode
from airflow_kstreams.streams.graph.services import Forward, NodeContext

#: (value, timestamp_ms) of a key.
Entry = tuple[Any, int]
#: What stands for the entry of a key that has none.
ABSENT: tuple[None, int] = (None, -1)


class Deliveries:
    """Hands a table's changes to its children, one after another, and knows which have got the current one.

    :param forward: hands a value to every child.
    :param children: of the table's node.
    """

    def __init__(self, forward: Forward, context: NodeContext, children: Mapping[str, Forward]) -> None:
        taking = context.taking_changes
        if taking.isdisjoint(children):
            self._edges: tuple[tuple[Forward, bool], ...] = ((forward, False),)
        else:
            self._edges = tuple((child, name in taking) for name, child in children.items())
        self._places = {name: place for place, name in enumerate(children)}
        self._place = len(self._edges)
        self._key: Any = None
        self._change: Change | None = None
        #: Hands one change to every child, in build order. An only child knows each as soon as there is one.
        self.give: Callable[[Any, Change], None] = self._to_all
        if len(self._edges) == 1:
            ((child, takes),) = self._edges
            self.give = child if takes else lambda key, change: child(key, change.new)

    def _to_all(self, key: Any, change: Change) -> None:
        self._key = key
        self._change = change
        for place, (child, takes) in enumerate(self._edges):
            self._place = place
            child(key, change if takes else change.new)
        self._place = len(self._edges)

    def write(self, code: LoopCode, key: str, change: str, new: str) -> None:
        """Write that one change is handed to every child.

        :param new: variable that holds the change's new value.
        """
        if len(self._edges) == 1:
            ((_, takes),) = self._edges
            code.forward(key, change if takes else new)
        else:
            code.line(f"{code.name(self.give, 'give')}({key}, {change})")

    def before(self, key: Any, child: str | None) -> tuple[Entry | None] | None:
        """Return, in a tuple, the entry that a child knows of a key whose change has not come to it yet; None
        if no change is on its way.
        """
        change = self._change
        if child is None or change is None or self._place >= self._places[child] or key != self._key:
            return None
        return (None,) if change.old is None else ((change.old, change.old_ms),)
