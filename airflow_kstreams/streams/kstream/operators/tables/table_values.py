"""The operator that replaces the values of a table.

Rule: a deleted key stays deleted; a value that becomes None deletes its key. How old values come here is
written in :mod:`airflow_kstreams.streams.kstream.operators.tables.table_changes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_kstreams.streams.graph.operator_traits import OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, NodeContext
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.kstream.operators.stateless import ValueMapper
from airflow_kstreams.streams.kstream.operators.tables.table_changes import bind_derived


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMapValues:
    """Replaces the values of a table.

    :param parent: name of the table's node.
    :param store: where the result is kept; None if it is not.
    """

    mapper: ValueMapper
    parent: str
    store: StoreSpec | None

    type: ClassVar[str] = "table_map_values"

    @property
    def traits(self) -> OperatorTraits:
        """What the engine knows of the operator."""
        return OperatorTraits(old_values="passes on" if self.store is None else "ignores")

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        mapper = self.mapper

        def mapped(key: Any, value: Any) -> Any:
            return mapper(value)

        return bind_derived(self, mapped, forward, context, children, quiet=False)
