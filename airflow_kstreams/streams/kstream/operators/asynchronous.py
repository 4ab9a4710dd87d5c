"""The operator whose function takes its time: calls run side by side, and results leave in input order.

What the function is called with, and what becomes of the answer, its kind says; the task runs the calls
(``calls/``, ``runtime/pipeline/``).
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Concatenate

from airflow_kstreams.streams.graph.calls import CallOptions, CallSpec
from airflow_kstreams.streams.graph.operator_traits import OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, NodeContext
from airflow_kstreams.streams.hints.function_checks import is_async
from airflow_kstreams.streams.kstream.operators.answers import results_of
from airflow_kstreams.streams.kstream.operators.function_kinds import FunctionKind
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Asynchronous:
    """Calls its function for each record, and does with the answer what its kind says.

    :param function: the user's.
    :param calls: how.
    :param with_context: whether it is given the record's context; of plain operators only.
    """

    kind: FunctionKind
    function: AsyncFunction
    calls: CallOptions
    with_context: bool = False

    @property
    def type(self) -> str:
        """Kind of node."""
        return f"{self.kind.type}_async"

    @property
    def traits(self) -> OperatorTraits:
        """What the engine knows of the operator."""
        return OperatorTraits(flow="free" if self.calls.parks else self.kind.flow, calls=self.calls)

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        kind = self.kind
        spec = CallSpec(
            function=in_list(self.function, self.type) if kind.listed else self.function,
            arguments=kind.arguments,
            options=self.calls,
            hands_on=kind.hands_on,
            with_context=self.with_context,
        )
        return context.calls(spec, context.answered(kind.write, forward, children))


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
