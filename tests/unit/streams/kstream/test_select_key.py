from __future__ import annotations

import pytest

from airflow_kstreams.streams import KStreamBuilder, TopologyError, serdes
from tests.support.topology.bound_topology import BoundTopology, Output


def test_select_key_replaces_the_key_and_keeps_the_value_when_called() -> None:
    builder = KStreamBuilder()
    stream = builder.stream("in", key_serde=serdes.string(), value_serde=serdes.json())
    stream.select_key(lambda k, v: len(k) + v).send_to("out", key_serde=serdes.int32())
    bound = BoundTopology(builder.build())
    bound.pipe("in", "ab", 40, timestamp_ms=3)
    assert bound.read("out") == [Output(42, 40, 3)]


def test_select_key_makes_a_group_repartition_when_it_follows() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("in").select_key(lambda k, v: v).group_by_key().count(store="counts")
    assert [topic.name for topic in builder.build().internal_topics] == ["counts-repartition"]


def test_key_serde_is_asked_for_when_select_key_lost_it() -> None:
    stream = KStreamBuilder().stream("in", key_serde=serdes.string(), value_serde=serdes.json())
    with pytest.raises(TopologyError, match=r"needs a key serde.*after select_key at .*test_select_key\.py"):
        stream.select_key(lambda k, v: v).send_to("out")


def test_select_key_is_refused_when_no_function_is_given() -> None:
    stream = KStreamBuilder().stream("in", key_serde=serdes.string(), value_serde=serdes.json())
    with pytest.raises(TopologyError) as caught:
        stream.select_key("carrier")  # type: ignore[call-overload]
    assert f"select_key at {__file__}:" in caught.value.cause
