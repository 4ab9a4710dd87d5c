"""Gives records other headers: what a sink below writes, and what functions and processors below see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from airflow_kstreams.streams.graph.inlining import LoopCode
from airflow_kstreams.streams.graph.nodes import Forward
from airflow_kstreams.streams.graph.services import NodeContext
from airflow_kstreams.streams.kstream.operators.stateless import written_call
from airflow_kstreams.streams.records.record_context import InContext
from airflow_kstreams.streams.records.result_facts import checked_headers
from airflow_kstreams.streams.type_variables import K, V

#: Gives a list of (name, bytes or None).
HeadersFunction = Callable[[K, V], Sequence[tuple[str, bytes | None]]]

_SAID = "set_headers: the function returned {}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetHeaders:
    """Passes each record on with the headers that a function gives."""

    function: HeadersFunction | InContext
    with_context: bool = False

    type: ClassVar[str] = "set_headers"
    accounted: ClassVar[bool] = True

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        return context.written(self.write, forward, children)

    def write(self, code: LoopCode, key: str, value: str) -> None:
        """Write how a record is processed."""
        called = written_call(
            code, self.function, "headers_of", f"{key}, {value}", with_context=self.with_context
        )
        headers = code.variable("headers")
        code.line(f"{headers} = {code.name(checked_headers, 'checked_headers')}({called}, {_SAID!r})")
        with code.changed("replaced_headers", headers):
            code.forward(key, value)
