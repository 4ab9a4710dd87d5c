from __future__ import annotations

import pytest

from airflow_kstreams.streams import KStreamBuilder, TopologyError, serdes
from tests.support.topology.bound_topology import BoundTopology, Output


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def test_filter_not_keeps_records_when_predicate_does_not_hold() -> None:
    builder = _builder()
    builder.stream("in").filter_not(lambda k, v: k == "a" and v > 1).send_to("out")
    bound = BoundTopology(builder.build())
    for key, value in (("a", 1), ("a", 2), ("b", 3)):
        bound.pipe("in", key, value, timestamp_ms=value)
    assert bound.read("out") == [Output("a", 1, 1), Output("b", 3, 3)]


def test_filter_not_complements_filter_when_given_the_same_predicate() -> None:
    builder = _builder()
    stream = builder.stream("in")
    stream.filter(lambda k, v: v % 3 == 0).send_to("kept")
    stream.filter_not(lambda k, v: v % 3 == 0).send_to("dropped")
    bound = BoundTopology(builder.build())
    for value in range(7):
        bound.pipe("in", "k", value)
    assert [output.value for output in bound.read("kept")] == [0, 3, 6]
    assert [output.value for output in bound.read("dropped")] == [1, 2, 4, 5]


def test_filter_not_is_refused_when_no_function_is_given() -> None:
    with pytest.raises(TopologyError) as caught:
        _builder().stream("in").filter_not(False)  # type: ignore[arg-type]
    assert f"filter_not at {__file__}:" in caught.value.cause
