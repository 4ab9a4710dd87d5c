"""Defines the operator that gives a table's entries other keys and values, on their way into a group.

Rule: ``selector(key, value)`` runs on the new and on the old value. The pair of the old value is to be
subtracted under its key, and the pair of the new one added under its own. Pairs of equal keys are sent as one
record, so that no reader sees the group without the entry; different ones as two, the one to subtract first.
A pair whose key or value is None is in no group, and neither is an entry for which the selector gives None.

Order: all changes of one entry of the table come from one task, and those for one group go through one
partition of the repartition topic, so each is subtracted after it was added. Entries of different keys come
in any order; adder and subtractor must not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_kstreams.streams.graph.nodes import OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, NodeContext
from airflow_kstreams.streams.kstream.operators.function_kinds import pair_of
from airflow_kstreams.streams.serde.internal_serdes import OldAndNew
from airflow_kstreams.streams.type_variables import KR, VR, K, V

#: ``selector(key, value)`` gives the key of the group and the value to add to it; None for no group.
EntrySelector = Callable[[K, V], tuple[KR | None, VR | None] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSelect:
    """Selects group and value of each entry; a new pair without key or value is counted."""

    selector: EntrySelector

    type: ClassVar[str] = "table_select"
    traits: ClassVar[OperatorTraits] = OperatorTraits(old_values="needs")

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        selector = self.selector
        count_null = context.counting("null")

        def selected(key: Any, value: Any) -> tuple[Any, Any] | None:
            if value is None:
                return None
            pair = selector(key, value)
            if pair is None:
                return None
            if type(pair) is not tuple or len(pair) != 2:
                pair = pair_of("group_by", pair)
            group, grouped = pair
            return None if group is None or grouped is None else (group, grouped)

        def run(key: Any, change: OldAndNew, _node: str = context.node) -> None:
            new, old = selected(key, change.new), selected(key, change.old)
            if new is None and change.new is not None:
                count_null()
            if new is not None and old is not None and _same(new[0], old[0]):
                forward(new[0], OldAndNew(new[1], old[1]))
                return
            if old is not None:
                forward(old[0], OldAndNew(None, old[1]))
            if new is not None:
                forward(new[0], OldAndNew(new[1], None))

        return run


def _same(one: Any, other: Any) -> bool:
    """Return True if two keys are the same. Equal keys of different text, as 1 and True or a reordered dict,
    may have different bytes, and lie in different partitions.
    """
    return bool(one == other) and repr(one) == repr(other)
