"""Operators without state. Each binds to one closure, since each runs once per record, and says how the same
is written into a loop (see ``topology/inlining.py``).

The closures hoist everything they touch into local variables and hold their children directly; ``_node`` is
read from a traceback when a user's function raises (see :class:`Operator`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from airflow_kstreams.streams.graph.inlining import LoopCode
from airflow_kstreams.streams.graph.nodes import Forward
from airflow_kstreams.streams.graph.services import NodeContext

Predicate = Callable[[Any, Any], bool]
KeyValueMapper = Callable[[Any, Any], tuple[Any, Any]]
ValueMapper = Callable[[Any], Any]
FlatMapper = Callable[[Any, Any], Iterable[tuple[Any, Any]]]
FlatValueMapper = Callable[[Any], Iterable[Any]]
KeySelector = Callable[[Any, Any], Any]
Action = Callable[[Any, Any], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Passes on what satisfies a predicate."""

    predicate: Predicate

    @property
    def type(self) -> str:
        """Kind of node."""
        return "filter"

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        predicate = self.predicate

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            if predicate(key, value):
                forward(key, value)

        def write(code: LoopCode, key: str, value: str) -> None:
            with code.block(f"if {code.name(predicate, 'predicate')}({key}, {value})"):
                code.forward(key, value)

        return context.inlined(run, write, children)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterNot:
    """Passes on what does not satisfy a predicate."""

    predicate: Predicate

    @property
    def type(self) -> str:
        """Kind of node."""
        return "filter_not"

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        predicate = self.predicate

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            if not predicate(key, value):
                forward(key, value)

        def write(code: LoopCode, key: str, value: str) -> None:
            with code.block(f"if not {code.name(predicate, 'predicate')}({key}, {value})"):
                code.forward(key, value)

        return context.inlined(run, write, children)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek:
    """Shows each record to an action and passes it on as it was."""

    action: Action

    @property
    def type(self) -> str:
        """Kind of node."""
        return "peek"

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        action = self.action

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            action(key, value)
            forward(key, value)

        def write(code: LoopCode, key: str, value: str) -> None:
            code.line(f"{code.name(action, 'action')}({key}, {value})")
            code.forward(key, value)

        return context.inlined(run, write, children)


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """Replaces key and value."""

    mapper: KeyValueMapper

    @property
    def type(self) -> str:
        """Kind of node."""
        return "map"

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        mapper = self.mapper

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            new_key, new_value = mapper(key, value)
            forward(new_key, new_value)

        def write(code: LoopCode, key: str, value: str) -> None:
            new_key, new_value = code.variable("key"), code.variable("value")
            code.line(f"{new_key}, {new_value} = {code.name(mapper, 'mapper')}({key}, {value})")
            code.forward(new_key, new_value)

        return context.inlined(run, write, children)


@dataclass(frozen=True, slots=True, kw_only=True)
class MapValues:
    """Replaces the value."""

    mapper: ValueMapper

    @property
    def type(self) -> str:
        """Kind of node."""
        return "map_values"

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        mapper = self.mapper

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            forward(key, mapper(value))

        def write(code: LoopCode, key: str, value: str) -> None:
            new_value = code.variable("value")
            code.line(f"{new_value} = {code.name(mapper, 'mapper')}({value})")
            code.forward(key, new_value)

        return context.inlined(run, write, children)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatMap:
    """Replaces a record by any number of records."""

    mapper: FlatMapper

    @property
    def type(self) -> str:
        """Kind of node."""
        return "flat_map"

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        mapper = self.mapper

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            for new_key, new_value in mapper(key, value):
                forward(new_key, new_value)

        def write(code: LoopCode, key: str, value: str) -> None:
            new_key, new_value = code.variable("key"), code.variable("value")
            mapped = f"{code.name(mapper, 'mapper')}({key}, {value})"
            with code.block(f"for {new_key}, {new_value} in {mapped}"):
                code.forward(new_key, new_value)

        return context.inlined(run, write, children)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatMapValues:
    """Replaces a value by any number of values under the same key."""

    mapper: FlatValueMapper

    @property
    def type(self) -> str:
        """Kind of node."""
        return "flat_map_values"

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        mapper = self.mapper

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            for new_value in mapper(value):
                forward(key, new_value)

        def write(code: LoopCode, key: str, value: str) -> None:
            new_value = code.variable("value")
            with code.block(f"for {new_value} in {code.name(mapper, 'mapper')}({value})"):
                code.forward(key, new_value)

        return context.inlined(run, write, children)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectKey:
    """Replaces the key."""

    selector: KeySelector

    @property
    def type(self) -> str:
        """Kind of node."""
        return "select_key"

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        selector = self.selector

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            forward(selector(key, value), value)

        def write(code: LoopCode, key: str, value: str) -> None:
            new_key = code.variable("key")
            code.line(f"{new_key} = {code.name(selector, 'selector')}({key}, {value})")
            code.forward(new_key, value)

        return context.inlined(run, write, children)


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """Passes a record to the child of the first predicate it satisfies; drops it if there is none.

    :param predicates: in order of trial.
    :param children: name of the child of each predicate.
    """

    predicates: tuple[Predicate, ...]
    children: tuple[str, ...]

    @property
    def type(self) -> str:
        """Kind of node."""
        return "branch"

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        targets = tuple(
            (predicate, children[name])
            for predicate, name in zip(self.predicates, self.children, strict=True)
        )

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            for predicate, target in targets:
                if predicate(key, value):
                    target(key, value)
                    return

        def write(code: LoopCode, key: str, value: str) -> None:
            keyword = "if"
            for predicate, child in zip(self.predicates, self.children, strict=True):
                with code.block(f"{keyword} {code.name(predicate, 'predicate')}({key}, {value})"):
                    code.forward(key, value, to=child)
                keyword = "elif"

        return context.inlined(run, write, children)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassThrough:
    """Gives a stream a name of its own and does nothing, at no cost: it binds to its children.

    :param type: kind of node, e.g. ``to_stream``.
    """

    type: str

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Return what is below."""
        if len(children) == 1:
            return forward

        def write(code: LoopCode, key: str, value: str) -> None:
            code.forward(key, value)

        return context.inlined(forward, write, children)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyValues:
    """Copies each value on its way from one table into another.

    An aggregator may change its aggregate in place; a second table that kept the same object would see its
    own entries change under it.
    """

    @property
    def type(self) -> str:
        """Kind of node."""
        return "copy_values"

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        deepcopy = copy.deepcopy

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            forward(key, deepcopy(value))

        return run


@dataclass(frozen=True, slots=True, kw_only=True)
class DropNulls:
    """Drops records ahead of a repartition topic that no operator behind it would use.

    :param keep_null_keys: whether only those without value are dropped, rather than those without key too.
    """

    keep_null_keys: bool = False

    @property
    def type(self) -> str:
        """Kind of node."""
        return "drop_null_values" if self.keep_null_keys else "drop_nulls"

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        count_dropped = context.count_dropped
        keep_null_keys = self.keep_null_keys

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            if value is None or (key is None and not keep_null_keys):
                count_dropped()
            else:
                forward(key, value)

        def write(code: LoopCode, key: str, value: str) -> None:
            dropped = f"{value} is None" if keep_null_keys else f"{value} is None or {key} is None"
            with code.block(f"if {dropped}"):
                code.line(f"{code.name(count_dropped, 'count_dropped')}()")
            with code.block("else"):
                code.forward(key, value)

        return context.inlined(run, write, children)
