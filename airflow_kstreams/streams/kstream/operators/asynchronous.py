"""Operators whose function takes its time: calls run side by side, and what they give leaves in input order.

Each says what its function is called with, and what becomes of its answer; how the calls run is the task's
business (``runtime/lanes.py``). Those that are ``accounted`` pass each record on once or count it as left
out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_kstreams.streams.graph.calls import CallOptions, CallSpec
from airflow_kstreams.streams.graph.nodes import Forward
from airflow_kstreams.streams.graph.services import NodeContext

#: A coroutine function, or with threads a plain one, that takes what the plain operator's function takes.
AsyncFunction = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MapValuesAsync:
    """Replaces the value by the answer of a call."""

    function: AsyncFunction
    calls: CallOptions

    type: ClassVar[str] = "map_values_async"
    accounted: ClassVar[bool] = True

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""

        def give(key: Any, value: Any, answer: Any) -> None:
            forward(key, answer)

        return context.calls(CallSpec(function=self.function, arguments=_value, options=self.calls), give)


def _value(key: Any, value: Any) -> tuple[Any, ...]:
    return (value,)


def _key_and_value(key: Any, value: Any) -> tuple[Any, ...]:
    return key, value
