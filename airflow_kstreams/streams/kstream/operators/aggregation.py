"""Defines the operators that fold records, or the entries of a grouped table, into a table in a store.

Rule: the entry of a key holds the folded value and the largest timestamp folded into it. Emission follows the
rule of :mod:`airflow_kstreams.streams.kstream.operators.table_emitter`.

If the task goes on after an error (``processing.exception.handler`` is ``skip`` or ``dead-letter``), a
reducer or aggregator gets a copy of a mutable aggregate. So a record that is left out leaves nothing behind,
though the function changed its aggregate in place before it raised, wherever runs end.

**Copies.** A function may change the aggregate that it is given, and return it. Another object that it
returns, and the first aggregate of a key, is kept as a copy: other nodes may hold the object. An aggregate
that may take in parts of a record's value gets them from a copy, unless a source decoded the value for this
node alone.

**Cogroup.** Several streams are folded by one fold: ahead of it a node of each stream makes a value (number
of the stream, value), and the fold calls that stream's aggregator. So every kind of fold takes records of
several streams in the order in which the task processes them, into one table that emits once, as it does for
one stream. A record without value stays without, and the fold drops and counts it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from airflow_kstreams.streams.graph.nodes import OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, LoopCode, NodeContext
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.kstream.operators.fold_code import AggregateCode, Folding, write_fold
from airflow_kstreams.streams.kstream.operators.table_emitter import TableEmitter, flat_copy, taken_in
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.records.kept_values import standing
from airflow_kstreams.streams.serde.internal_serdes import OldAndNew
from airflow_kstreams.streams.state.stores.value_copies import IMMUTABLE, kept_if_copyable
from airflow_kstreams.streams.type_variables import VR, K, V

Initializer = Callable[[], VR]
Aggregator = Callable[[K, V, VR], VR | None]
Reducer = Callable[[V, V], V | None]
#: ``merger(key, left, right)`` makes one aggregate of those of two sessions, the earlier one first; before
#: that, of an empty one and the first session's.
Merger = Callable[[K, VR, VR], VR | None]

log = package_log(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Makes an aggregate of records; None stands for no aggregate.

    :param kind: ``count``, ``reduce`` or ``aggregate``.
    :param begin: (key, value) -> the first aggregate.
    :param add: (key, value, aggregate) -> the next aggregate.
    :param merge: (key, left, right) -> the aggregate of two sessions.
    :param write: function that gives the expression of the first aggregate, and of the next one.
    :param empty: function that makes the empty aggregate with which the first session is merged; None for
        folds without one.
    """

    kind: str
    begin: Callable[[Any, Any], Any]
    add: Aggregator
    merge: Merger
    write: AggregateCode
    empty: Initializer | None = None


def counting() -> Fold:
    """Return the fold that counts."""
    return Fold(
        kind="count",
        begin=lambda key, value: 1,
        add=lambda key, value, count: count + 1,
        merge=lambda key, left, right: left + right,
        write=lambda code, key, value, so_far: f"{so_far} + 1" if so_far else "1",
    )


def reducing(reducer: Reducer) -> Fold:
    """Return the fold whose first aggregate is the first value."""

    def write(code: LoopCode, key: str, value: str, so_far: str) -> str:
        if so_far:
            return f"{code.name(reducer, 'reducer')}({so_far}, {value})"
        return value

    return Fold(
        kind="reduce",
        begin=lambda key, value: value,
        add=lambda key, value, reduced: reducer(reduced, value),
        merge=lambda key, left, right: reducer(left, right),
        write=write,
    )


def _no_merger(key: Any, left: Any, right: Any) -> None:
    """Take the place of the function that only sessions need."""


def aggregating(initializer: Initializer, aggregator: Aggregator, merger: Merger = _no_merger) -> Fold:
    """Return the fold that begins with an empty aggregate.

    :param merger: function that merges the aggregates of two sessions; needed for sessions only.
    """

    def write(code: LoopCode, key: str, value: str, so_far: str) -> str:
        called = code.name(aggregator, "aggregator")
        if so_far:
            return f"{called}({key}, {value}, {so_far})"
        return f"{called}({key}, {value}, {code.name(initializer, 'initializer')}())"

    return Fold(
        kind="aggregate",
        begin=lambda key, value: aggregator(key, value, initializer()),
        add=aggregator,
        merge=merger,
        write=write,
        empty=initializer,
    )


def fold_of(fold: Fold, context: NodeContext, store: Any, *, alone: bool = False) -> Fold:
    """Return a fold in the form that a node runs: objects that other nodes may hold are copied; where the
    task goes on after errors, functions get copies of the aggregates in the store; a function that returns
    None where it hardly means to delete causes a warning; and an aggregate that the store's serde writes as
    None becomes None.

    :param context: the services of the node.
    :param store: the store of the aggregates.
    :param alone: True if no other node holds the values.
    """
    copied = copier(context, fold.kind)
    fold = _with_own_aggregates(fold, taken_in(store), alone=alone)
    if fold.kind != "count":
        fold = _said(fold, nothing_kept(context, fold.kind))
    if store.deletes is not None:
        fold = _with_deletions(fold, store.deletes)
    if copied is None:
        return fold
    return replace(
        fold,
        add=lambda key, value, aggregate: fold.add(key, value, copied(aggregate)),
        merge=lambda key, left, right: fold.merge(key, copied(left), copied(right)),
    )


def _said(fold: Fold, nothing: Callable[[], None]) -> Fold:
    """Return a fold that calls ``nothing`` where there was no aggregate and the fold returns none, and where
    a reducer returns None.
    """
    begin, reduce_ = fold.begin, fold.add

    def begun(key: Any, value: Any) -> Any:
        result = begin(key, value)
        return nothing() if result is None else result

    def reduced(key: Any, value: Any, so_far: Any) -> Any:
        result = reduce_(key, value, so_far)
        return nothing() if result is None else result

    return replace(fold, begin=begun, add=reduced if fold.kind == "reduce" else reduce_)


def _with_deletions(fold: Fold, deletes: Callable[[Any], bool]) -> Fold:
    """Return a fold whose aggregates are None where a store's serde writes None.

    :param deletes: function that returns True for an aggregate that the serde writes as None.
    """
    begin, add = fold.begin, fold.add

    def begun(key: Any, value: Any) -> Any:
        result = begin(key, value)
        return None if deletes(result) else result

    def added(key: Any, value: Any, so_far: Any) -> Any:
        result = add(key, value, so_far)
        return None if deletes(result) else result

    return replace(fold, begin=begun, add=added)


def _with_own_aggregates(fold: Fold, copied: Callable[[Any], Any] | None, *, alone: bool) -> Fold:
    """Return a fold whose aggregates no other node holds.

    :param copied: function that copies an aggregate; None if aggregates never change.
    :param alone: True if no other node holds the values.
    """
    if copied is None or fold.kind == "count":
        return fold
    begin, add, merge, empty = fold.begin, fold.add, fold.merge, fold.empty

    def added(key: Any, value: Any, so_far: Any) -> Any:
        if not alone and type(so_far) not in IMMUTABLE:
            value = kept_if_copyable(value)
        result = add(key, value, so_far)
        return result if result is so_far else copied(result)

    def merged(key: Any, left: Any, right: Any) -> Any:
        result = merge(key, left, right)
        return result if result is left or result is right else copied(result)

    return replace(
        fold,
        begin=lambda key, value: copied(begin(key, value)),
        add=added,
        merge=merged,
        empty=None if empty is None else lambda: copied(empty()),
    )


def nothing_kept(context: NodeContext, kind: str) -> Callable[[], None]:
    """Return a function that warns, once in a task, that a fold returned None where it hardly means to
    delete: for a key without aggregate, or from a reducer. The record is then in no table. Often the cause is
    a function that changes its aggregate and returns nothing.

    :param kind: kind of fold: ``aggregate`` or ``reduce``.
    """
    said = False
    what = "of two values" if kind == "reduce" else "for a key that has no aggregate yet"

    def say() -> None:
        nonlocal said
        if not said:
            said = True
            log.warning(
                "task %s: node %r (%s) gave None %s, so it keeps nothing of the record; a function that "
                "changes its aggregate in place must return it",
                context.task_id,
                context.node,
                context.purpose,
                what,
            )

    return say


def copier(context: NodeContext, kind: str) -> Callable[[Any], Any] | None:
    """Return a function that copies an aggregate before a function of its fold gets it; None if no copy is
    needed: an error ends the task, or records are counted.

    :param kind: kind of fold: ``count``, ``reduce`` or ``aggregate``.
    """
    return standing(context.node) if context.goes_on and kind != "count" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFold:
    """Folds the records of each key; an aggregate that becomes None deletes the key."""

    fold: Fold
    store: StoreSpec

    traits: ClassVar[OperatorTraits] = OperatorTraits()

    @property
    def type(self) -> str:
        """Kind of node."""
        return self.fold.kind

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        spec = self.store
        store = context.store(spec.name)
        emitter = TableEmitter(forward, context, children, store=spec.name, cached=spec.cached)
        count_null = context.counting("null")
        copied = copier(context, self.fold.kind)
        nothing = nothing_kept(context, self.fold.kind)
        kept = None if self.fold.kind == "count" else taken_in(store)
        value_copied = None if kept is None or context.alone else kept_if_copyable

        def aggregate(code: LoopCode, key: str, value: str, so_far: str) -> str:
            before = bool(so_far)
            if before and copied is not None:
                so_far = f"{code.name(copied, 'copied')}({so_far})"
            written = self.fold.write(code, key, value, so_far)
            if not before or self.fold.kind != "reduce":
                return written
            made = code.variable("made")
            return f"({made} if ({made} := {written}) is not None else {code.name(nothing, 'nothing')}())"

        folding = Folding(aggregate, nothing, kept, flat_copy(store), value_copied, store.deletes)

        def write(code: LoopCode, key: str, value: str) -> None:
            with code.block(f"if {key} is None or {value} is None"):
                code.line(f"{code.name(count_null, 'count_null')}()")
            with code.block("else"):
                write_fold(code, (key, value), folding, emitter, store)

        return context.written(write, forward, children)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFold:
    """Folds the entries of a table that belong to one group.

    Rule: when a group changes, the old value is subtracted first, if the group has an aggregate; then the new
    value is added, to an empty aggregate if there is none. An aggregate that becomes None deletes the group.
    The entry has the largest timestamp that was added or subtracted. A change whose adder raises is not
    subtracted either.

    :param fold: the fold that adds a value.
    :param subtract: (key, value, aggregate) -> the aggregate without the value.
    :param store: spec of the store of the aggregates.
    """

    fold: Fold
    subtract: Aggregator
    store: StoreSpec

    traits: ClassVar[OperatorTraits] = OperatorTraits()

    @property
    def type(self) -> str:
        """Kind of node."""
        return f"table_{self.fold.kind}"

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        store = context.store(self.store.name)
        fold = _with_own_aggregates(self.fold, taken_in(store), alone=context.alone)
        begin, add = fold.begin, fold.add
        subtract = _with_own_aggregates(
            replace(self.fold, add=self.subtract), taken_in(store), alone=context.alone
        ).add
        serialize_key, get_entry = store.serialize_key, store.get_entry
        copied = copier(context, self.fold.kind)
        record_context = context.record_context
        emitter = TableEmitter(
            forward, context, children, store=self.store.name, cached=self.store.cached and bool(children)
        )
        before, emit_change = emitter.before, emitter.change
        nothing, reduces = nothing_kept(context, self.fold.kind), self.fold.kind == "reduce"
        deletes = store.deletes

        def run(key: Any, change: OldAndNew, _node: str = context.node) -> None:
            key_bytes = serialize_key(key)
            entry = get_entry(key_bytes)
            kept = before(key_bytes, entry)
            result, newest_ms = None, record_context.timestamp_ms
            if entry is not None:
                result, newest_ms = entry[0], max(newest_ms, entry[1])
                if copied is not None:
                    result = copied(result)
                if change.old is not None:
                    result = subtract(key, change.old, result)
            if change.new is not None:
                result = begin(key, change.new) if result is None else add(key, change.new, result)
                if result is None and (reduces or entry is None):
                    nothing()
            if deletes is not None and deletes(result):
                result = None
            emit_change(key_bytes, key, kept, result, newest_ms)

        return run


@dataclass(frozen=True, slots=True, kw_only=True)
class CogroupInput:
    """Marks the values of one cogrouped stream with its number.

    :param number: number of the stream, from 0 on.
    """

    number: int

    type: ClassVar[str] = "cogroup_input"
    traits: ClassVar[OperatorTraits] = OperatorTraits(flow="kept")

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""

        def write(code: LoopCode, key: str, value: str) -> None:
            marked = code.variable("value")
            code.line(f"{marked} = None if {value} is None else ({self.number}, {value})")
            code.forward(key, marked)

        return context.written(write, forward, children)


def cogrouping(aggregators: Sequence[Aggregator]) -> Aggregator:
    """Return the aggregator of marked values.

    :param aggregators: the aggregator of each stream, in the order of their numbers.
    """
    chosen = tuple(aggregators)

    def aggregate(key: Any, marked: tuple[int, Any], aggregated: Any) -> Any:
        number, value = marked
        return chosen[number](key, value, aggregated)

    return aggregate
