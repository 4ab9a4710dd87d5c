"""Defines the operators that make a table of one other, entry by entry.

:mod:`airflow_kstreams.streams.kstream.operators.table_emitter` explains the origin of old values, and reads
of tables without a store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Never

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.nodes import OldValues, OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, NodeContext, ProcessorServices
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.kstream.operators.stateless import Predicate
from airflow_kstreams.streams.kstream.operators.table_emitter import Deliveries, Entry
from airflow_kstreams.streams.kstream.operators.tables.table_source import keeping
from airflow_kstreams.streams.processor.context import ProcessorContext
from airflow_kstreams.streams.processor.definitions import check_transformer_class, made
from airflow_kstreams.streams.processor.processor import ValueTransformer, ValueTransformerDef
from airflow_kstreams.streams.serde.internal_serdes import LateChange, OldAndNew

#: (key, value) -> the derived table's value; None if the key is not in it.
Derivation = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedTable:
    """Makes each entry of a table from the same key's entry in another one.

    :param type: kind of node, e.g. ``table_filter``.
    :param derive: function called for values, never for None: a deleted key stays deleted.
    :param parent: name of the other table's node.
    :param store: spec of the result's store; None if it has none.
    :param old_values: the use of old values, if the result has no store.
    :param quiet: True if no deletion is emitted for a key that was not in the table. Always False for a table
        with versions: whether an earlier version was in it is not known.
    """

    type: str
    derive: Derivation
    parent: str
    store: StoreSpec | None
    old_values: OldValues
    quiet: bool

    @property
    def traits(self) -> OperatorTraits:
        """The facts about the operator that the engine uses."""
        return OperatorTraits(old_values=self.old_values if self.store is None else "ignores")

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        derive, quiet = self.derive, self.quiet
        if self.store is not None:
            return bind_kept(self.store, derive, forward, context, children)
        deliveries = Deliveries(forward, context, children)

        def derive_entry(key: Any, value: Any, timestamp_ms: int) -> Any:
            return derive(key, value)

        context.tables[context.node] = DerivedView(context, self.parent, derive_entry, deliveries)
        give, old_needed = deliveries.give, context.old_needed

        def run(key: Any, change: OldAndNew, _node: str = context.node) -> None:
            new, old, old_ms = change
            if new is not None:
                new = derive(key, new)
            # Without a table below, the value before says only whether a key leaves the table.
            with_old = old is not None and (old_needed or (quiet and new is None))
            old = derive(key, old) if with_old else None
            if new is not None or old is not None or not quiet:
                give(key, type(change)(new, old, old_ms))

        return run


def table_filter(
    predicate: Predicate, parent: str, store: StoreSpec | None, *, passing: bool, versioned: bool
) -> DerivedTable:
    """Return the operator that keeps the entries for which a predicate gives a certain answer.

    An entry that passed and fails now is deleted. In a versioned table every entry that fails is emitted as a
    deletion, as in Kafka Streams, whether or not an earlier version passed.

    :param parent: name of the table's node.
    :param store: spec of the result's store; None if it has none.
    :param passing: the predicate's answer for entries that stay.
    :param versioned: True if the table has versions.
    """
    return DerivedTable(
        type="table_filter" if passing else "table_filter_not",
        derive=lambda key, value: value if bool(predicate(key, value)) is passing else None,
        parent=parent,
        store=store,
        old_values="needs",
        quiet=not versioned,
    )


def table_map_values(
    mapper: Callable[..., Any], parent: str, store: StoreSpec | None, *, with_key: bool
) -> DerivedTable:
    """Return the operator that replaces the values of a table; one that becomes None deletes its key.

    :param parent: name of the table's node.
    :param store: spec of the result's store; None if it has none.
    :param with_key: True if the mapper is given the key by name.
    """

    def derive_with_key(key: Any, value: Any) -> Any:
        return mapper(value, key=key)

    return DerivedTable(
        type="table_map_values",
        derive=derive_with_key if with_key else lambda key, value: mapper(value),
        parent=parent,
        store=store,
        old_values="passes on",
        quiet=False,
    )


class DerivedView:
    """A table without a store, read through its parent.

    :param context: the services of the table's node.
    :param parent: name of the parent table's node.
    :param derive: (key, value, timestamp_ms) -> the table's value, None if the key is not in it.
    :param deliveries: the deliveries to the table's children.
    :param absent_too: True if a key that the parent does not hold may be in it; its value is made of None.
    """

    def __init__(
        self,
        context: NodeContext,
        parent: str,
        derive: Callable[[Any, Any, int], Any],
        deliveries: Deliveries,
        *,
        absent_too: bool = False,
    ) -> None:
        self._tables, self._node, self._parent = context.tables, context.node, parent
        self._derive, self._deliveries, self._absent_too = derive, deliveries, absent_too

    def get(self, key: Any, child: str | None) -> Entry | None:
        """Return the entry of a key with the changes that ``child`` has been given; None for all changes."""
        before = self._deliveries.before(key, child)
        if before is not None:
            return before[0]
        entry = self._tables[self._parent].get(key, None if child is None else self._node)
        if entry is None and not self._absent_too:
            return None
        return self._derived(key, entry)

    def get_as_of(self, key: Any, timestamp_ms: int) -> Entry | None:
        """Return the entry of a key at a time, epoch milliseconds, in a table made of a versioned one."""
        parent: Any = self._tables[self._parent]
        entry = parent.get_as_of(key, timestamp_ms)
        return None if entry is None and not self._absent_too else self._derived(key, entry)

    def _derived(self, key: Any, entry: Entry | None) -> Entry | None:
        parents_value, timestamp_ms = entry or (None, -1)
        value = self._derive(key, parents_value, timestamp_ms)
        return None if value is None else (value, timestamp_ms)


def bind_kept(
    store: StoreSpec,
    derive: Derivation,
    forward: Forward,
    context: NodeContext,
    children: dict[str, Forward],
) -> Forward:
    """Make the closure of a derived table with a store, which keeps and emits like every table with a store.

    :param derive: function called for values, never for None.
    """
    keep = keeping(store).bind(forward, context, children)

    def run(key: Any, change: OldAndNew, _node: str = context.node) -> None:
        new = change.new
        keep(key, None if new is None else derive(key, new))

    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLatest:
    """Passes on the changes of a versioned table to a key's latest version; others are counted as late.

    So the tables below, folds and joins, see each key's latest value, whatever order the records came in.
    Kafka Streams does this in each of their operators (KIP-914).

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

        def run(key: Any, change: OldAndNew, _node: str = context.node) -> None:
            if isinstance(change, LateChange):
                count_late()
            else:
                give(key, change)

        return run


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTransformValues:
    """Replaces the values of a table by a transformer with stores and time.

    Rule: as in Kafka Streams, the transformer sees every change, deletions too, and may give a deleted key a
    value. Without stores of its own it runs again where an old value or an entry is needed. With stores that
    would give another value than before, so tables below such a table are refused unless it is kept in a
    store. Unless the values are kept in a store, its answer for a missing key counts as the old value of a
    new key, as in Kafka Streams, although no table below was given that value.

    :param definition: class or function that makes a new transformer.
    :param stores_of_user: names of the stores that the transformer may use.
    :param parent: name of the table's node.
    :param store: spec of the result's store; None if it has none.
    """

    definition: ValueTransformerDef
    stores_of_user: tuple[str, ...]
    parent: str
    store: StoreSpec | None

    type: ClassVar[str] = "table_transform_values"

    @property
    def traits(self) -> OperatorTraits:
        """The facts about the operator that the engine uses."""
        return OperatorTraits(
            old_values="passes on" if self.store is None else "ignores",
            asks_for_commits=True,
            free_times=True,
            stores_of_user=self.stores_of_user,
        )

    def bind(self, forward: Forward, context: ProcessorServices, children: dict[str, Forward]) -> Forward:
        """Make the transformer and the closure that feeds it.

        :raises TopologyError: the definition made no transformer.
        """
        transformer: ValueTransformer = made(self.definition, ValueTransformer, context.task_id, context.node)
        check_transformer_class(type(transformer), f"transformer {context.node!r}")
        where = f"task {context.task_id}: transformer {context.node!r}"
        transformer_context = ProcessorContext(context, lambda key, value: _refuse(where), {}, None)
        context.allow_commit_requests()

        def init(_node: str = context.node) -> None:
            transformer.init(transformer_context)

        def close(_node: str = context.node) -> None:
            transformer.close()

        context.on_open(init)
        context.on_close(close)
        transform = transformer.transform
        if self.store is not None:
            keep = keeping(self.store).bind(forward, context, children)

            def run_kept(key: Any, change: OldAndNew, _node: str = context.node) -> None:
                keep(key, transform(key, change.new))

            return run_kept
        deliveries = Deliveries(forward, context, children)
        record_context = context.record_context

        def derive(key: Any, value: Any, timestamp_ms: int) -> Any:
            before = record_context.timestamp_ms
            record_context.timestamp_ms = timestamp_ms
            try:
                return transform(key, value)
            finally:
                record_context.timestamp_ms = before

        context.tables[context.node] = DerivedView(context, self.parent, derive, deliveries, absent_too=True)
        give, old_needed = deliveries.give, context.old_needed

        def run(key: Any, change: OldAndNew, _node: str = context.node) -> None:
            new = transform(key, change.new)
            old = derive(key, change.old, change.old_ms) if old_needed else None
            give(key, type(change)(new, old, change.old_ms))

        return run


def _refuse(where: str) -> Never:
    raise TopologyError(
        f"{where} forwards: it makes the values of a table, one for each", fix="return the value instead"
    )
