"""Defines the operators that join the records of a stream with a table.

Rule: each record of the stream is joined with the table's present entry of its key; changes of the table give
no result. A task chooses records by timestamp, and the topic whose name sorts first among equal ones, so the
entry is the one of the record's own time, however the records were fetched. A cached table is read through
its cache.

A table with versions is read as of the record's timestamp, so that a late record is joined with the version
of its time. If its time lies behind the history, it has no table value, unless the key's latest version is
older still.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_kstreams.streams.graph.nodes import OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, LoopCode, NodeContext
from airflow_kstreams.streams.graph.store_specs import GlobalTableDef, StoreSpec
from airflow_kstreams.streams.hints.hidden_values import UnfitValueError, shown_text
from airflow_kstreams.streams.kstream.operators.function_kinds import unfit_name
from airflow_kstreams.streams.kstream.operators.table_emitter import Entry, flat_copy, handed_out, write_copy
from airflow_kstreams.streams.type_variables import KR, VO, VR, K, V

#: ``joiner(value, other_value)`` gives the result's value; one of them is None where a left or outer join
#: found no partner. A joiner that declares a parameter ``key`` is given the record's key by that name.
ValueJoiner = Callable[[V, VO], VR]
#: ``selector(key, value)`` gives the key of the global table's entry, None for none.
GlobalKeySelector = Callable[[K, V], KR | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJoin:
    """Joins each record with the table's value of its key, as Kafka Streams does.

    A record without value is dropped and counted, and one without key in an inner join; a left join gives it
    no table value.

    :param joiner: function that makes the result's value.
    :param table: name of the table's node.
    :param store: spec of the table's store; None if it has none and is derived from others.
    :param left: True if a record without a table value is joined with None, False if it is left out.
    :param versioned: True if the table has versions; a record is then joined with the one of its own time.
    :param with_key: True if the joiner is given the record's key by name.
    """

    joiner: ValueJoiner
    table: str
    store: StoreSpec | None
    left: bool
    versioned: bool = False
    with_key: bool = False

    traits: ClassVar[OperatorTraits] = OperatorTraits(flow="kept")

    @property
    def type(self) -> str:
        """Kind of node."""
        return "left_join_table" if self.left else "join_table"

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        store = None if self.store is None or self.versioned else context.store(self.store.name)
        entry_of = self._reading(context) if store is None else store.get_entry
        copied, flat = (None, None) if store is None else (handed_out(store), flat_copy(store))
        count_null, count_unmatched = context.counting("null"), context.counting("unmatched")

        def found(code: LoopCode, key: str) -> str:
            """Return the expression for the table's entry of a key that is not None."""
            if store is not None:
                key = code.serialized(key, store.spec.key_serde, store.serialize_key)
            else:
                code.place()  # the table may read the record's time, or call functions
            return f"{code.name(entry_of, 'entry_of')}({key})"

        def write(code: LoopCode, key: str, value: str) -> None:
            joiner = code.name(self.joiner, "joiner")
            entry, theirs, joined = map(code.variable, ("entry", "theirs", "joined"))
            by_name = f", key={key}" if self.with_key else ""
            with code.block(f"if {value} is None" + ("" if self.left else f" or {key} is None")):
                code.line(f"{code.name(count_null, 'count_null')}()")
            with code.block("else"):
                expression = found(code, key)
                code.line(f"{entry} = {f'None if {key} is None else ' if self.left else ''}{expression}")
                if self.left:
                    code.line(f"{theirs} = None if {entry} is None else {entry}[0]")
                    write_copy(code, copied, theirs, flat)
                    code.line(f"{joined} = {joiner}({value}, {theirs}{by_name})")
                    code.forward(key, joined)
                    return
                with code.block(f"if {entry} is None"):
                    code.line(f"{code.name(count_unmatched, 'count_unmatched')}()")
                with code.block("else"):
                    code.line(f"{theirs} = {entry}[0]")
                    write_copy(code, copied, theirs, flat)
                    code.line(f"{joined} = {joiner}({value}, {theirs}{by_name})")
                    code.forward(key, joined)

        return context.written(write, forward, children)

    def _reading(self, context: NodeContext) -> Callable[[Any], Entry | None]:
        """Return a function that reads the table's entry of a key: the present one, or the version of the
        record's time.
        """
        if self.versioned:
            views: dict[str, Any] = context.tables
            record_context, node = context.record_context, self.table
            return lambda key: views[node].get_as_of(key, record_context.timestamp_ms)
        tables, table = context.tables, self.table
        return lambda key: tables[table].get(key, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalTableJoin:
    """Joins each record with the entry of a global table that it names, as Kafka Streams does.

    Rule: ``selector(key, value)`` gives the table's key of each record. The table has the entries of the
    run's begin: every record of the run is joined with the same entries, whatever its time is, in every task
    and attempt.

    A record without value is dropped and counted, and one that names no entry in an inner join; a left join
    gives it no table value.

    :param joiner: function that makes the result's value.
    :param selector: function that gives the table's key of a record.
    :param global_table: the table.
    :param left: True if a record without an entry is joined with None, False if it is left out.
    :param with_key: True if the joiner is given the record's key by name.
    """

    joiner: ValueJoiner
    selector: GlobalKeySelector
    global_table: GlobalTableDef
    left: bool
    with_key: bool = False

    @property
    def type(self) -> str:
        """Kind of node; the topic belongs to it."""
        return f"{'left_join' if self.left else 'join'}_global_table({self.global_table.topic})"

    @property
    def traits(self) -> OperatorTraits:
        """The facts about the operator that the engine uses."""
        return OperatorTraits(flow="kept", global_table=self.global_table)

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        selector, left = self.selector, self.left
        entries = context.global_entries(self.global_table.topic)
        key_serde, value_of = self.global_table.key_serde, self._value_of
        key_bytes = key_serde.serialize
        count_null, count_unmatched = context.counting("null"), context.counting("unmatched")

        def found(key: Any, value: Any) -> tuple[Any] | None:
            """Return, in a tuple, the value that the table has for a record; None for a record left out."""
            named = selector(key, value)
            if named is None and not left:
                count_null()
                return None
            try:
                wanted = None if named is None else key_bytes(named)
            except Exception as error:
                raise unfit_name("key", named, key_serde, error) from error
            data = None if wanted is None else entries.get(wanted)
            if data is not None:
                return (value_of(data),)
            if left:
                return (None,)
            count_unmatched()
            return None

        def write(code: LoopCode, key: str, value: str) -> None:
            entry, joined = map(code.variable, ("entry", "joined"))
            by_name = f", key={key}" if self.with_key else ""
            with code.block(f"if {value} is None"):
                code.line(f"{code.name(count_null, 'count_null')}()")
            with code.block("else"):
                code.line(f"{entry} = {code.name(found, 'found')}({key}, {value})")
                with code.block(f"if {entry} is not None"):
                    code.line(f"{joined} = {code.name(self.joiner, 'joiner')}({value}, {entry}[0]{by_name})")
                    code.forward(key, joined)

        return context.written(write, forward, children)

    def _value_of(self, data: bytes) -> Any:
        try:
            return self.global_table.value_serde.deserialize(data)
        except Exception as error:
            raise UnfitValueError(
                f"the entry that it names in the global table of {self.global_table.topic!r} cannot be read: "
                f"{type(error).__name__}: {shown_text(error, str(error), own='')}"
            ) from error
