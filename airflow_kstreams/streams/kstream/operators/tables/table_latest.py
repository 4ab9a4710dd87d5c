"""The operator between a versioned table and the tables below it that know one value per key.

Rule: what is not the latest version of its key goes no further, and is counted as late; so the tables below,
folds and joins, are of each key's latest value, whatever order the records came in. Kafka Streams does this
in each of their operators (KIP-914).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_kstreams.streams.changes import Change, LateChange
from airflow_kstreams.streams.graph.operator_traits import OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, NodeContext
from airflow_kstreams.streams.kstream.operators.deliveries import Deliveries
from airflow_kstreams.streams.kstream.operators.tables.table_changes import DerivedView


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLatest:
    """Passes on the changes of a versioned table that are its keys' latest.

    :param parent: name of the table's node.
    """

    parent: str

    type: ClassVar[str] = "table_latest"
    traits: ClassVar[OperatorTraits] = OperatorTraits(old_values="passes on")

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        deliveries = Deliveries(forward, context, children)

        def same(key: Any, value: Any, timestamp_ms: int) -> Any:
            return value

        context.tables[context.node] = DerivedView(context, self.parent, same, deliveries)
        give, count_late = deliveries.give, context.counting("late")

        def run(key: Any, change: Change, _node: str = context.node) -> None:
            if isinstance(change, LateChange):
                count_late()
            else:
                give(key, change)

        return run
