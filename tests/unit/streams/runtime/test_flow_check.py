from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, RetryPolicy, serdes
from airflow_kstreams.streams.figures.record_counts import RecordCounts
from airflow_kstreams.streams.runtime.flow_check import FlowCheck, Unbalanced


async def _ask(value: str) -> str:
    return value


def _called(order: str) -> Callable[[Any], Any]:
    return lambda stream: stream.map_values_async(_ask, order=order, retry=RetryPolicy(), name="ask")


def _unbalanced(shape: Callable[[Any], Any], counts: RecordCounts) -> list[Unbalanced]:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    shape(builder.stream("in")).send_to("out")
    (subtopology,) = builder.build().subtopologies()
    return FlowCheck(subtopology, lambda topic: topic).unbalanced(counts)


@pytest.mark.parametrize("shape", [lambda stream: stream.map_values(str), _called("partition")])
def test_counts_do_not_fit_together_when_a_record_is_missing(shape: Callable[[Any], Any]) -> None:
    counts = RecordCounts(read={"in": 3}, written={"out": 2})
    assert _unbalanced(shape, counts) == [Unbalanced("out", 3, 2)]


@pytest.mark.parametrize("order", ["key", "unordered"])
@pytest.mark.parametrize("written", [2, 4], ids=["one is parked", "one was parked before"])
def test_nothing_is_known_below_a_node_with_a_retry_topic(order: str, written: int) -> None:
    assert _unbalanced(_called(order), RecordCounts(read={"in": 3}, written={"out": written})) == []
