"""Joins the records of a stream with a global table.

Rule: ``selector(key, value)`` gives the table's key of each record. The table is as it was when the run
began: every record of the run meets the same entries, whatever its time is, in every task and attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow_kstreams.streams.graph.global_tables import GlobalTableDef
from airflow_kstreams.streams.graph.operator_traits import OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, NodeContext
from airflow_kstreams.streams.kstream.operators.tables.named_keys import unfit_name
from airflow_kstreams.streams.kstream.operators.tables.table_join import ValueJoiner
from airflow_kstreams.streams.type_variables import KR, K, V

#: ``selector(key, value)`` gives the key of the global table's entry, None for none.
GlobalKeySelector = Callable[[K, V], KR | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalTableJoin:
    """Joins each record with the entry that it names, as Kafka Streams does.

    A record without value is dropped and counted, and one that names no entry in an inner join; a left join
    gives it no table value.

    :param joiner: makes the result's value.
    :param left: whether a record without an entry is joined with None rather than left out.
    """

    joiner: ValueJoiner
    selector: GlobalKeySelector
    global_table: GlobalTableDef
    left: bool

    @property
    def type(self) -> str:
        """Kind of node; the topic belongs to it."""
        return f"{'left_join' if self.left else 'join'}_global_table({self.global_table.topic})"

    @property
    def traits(self) -> OperatorTraits:
        """What the engine knows of the operator."""
        return OperatorTraits(flow="kept", global_table=self.global_table)

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        joiner, selector, left = self.joiner, self.selector, self.left
        entries = context.global_entries(self.global_table.topic)
        key_serde, value_of = self.global_table.key_serde, self._value_of
        key_bytes = key_serde.serialize
        count_null, count_unmatched = context.counting("null"), context.counting("unmatched")

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            if value is None:
                count_null()
                return
            named = selector(key, value)
            if named is None and not left:
                count_null()
                return
            try:
                wanted = None if named is None else key_bytes(named)
            except Exception as error:
                raise unfit_name("key", named, key_serde, error) from error
            data = None if wanted is None else entries.get(wanted)
            if data is not None:
                forward(key, joiner(value, value_of(data)))
            elif left:
                forward(key, joiner(value, None))
            else:
                count_unmatched()

        return run

    def _value_of(self, data: bytes) -> Any:
        try:
            return self.global_table.value_serde.deserialize(data)
        except Exception as error:
            raise ValueError(
                f"the entry that it names in the global table of {self.global_table.topic!r} cannot be read: "
                f"{type(error).__name__}: {error}"
            ) from error
