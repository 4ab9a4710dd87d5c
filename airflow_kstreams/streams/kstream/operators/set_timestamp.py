"""Dates records anew: what a sink below writes, tables note, and functions and processors below see.

Rule: stream time is that of the consumed records (KIP-28), so it does not follow. Folds by windows and joins
of streams, which go by stream time, therefore stand behind a topic, where the new times are those of the
records that are consumed (``KnownStream.redated``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from airflow_kstreams.streams.graph.inlining import LoopCode
from airflow_kstreams.streams.graph.nodes import Forward
from airflow_kstreams.streams.graph.services import NodeContext
from airflow_kstreams.streams.kstream.operators.stateless import written_call
from airflow_kstreams.streams.records.record_context import InContext
from airflow_kstreams.streams.records.result_facts import checked_time
from airflow_kstreams.streams.type_variables import K, V

TimestampFunction = Callable[[K, V], int]

_SAID = "set_timestamp: the function returned {}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimestamp:
    """Passes each record on with the timestamp that a function gives."""

    function: TimestampFunction | InContext
    with_context: bool = False

    type: ClassVar[str] = "set_timestamp"
    accounted: ClassVar[bool] = True
    redates: ClassVar[bool] = True

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        return context.written(self.write, forward, children)

    def write(self, code: LoopCode, key: str, value: str) -> None:
        """Write how a record is processed."""
        called = written_call(
            code, self.function, "time_of", f"{key}, {value}", with_context=self.with_context
        )
        time_ms = code.variable("time_ms")
        code.line(f"{time_ms} = {code.name(checked_time, 'checked_time')}({called}, {_SAID!r})")
        with code.changed("timestamp_ms", time_ms):
            code.forward(key, value)
