"""Defines the operators without state that branch, pass on and drop, and the types of users' functions. The
operators that call one function for each record are in ``function_kinds.py``.

They are made of lines of code (see ``graph/services.py``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Concatenate

from airflow_kstreams.streams.graph.calls import CallOptions
from airflow_kstreams.streams.graph.nodes import OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, LoopCode, NodeContext
from airflow_kstreams.streams.kstream.operators.function_kinds import (
    BOTH,
    Asynchronous,
    FunctionKind,
    written_context,
)
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
#: Returns a list of (name, bytes or None).
HeadersFunction = Callable[[K, V], Sequence[tuple[str, bytes | None]]]
TimestampFunction = Callable[[K, V], int]
#: A coroutine function, or with threads a plain one, with the arguments of the plain operator's function.
AsyncFunction = Callable[..., Any]
#: The same by operator; each may declare ``context`` and ``resource`` beside its arguments.
AsyncValueMapper = Callable[Concatenate[V, ...], Awaitable[VR]]
AsyncKeyValueMapper = Callable[Concatenate[K, V, ...], Awaitable[tuple[KR, VR]]]
AsyncFlatValueMapper = Callable[Concatenate[V, ...], Awaitable[Iterable[VR]]]
AsyncPredicate = Callable[Concatenate[K, V, ...], Awaitable[bool]]
AsyncAction = Callable[Concatenate[K, V, ...], Awaitable[object]]
#: With ``threads=True``.
ThreadValueMapper = Callable[Concatenate[V, ...], VR]
ThreadKeyValueMapper = Callable[Concatenate[K, V, ...], tuple[KR, VR]]
ThreadFlatValueMapper = Callable[Concatenate[V, ...], Iterable[VR]]
ThreadPredicate = Callable[Concatenate[K, V, ...], bool]
ThreadAction = Callable[Concatenate[K, V, ...], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """Passes a record to the child of the first predicate it satisfies; drops it if there is none.

    :param predicates: the predicates, in the order in which they are tried.
    :param children: name of the child of each predicate.
    :param rest: name of the child that takes the records which satisfy none; None drops and counts them.
    :param with_context: True if the predicates are given the record's context by name.
    """

    predicates: tuple[Predicate | InContext, ...]
    children: tuple[str, ...]
    rest: str | None = None
    with_context: bool = False

    @property
    def type(self) -> str:
        """Kind of node."""
        return self._kind.type

    @property
    def traits(self) -> OperatorTraits:
        """The facts about the operator that the engine uses."""
        return OperatorTraits(flow=self._kind.flow, on_threads=self._calling)

    @property
    def _kind(self) -> FunctionKind:
        return FunctionKind(type="branch", write=self._write_place, hands_on=BOTH, flow="parted")

    def _calling(self, calls: CallOptions) -> Asynchronous:
        return Asynchronous(
            kind=self._kind, function=self._place_of, calls=calls, with_context=self.with_context
        )

    def _place_of(self, key: Any, value: Any, **context: RecordContext) -> int:
        """Return the index of the first predicate that a record satisfies; the number of predicates if it
        satisfies none.
        """
        for place, predicate in enumerate(self.predicates):
            if predicate(key, value, **context):
                return place
        return len(self.predicates)

    def _write_place(self, code: LoopCode, key: str, value: str, answer: str) -> None:
        self._write(code, key, value, [f"{answer} == {place}" for place in range(len(self.predicates))])

    def _write(self, code: LoopCode, key: str, value: str, conditions: Sequence[str]) -> None:
        word = "if"
        for condition, child in zip(conditions, self.children, strict=True):
            with code.block(f"{word} {condition}"):
                code.forward(key, value, to=child)
            word = "elif"
        with code.block("else"):
            if self.rest is None:
                code.count_left_out("filtered")
            else:
                code.forward(key, value, to=self.rest)

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""

        def write(code: LoopCode, key: str, value: str) -> None:
            arguments = f"{key}, {value}"
            if self.with_context:
                about = code.variable("about")
                code.line(f"{about} = {written_context(code)}")
                arguments = f"{arguments}, context={about}"
            called = [f"{code.name(each, 'predicate')}({arguments})" for each in self.predicates]
            self._write(code, key, value, called)

        return context.written(write, forward, children)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassThrough:
    """Gives a stream a name of its own and does nothing, at no cost: it binds to its children.

    :param type: kind of node, e.g. ``to_stream``.
    """

    type: str

    traits: ClassVar[OperatorTraits] = OperatorTraits(flow="kept", passes_on=True)

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Return the function that takes records below."""
        return forward


@dataclass(frozen=True, slots=True, kw_only=True)
class DropNulls:
    """Drops records ahead of a repartition topic: those without key and those without value.

    :param keep_null_keys: True if records without key go through.
    :param keep_null_values: True if records without value go through.
    """

    keep_null_keys: bool = False
    keep_null_values: bool = False

    traits: ClassVar[OperatorTraits] = OperatorTraits(flow="kept")

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
