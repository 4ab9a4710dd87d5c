"""Gives records other headers: what a sink below writes, and what functions and processors below see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_kstreams.streams.graph.inlining import LoopCode
from airflow_kstreams.streams.graph.nodes import Forward
from airflow_kstreams.streams.graph.services import NodeContext
from airflow_kstreams.streams.kstream.operators.stateless import written_call
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.records.record_context import RecordContext
from airflow_kstreams.streams.type_variables import K, V

#: Gives a list of (name, bytes or None).
HeadersFunction = Callable[[K, V], Sequence[tuple[str, bytes | None]]]
ContextHeadersFunction = Callable[[RecordContext, K, V], Sequence[tuple[str, bytes | None]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetHeaders:
    """Passes each record on with the headers that a function gives."""

    function: HeadersFunction | ContextHeadersFunction
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
        code.line(f"{headers} = {code.name(checked_headers, 'checked_headers')}({called})")
        with code.changed("replaced_headers", headers):
            code.forward(key, value)


def checked_headers(given: Any) -> Headers:
    """Return headers as a list of their own.

    :raises TypeError: Kafka knows no such headers.
    """
    if not isinstance(given, list | tuple):
        raise TypeError(
            f"set_headers: the function returned {type(given).__name__}, expected a list of pairs (name, "
            "bytes or None)"
        )
    for header in given:
        fits = isinstance(header, tuple) and len(header) == 2 and isinstance(header[0], str)
        if not fits or not (header[1] is None or isinstance(header[1], bytes)):
            raise TypeError(
                "set_headers: the function returned a list that holds something else than pairs (text, bytes "
                "or None)"
            )
    return [*given]
