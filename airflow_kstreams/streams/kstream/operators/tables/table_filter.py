"""The operator that keeps the entries of a table that satisfy a predicate, or those that do not.

Rule: an entry that no longer passes is deleted; one that neither passed before nor passes now is passed over,
so that no key is deleted that was never there. Of a versioned table every entry that does not pass is
emitted as a deletion, as in Kafka Streams: which versions passed before is not asked. How old values come
here is written in :mod:`airflow_kstreams.streams.kstream.operators.tables.table_changes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_kstreams.streams.graph.operator_traits import OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, NodeContext
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.kstream.operators.stateless import Predicate
from airflow_kstreams.streams.kstream.operators.tables.table_changes import bind_derived


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFilter:
    """Filters a table.

    :param passing: what the predicate says of entries that stay.
    :param parent: name of the table's node.
    :param store: where the result is kept; None if it is not.
    :param versioned: whether the table has versions.
    """

    predicate: Predicate
    passing: bool
    parent: str
    store: StoreSpec | None
    versioned: bool = False

    @property
    def type(self) -> str:
        """Kind of node."""
        return "table_filter" if self.passing else "table_filter_not"

    @property
    def traits(self) -> OperatorTraits:
        """What the engine knows of the operator."""
        return OperatorTraits(old_values="needs" if self.store is None else "ignores")

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        predicate, passing = self.predicate, self.passing

        def passed(key: Any, value: Any) -> Any:
            return value if bool(predicate(key, value)) is passing else None

        return bind_derived(self, passed, forward, context, children, quiet=not self.versioned)
