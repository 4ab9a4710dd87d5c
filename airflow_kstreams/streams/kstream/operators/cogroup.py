"""Says of each value which of several cogrouped streams it came from, ahead of the one fold of them all.

Rule: a value becomes (number of its stream, value), and the fold calls that stream's aggregator. So every
kind of fold takes records of several streams in the order in which the task processes them, into one table
that emits once, as it does for one stream. What has no value stays so: the fold drops and counts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_kstreams.streams.graph.inlining import LoopCode
from airflow_kstreams.streams.graph.nodes import Forward
from airflow_kstreams.streams.graph.services import NodeContext
from airflow_kstreams.streams.kstream.operators.aggregation import Aggregator
from airflow_kstreams.streams.records.kept_values import begun


@dataclass(frozen=True, slots=True, kw_only=True)
class CogroupInput:
    """Marks the values of one stream.

    :param number: of the stream, from 0 on.
    """

    number: int

    type: ClassVar[str] = "cogroup_input"
    accounted: ClassVar[bool] = True

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        return context.written(self.write, forward, children)

    def write(self, code: LoopCode, key: str, value: str) -> None:
        """Write how a record is processed."""
        marked = code.variable("value")
        code.line(f"{marked} = None if {value} is None else ({self.number}, {value})")
        code.forward(key, marked)


def cogrouping(aggregators: Sequence[Aggregator]) -> Aggregator:
    """Return the aggregator of marked values.

    :param aggregators: of each stream, by its number.
    """
    chosen = tuple(aggregators)

    def aggregate(key: Any, marked: tuple[int, Any], aggregated: Any) -> Any:
        number, value = marked
        return begun(chosen[number](key, value, aggregated), value)

    return aggregate
