"""Defines the operators that join two tables on their keys.

Rule: a change of one side is joined with the other side's value of the key, its new value for the result's
new one and its old value for the old one. A side is needed if the result has no entry without it: both in an
inner join, the left one in a left join, none in an outer one. Where a side that is needed is absent, there is
no result; a key that had no result and has none now is not emitted. The result's timestamp is the larger one
of both entries'.

Each side has a node, and the results of both come together in a third, which is the joined table. The entry
of the other side that a side sees is defined in
:mod:`airflow_kstreams.streams.kstream.operators.table_emitter`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from airflow_kstreams.streams.graph.nodes import OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, LoopCode, NodeContext
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.kstream.operators.table_emitter import ABSENT, Deliveries, Entry
from airflow_kstreams.streams.kstream.operators.tables.derived_table import bind_kept
from airflow_kstreams.streams.serde.internal_serdes import OldAndNew
from airflow_kstreams.streams.type_variables import VO, VR, V

TablesJoinKind = Literal["join", "left_join", "outer_join"]

#: ``joiner(left_value, right_value)`` gives the result's value; the value of a side that is not needed may be
#: None.
TablesJoiner = Callable[[V, VO], VR | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSide:
    """One of the tables that are joined.

    :param table: name of the table's node.
    :param node: name of the node that takes its changes.
    :param needed: True if there is no result without an entry of this table.
    """

    table: str
    node: str
    needed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesJoin:
    """The parts that the nodes of a join share.

    :param kind: name of the DSL method.
    :param joiner: function that makes a result of both values.
    :param left: the left table.
    :param right: the right table.
    """

    kind: TablesJoinKind
    joiner: TablesJoiner
    left: TableSide
    right: TableSide

    def joining(self) -> Callable[[Any, Any], Any]:
        """Return a function that makes the result of two values, None without a result."""
        left_needed, right_needed, joiner = self.left.needed, self.right.needed, self.joiner

        def joined(left: Any, right: Any) -> Any:
            if left is None and (right is None or left_needed):
                return None
            if right is None and right_needed:
                return None
            return joiner(left, right)

        return joined


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesJoinSide:
    """Joins the changes of one table with the other one."""

    join: TablesJoin
    is_left: bool

    traits: ClassVar[OperatorTraits] = OperatorTraits(old_values="needs")

    @property
    def type(self) -> str:
        """Kind of node."""
        return f"{self.join.kind}_tables_{'left' if self.is_left else 'right'}"

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        other = self.join.right if self.is_left else self.join.left
        other_table, other_node, tables = other.table, other.node, context.tables
        joining, old_needed = self.join.joining(), context.old_needed
        count_null = context.counting("null")

        def theirs_of(key: Any) -> Entry | None:
            """Return the other side's entry of a key."""
            return tables[other_table].get(key, other_node)

        def write(code: LoopCode, key: str, value: str) -> None:
            new, old, old_ms, theirs, their_value, their_ms, result, earlier, at_ms, change = map(
                code.variable,
                (
                    *("new", "old", "old_ms", "theirs", "their_value", "their_ms"),
                    *("result", "earlier", "at_ms", "change"),
                ),
            )

            def joined(mine: str) -> str:
                sides = f"{mine}, {their_value}" if self.is_left else f"{their_value}, {mine}"
                return f"{code.name(joining, 'joined')}({sides})"

            with code.block(f"if {key} is None"):
                code.line(f"{code.name(count_null, 'count_null')}()")
            with code.block("else"):
                code.line(f"{new}, {old}, {old_ms} = {value}")
                code.place()  # a table without a store calls functions
                code.line(f"{theirs} = {code.name(theirs_of, 'theirs_of')}({key})")
                some = f"{theirs} is not None"
                if not other.needed:
                    some += f" or {new} is not None or {old} is not None"
                with code.block(f"if {some}"):
                    code.line(f"{their_value}, {their_ms} = {theirs} or {code.name(ABSENT, 'absent')}")
                    code.line(f"{result} = {joined(new)}")
                    code.line(f"{earlier} = {joined(old) if old_needed else None}")
                    code.line(f"{at_ms} = max({code.timestamp_ms}, {their_ms})")
                    with code.changed("timestamp_ms", at_ms):
                        made = f"{result}, {earlier}, max({old_ms}, {their_ms})"
                        code.line(f"{change} = {code.name(OldAndNew, 'OldAndNew')}({made})")
                        code.forward(key, change)

        return context.written(write, forward, children)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedTable:
    """The table of a join's results.

    :param join: the join.
    :param store: spec of its store; None if it has none.
    """

    join: TablesJoin
    store: StoreSpec | None

    type: ClassVar[str] = "joined_table"

    @property
    def traits(self) -> OperatorTraits:
        """The facts about the operator that the engine uses."""
        return OperatorTraits(old_values="passes on" if self.store is None else "ignores")

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        if self.store is not None:
            return bind_kept(self.store, lambda key, value: value, forward, context, children)
        deliveries = Deliveries(forward, context, children)
        context.tables[context.node] = _JoinedView(context, self.join, deliveries)

        def write(code: LoopCode, key: str, value: str) -> None:
            new = code.variable("new")
            code.line(f"{new} = {value}.new")
            code.place(for_closures=True)
            deliveries.write(code, key, value, new)

        return context.written(write, forward, children)


class _JoinedView:
    """A joined table without a store, read through both sides."""

    def __init__(self, context: NodeContext, join: TablesJoin, deliveries: Deliveries) -> None:
        self._tables, self._join, self._deliveries = context.tables, join, deliveries
        self._joined = join.joining()

    def get(self, key: Any, child: str | None) -> Entry | None:
        """Return the entry of a key with the changes that ``child`` has been given; None for all changes."""
        before = self._deliveries.before(key, child)
        if before is not None:
            return before[0]
        left, right = (
            self._tables[side.table].get(key, None if child is None else side.node) or ABSENT
            for side in (self._join.left, self._join.right)
        )
        value = self._joined(left[0], right[0])
        return None if value is None else (value, max(left[1], right[1]))
