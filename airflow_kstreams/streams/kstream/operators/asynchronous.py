"""Operators whose function takes its time: calls run side by side, and what they give leaves in input order.

Rule: an operator has a shape, which says what its function is called with and what becomes of the answer. How
the calls run is the task's business (``runtime/pipeline``). The operators that are ``accounted`` pass each
record on once or count it as left out.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate

from airflow_kstreams.streams.graph.calls import CallOptions, CallSpec, HandedOn
from airflow_kstreams.streams.graph.nodes import Forward
from airflow_kstreams.streams.graph.services import NodeContext
from airflow_kstreams.streams.hints.function_checks import is_async
from airflow_kstreams.streams.kstream.operators.pairs import pair_of, results_of
from airflow_kstreams.streams.type_variables import KR, VR, K, V

#: A coroutine function, or with threads a plain one, that takes what the plain operator's function takes.
AsyncFunction = Callable[..., Any]
#: The same by operator; each may declare ``context`` and ``resource`` beside what it takes.
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
#: Takes key, value and answer.
Give = Callable[[Any, Any, Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What an operator does with its function.

    :param type: of the operator.
    :param by_value: whether the function takes the value alone, rather than key and value.
    :param giving: makes what takes the answers, in one task.
    :param hands_on: which of key and value it passes on beside the answer.
    :param accounted: whether each record is passed on once or counted as left out.
    :param listed: whether the answer may come one by one; it is then made whole in the call.
    """

    type: str
    by_value: bool
    giving: Callable[[Forward, NodeContext, Mapping[str, Forward]], Give]
    hands_on: HandedOn
    accounted: bool = True
    listed: bool = False

    def arguments(self, key: Any, value: Any) -> tuple[Any, ...]:
        """Return what the function is called with."""
        return (value,) if self.by_value else (key, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asynchronous:
    """Calls its function for each record.

    :param function: the user's.
    :param calls: how.
    :param with_context: whether its first argument is the record's context, before those of its shape.
    """

    shape: Shape
    function: AsyncFunction
    calls: CallOptions
    with_context: bool = False

    @property
    def type(self) -> str:
        """Kind of node."""
        return self.shape.type

    @property
    def accounted(self) -> bool:
        """Whether each record is passed on once or counted as left out."""
        return self.shape.accounted and not self.calls.parks

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        shape = self.shape
        spec = CallSpec(
            function=in_list(self.function, shape.type) if shape.listed else self.function,
            arguments=shape.arguments,
            options=self.calls,
            hands_on=shape.hands_on,
            with_context=self.with_context,
        )
        return context.calls(spec, shape.giving(forward, context, children))


def _mapped_values(forward: Forward, context: NodeContext, children: Mapping[str, Forward]) -> Give:
    def give(key: Any, value: Any, answer: Any) -> None:
        forward(key, answer)

    return give


def _mapped(forward: Forward, context: NodeContext, children: Mapping[str, Forward]) -> Give:
    def give(key: Any, value: Any, answer: Any) -> None:
        forward(*pair_of("map", answer))

    return give


def _filtered(forward: Forward, context: NodeContext, children: Mapping[str, Forward]) -> Give:
    count_filtered = context.counting("filtered")

    def give(key: Any, value: Any, answer: Any) -> None:
        if answer:
            forward(key, value)
        else:
            count_filtered()

    return give


def _filtered_not(forward: Forward, context: NodeContext, children: Mapping[str, Forward]) -> Give:
    give_others = _filtered(forward, context, children)

    def give(key: Any, value: Any, answer: Any) -> None:
        give_others(key, value, not answer)

    return give


def _seen(forward: Forward, context: NodeContext, children: Mapping[str, Forward]) -> Give:
    def give(key: Any, value: Any, answer: Any) -> None:
        forward(key, value)

    return give


def _rekeyed(forward: Forward, context: NodeContext, children: Mapping[str, Forward]) -> Give:
    def give(key: Any, value: Any, answer: Any) -> None:
        forward(answer, value)

    return give


def _flat_mapped(forward: Forward, context: NodeContext, children: Mapping[str, Forward]) -> Give:
    def give(key: Any, value: Any, answer: Any) -> None:
        for result in answer:
            forward(*pair_of("flat_map", result, among=True))

    return give


def _branched(forward: Forward, context: NodeContext, children: Mapping[str, Forward]) -> Give:
    count_filtered = context.counting("filtered")

    def give(key: Any, value: Any, answer: Any) -> None:
        if answer is None:
            count_filtered()
        else:
            children[answer](key, value)

    return give


def _flat_mapped_values(forward: Forward, context: NodeContext, children: Mapping[str, Forward]) -> Give:
    def give(key: Any, value: Any, answer: Any) -> None:
        for new_value in answer:
            forward(key, new_value)

    return give


def _ended(forward: Forward, context: NodeContext, children: Mapping[str, Forward]) -> Give:
    def give(key: Any, value: Any, answer: Any) -> None:
        """Take an answer that goes nowhere."""

    return give


_NEITHER: HandedOn = frozenset()
_KEY: HandedOn = frozenset(("key",))
_VALUE: HandedOn = frozenset(("value",))
_BOTH: HandedOn = _KEY | _VALUE

MAP_VALUES = Shape(type="map_values_async", by_value=True, giving=_mapped_values, hands_on=_KEY)
MAP = Shape(type="map_async", by_value=False, giving=_mapped, hands_on=_NEITHER)
FILTER = Shape(type="filter_async", by_value=False, giving=_filtered, hands_on=_BOTH)
FLAT_MAP_VALUES = Shape(
    type="flat_map_values_async",
    by_value=True,
    giving=_flat_mapped_values,
    hands_on=_KEY,
    accounted=False,
    listed=True,
)
FOREACH = Shape(type="foreach_async", by_value=False, giving=_ended, hands_on=_NEITHER)

FILTER_NOT = Shape(type="filter_not_async", by_value=False, giving=_filtered_not, hands_on=_BOTH)
PEEK = Shape(type="peek_async", by_value=False, giving=_seen, hands_on=_BOTH)
SELECT_KEY = Shape(type="select_key_async", by_value=False, giving=_rekeyed, hands_on=_VALUE)
FLAT_MAP = Shape(
    type="flat_map_async",
    by_value=False,
    giving=_flat_mapped,
    hands_on=_NEITHER,
    accounted=False,
    listed=True,
)
BRANCH = Shape(type="branch_async", by_value=False, giving=_branched, hands_on=_BOTH, accounted=False)


def in_list(function: AsyncFunction, call: str) -> AsyncFunction:
    """Return a function that gives a list of what another one gives one by one: a generator's body then runs
    in the call.

    :param call: the DSL method, for messages.
    """
    if is_async(function):

        @functools.wraps(function)
        async def listed_async(*arguments: Any, **offered: Any) -> list[Any]:
            return [*results_of(call, await function(*arguments, **offered))]

        return listed_async

    @functools.wraps(function)
    def listed(*arguments: Any, **offered: Any) -> list[Any]:
        return [*results_of(call, function(*arguments, **offered))]

    return listed
