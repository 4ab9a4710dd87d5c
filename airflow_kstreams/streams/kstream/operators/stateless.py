"""Operators without state. Each says once what it does, as lines of code (see ``graph/inlining.py``); a task
writes them into a source's loop, or compiles them into the node's closure. Those that are ``accounted`` pass
each record on once or count it as left out (``runtime/flow_check.py``). Those with a function of the user say
how it runs on threads, where a task has several (``graph/threads.py``), and whether it is given the record's
context, which is made for those functions alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from airflow_kstreams.streams.graph.calls import CallOptions
from airflow_kstreams.streams.graph.inlining import LoopCode
from airflow_kstreams.streams.graph.nodes import Forward
from airflow_kstreams.streams.graph.services import NodeContext
from airflow_kstreams.streams.kstream.operators.asynchronous import (
    BRANCH,
    FILTER,
    FILTER_NOT,
    FLAT_MAP,
    FLAT_MAP_VALUES,
    FOREACH,
    MAP,
    MAP_VALUES,
    PEEK,
    SELECT_KEY,
    Asynchronous,
)
from airflow_kstreams.streams.kstream.operators.pairs import pair_of, results_of
from airflow_kstreams.streams.records.record_context import InContext, RecordContext
from airflow_kstreams.streams.type_variables import KR, VR, K, V

Predicate = Callable[[K, V], bool]
KeyValueMapper = Callable[[K, V], tuple[KR, VR]]
ValueMapper = Callable[[V], VR]
FlatMapper = Callable[[K, V], Iterable[tuple[KR, VR]]]
FlatValueMapper = Callable[[V], Iterable[VR]]
KeySelector = Callable[[K, V], KR]
GroupSelector = Callable[[K, V], KR | None]
Action = Callable[[K, V], object]


class _Written(Protocol):
    """An operator that is nothing but lines."""

    def write(self, code: LoopCode, key: str, value: str) -> None: ...


def _bind(self: _Written, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
    """Make the closure of one task."""
    return context.written(self.write, forward, children)


def written_context(code: LoopCode) -> str:
    """Return the expression for the context of what is processed."""
    made = code.name(RecordContext, "RecordContext")
    return f"{made}({code.record}, {code.timestamp_ms}, {code.headers})"


def written_call(
    code: LoopCode, function: Callable[..., Any], hint: str, arguments: str, *, with_context: bool
) -> str:
    """Return the expression that calls a function of the user.

    :param hint: what the function's name begins with.
    :param arguments: variables that hold them.
    """
    about = f", context={written_context(code)}" if with_context else ""
    return f"{code.name(function, hint)}({arguments}{about})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Passes on what satisfies a predicate."""

    predicate: Predicate | InContext
    with_context: bool = False

    type: ClassVar[str] = "filter"
    accounted: ClassVar[bool] = True
    bind = _bind

    def on_threads(self, calls: CallOptions) -> Asynchronous:
        """Return the operator whose function runs on threads."""
        return Asynchronous(
            shape=FILTER, function=self.predicate, calls=calls, with_context=self.with_context
        )

    def write(self, code: LoopCode, key: str, value: str) -> None:
        """Write how a record is processed."""
        called = written_call(
            code, self.predicate, "predicate", f"{key}, {value}", with_context=self.with_context
        )
        with code.block(f"if {called}"):
            code.forward(key, value)
        with code.block("else"):
            code.count_left_out("filtered")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterNot:
    """Passes on what does not satisfy a predicate."""

    predicate: Predicate | InContext
    with_context: bool = False

    type: ClassVar[str] = "filter_not"
    accounted: ClassVar[bool] = True
    bind = _bind

    def on_threads(self, calls: CallOptions) -> Asynchronous:
        """Return the operator whose function runs on threads."""
        return Asynchronous(
            shape=FILTER_NOT, function=self.predicate, calls=calls, with_context=self.with_context
        )

    def write(self, code: LoopCode, key: str, value: str) -> None:
        """Write how a record is processed."""
        called = written_call(
            code, self.predicate, "predicate", f"{key}, {value}", with_context=self.with_context
        )
        with code.block(f"if {called}"):
            code.count_left_out("filtered")
        with code.block("else"):
            code.forward(key, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek:
    """Shows each record to an action and passes it on as it was."""

    action: Action | InContext
    with_context: bool = False

    type: ClassVar[str] = "peek"
    accounted: ClassVar[bool] = True
    bind = _bind

    def on_threads(self, calls: CallOptions) -> Asynchronous:
        """Return the operator whose function runs on threads."""
        return Asynchronous(shape=PEEK, function=self.action, calls=calls, with_context=self.with_context)

    def write(self, code: LoopCode, key: str, value: str) -> None:
        """Write how a record is processed."""
        called = written_call(code, self.action, "action", f"{key}, {value}", with_context=self.with_context)
        code.line(called)
        code.forward(key, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreach:
    """Hands each record to an action, where a stream ends."""

    action: Action | InContext
    with_context: bool = False

    type: ClassVar[str] = "foreach"
    accounted: ClassVar[bool] = True
    bind = _bind

    def on_threads(self, calls: CallOptions) -> Asynchronous:
        """Return the operator whose function runs on threads."""
        return Asynchronous(shape=FOREACH, function=self.action, calls=calls, with_context=self.with_context)

    def write(self, code: LoopCode, key: str, value: str) -> None:
        """Write how a record is processed."""
        called = written_call(code, self.action, "action", f"{key}, {value}", with_context=self.with_context)
        code.line(called)


def _written_unpacking(code: LoopCode, pair: str, *about: str) -> tuple[str, str]:
    """Write how a pair is taken apart, and return the variables that then hold key and value.

    :param pair: variable that holds what the function gave.
    :param about: further arguments of :func:`pair_of`: expressions.
    """
    key, value = code.variable("key"), code.variable("value")
    call, *others = about
    asked = f"{code.name(pair_of, 'pair_of')}({', '.join((call, pair, *others))})"
    with code.block(f"if type({pair}) is not tuple"):
        code.line(f"{pair} = {asked}")
    with code.block("try"):
        code.line(f"{key}, {value} = {pair}")
    with code.block("except ValueError"):
        code.line(f"{key}, {value} = {asked}")
    return key, value


def _written_results(code: LoopCode, call: str, called: str) -> str:
    """Write how a function is asked for any number of results, and return the variable that then holds them.

    :param call: the DSL method, for messages.
    :param called: the expression that calls the function.
    """
    results = code.variable("results")
    code.line(f"{results} = {called}")
    with code.block(f"if type({results}) is not list"):
        code.line(f"{results} = {code.name(results_of, 'results_of')}({call!r}, {results})")
    return results


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """Replaces key and value."""

    mapper: Callable[..., Any]
    with_context: bool = False

    type: ClassVar[str] = "map"
    accounted: ClassVar[bool] = True
    bind = _bind

    def on_threads(self, calls: CallOptions) -> Asynchronous:
        """Return the operator whose function runs on threads."""
        return Asynchronous(shape=MAP, function=self.mapper, calls=calls, with_context=self.with_context)

    def write(self, code: LoopCode, key: str, value: str) -> None:
        """Write how a record is processed."""
        called = written_call(code, self.mapper, "mapper", f"{key}, {value}", with_context=self.with_context)
        pair = code.variable("pair")
        code.line(f"{pair} = {called}")
        code.forward(*_written_unpacking(code, pair, "'map'"))


@dataclass(frozen=True, slots=True, kw_only=True)
class MapValues:
    """Replaces the value."""

    mapper: Callable[..., Any]
    with_context: bool = False

    type: ClassVar[str] = "map_values"
    accounted: ClassVar[bool] = True
    bind = _bind

    def on_threads(self, calls: CallOptions) -> Asynchronous:
        """Return the operator whose function runs on threads."""
        return Asynchronous(
            shape=MAP_VALUES, function=self.mapper, calls=calls, with_context=self.with_context
        )

    def write(self, code: LoopCode, key: str, value: str) -> None:
        """Write how a record is processed."""
        called = written_call(code, self.mapper, "mapper", value, with_context=self.with_context)
        new_value = code.variable("value")
        code.line(f"{new_value} = {called}")
        code.forward(key, new_value)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatMap:
    """Replaces a record by any number of records."""

    mapper: Callable[..., Any]
    with_context: bool = False

    type: ClassVar[str] = "flat_map"
    bind = _bind

    def on_threads(self, calls: CallOptions) -> Asynchronous:
        """Return the operator whose function runs on threads."""
        return Asynchronous(shape=FLAT_MAP, function=self.mapper, calls=calls, with_context=self.with_context)

    def write(self, code: LoopCode, key: str, value: str) -> None:
        """Write how a record is processed."""
        called = written_call(code, self.mapper, "mapper", f"{key}, {value}", with_context=self.with_context)
        results, pair = _written_results(code, self.type, called), code.variable("pair")
        with code.block(f"for {pair} in {results}"):
            code.forward(*_written_unpacking(code, pair, "'flat_map'", "among=True"))


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatMapValues:
    """Replaces a value by any number of values under the same key."""

    mapper: Callable[..., Any]
    with_context: bool = False

    type: ClassVar[str] = "flat_map_values"
    bind = _bind

    def on_threads(self, calls: CallOptions) -> Asynchronous:
        """Return the operator whose function runs on threads."""
        return Asynchronous(
            shape=FLAT_MAP_VALUES, function=self.mapper, calls=calls, with_context=self.with_context
        )

    def write(self, code: LoopCode, key: str, value: str) -> None:
        """Write how a record is processed."""
        called = written_call(code, self.mapper, "mapper", value, with_context=self.with_context)
        results, new_value = _written_results(code, self.type, called), code.variable("value")
        with code.block(f"for {new_value} in {results}"):
            code.forward(key, new_value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectKey:
    """Replaces the key."""

    selector: Callable[..., Any]
    with_context: bool = False

    type: ClassVar[str] = "select_key"
    accounted: ClassVar[bool] = True
    bind = _bind

    def on_threads(self, calls: CallOptions) -> Asynchronous:
        """Return the operator whose function runs on threads."""
        return Asynchronous(
            shape=SELECT_KEY, function=self.selector, calls=calls, with_context=self.with_context
        )

    def write(self, code: LoopCode, key: str, value: str) -> None:
        """Write how a record is processed."""
        called = written_call(
            code, self.selector, "selector", f"{key}, {value}", with_context=self.with_context
        )
        new_key = code.variable("key")
        code.line(f"{new_key} = {called}")
        code.forward(new_key, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """Passes a record to the child of the first predicate it satisfies; drops it if there is none.

    :param predicates: in order of trial.
    :param children: name of the child of each predicate.
    :param rest: name of the child that takes the records which satisfy none; None drops and counts them.
    """

    predicates: tuple[Predicate | InContext, ...]
    children: tuple[str, ...]
    rest: str | None = None
    with_context: bool = False

    type: ClassVar[str] = "branch"
    bind = _bind

    def on_threads(self, calls: CallOptions) -> Asynchronous:
        """Return the operator whose function runs on threads."""
        return Asynchronous(
            shape=BRANCH, function=self._child_of, calls=calls, with_context=self.with_context
        )

    def _child_of(self, key: Any, value: Any, **context: RecordContext) -> str | None:
        for predicate, child in zip(self.predicates, self.children, strict=True):
            if predicate(key, value, **context):
                return child
        return self.rest

    def write(self, code: LoopCode, key: str, value: str) -> None:
        """Write how a record is processed."""
        keyword, arguments = "if", f"{key}, {value}"
        if self.with_context:
            about = code.variable("about")
            code.line(f"{about} = {written_context(code)}")
            arguments = f"{arguments}, context={about}"
        for predicate, child in zip(self.predicates, self.children, strict=True):
            with code.block(f"{keyword} {code.name(predicate, 'predicate')}({arguments})"):
                code.forward(key, value, to=child)
            keyword = "elif"
        with code.block("else"):
            if self.rest is None:
                code.count_left_out("filtered")
            else:
                code.forward(key, value, to=self.rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassThrough:
    """Gives a stream a name of its own and does nothing, at no cost: it binds to its children.

    :param type: kind of node, e.g. ``to_stream``.
    """

    type: str

    accounted: ClassVar[bool] = True

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Return what is below."""
        return forward


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyValues:
    """Copies each value on its way from one table into another.

    An aggregator may change its aggregate in place; a second table that kept the same object would see its
    own entries change under it.
    """

    type: ClassVar[str] = "copy_values"
    accounted: ClassVar[bool] = True
    bind = _bind

    def write(self, code: LoopCode, key: str, value: str) -> None:
        """Write how a record is processed."""
        copied = code.variable("value")
        code.line(f"{copied} = {code.name(copy.deepcopy, 'deepcopy')}({value})")
        code.forward(key, copied)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropNulls:
    """Drops records ahead of a repartition topic: those without key and those without value.

    :param keep_null_keys: whether those without key go through.
    :param keep_null_values: whether those without value go through.
    """

    keep_null_keys: bool = False
    keep_null_values: bool = False

    accounted: ClassVar[bool] = True

    @property
    def type(self) -> str:
        """Kind of node."""
        if self.keep_null_values:
            return "keep_nulls" if self.keep_null_keys else "drop_null_keys"
        return "drop_null_values" if self.keep_null_keys else "drop_nulls"

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        count_null = context.counting("null")

        def write(code: LoopCode, key: str, value: str) -> None:
            needed = [value] * (not self.keep_null_values) + [key] * (not self.keep_null_keys)
            if not needed:
                code.forward(key, value)
                return
            with code.block(f"if {' or '.join(f'{held} is None' for held in needed)}"):
                code.line(f"{code.name(count_null, 'count_null')}()")
            with code.block("else"):
                code.forward(key, value)

        return context.written(write, forward, children)
