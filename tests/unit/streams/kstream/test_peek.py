from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, TopologyError, serdes
from tests.support.topology.bound_topology import BoundTopology, Output


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def test_peek_sees_each_record_before_its_children_when_called() -> None:
    seen: list[tuple[str, Any]] = []
    builder = _builder()
    stream = builder.stream("in").peek(lambda k, v: seen.append(("first", (k, v))))
    stream.peek(lambda k, v: seen.append(("second", (k, v)))).send_to("out")
    bound = BoundTopology(builder.build())
    bound.pipe("in", "a", 1, timestamp_ms=5)
    bound.pipe("in", None, None, timestamp_ms=6)
    assert seen == [
        ("first", ("a", 1)),
        ("second", ("a", 1)),
        ("first", (None, None)),
        ("second", (None, None)),
    ]
    assert bound.read("out") == [Output("a", 1, 5), Output(None, None, 6)]


def test_peek_needs_no_repartition_when_a_group_follows() -> None:
    builder = _builder()
    builder.stream("in").peek(print).group_by_key().count(store="counts")
    assert builder.build().internal_topics == ()


def test_peek_is_refused_when_no_function_is_given() -> None:
    with pytest.raises(TopologyError) as caught:
        _builder().stream("in").peek(None)  # type: ignore[arg-type]
    assert f"peek at {__file__}:" in caught.value.cause
