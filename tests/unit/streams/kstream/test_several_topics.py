from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, TopologyError, serdes
from airflow_kstreams.streams.graph.nodes import SourceNode
from tests.support.topology.bound_topology import BoundTopology, Output


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def _sources(builder: KStreamBuilder) -> list[tuple[str, ...]]:
    return [node.topics for node in builder.build().nodes if isinstance(node, SourceNode)]


@pytest.mark.parametrize("topics", [("a", "b", "c"), (["a", "b", "c"],), ("a", ("b", "c"))])
def test_records_of_every_topic_arrive_when_a_stream_reads_several(topics: tuple[Any, ...]) -> None:
    builder = _builder()
    builder.stream(*topics).map_values(lambda v: -v).send_to("out")
    bound = BoundTopology(builder.build())
    for value, topic in enumerate("bcab"):
        bound.pipe(topic, topic, value, timestamp_ms=value)
    assert bound.read("out") == [
        Output("b", 0, 0),
        Output("c", -1, 1),
        Output("a", -2, 2),
        Output("b", -3, 3),
    ]


def test_topics_share_one_source_node_when_streamed_again_in_another_order() -> None:
    builder = _builder()
    builder.stream("a", "b").send_to("x")
    builder.stream(["b", "a"]).send_to("y")
    assert _sources(builder) == [("a", "b")]


def test_topics_need_equal_partition_counts_when_a_store_is_kept_below() -> None:
    builder = _builder()
    builder.stream("a", "b").group_by_key().count(store="counts")
    assert builder.build().plan("app").subtopologies[0].copartitioned == (("a", "b"),)


def test_topics_may_have_any_partition_counts_when_no_store_is_kept_below() -> None:
    builder = _builder()
    builder.stream("a", "b").filter(lambda k, v: True).send_to("out")
    (sub,) = builder.build().plan("app").subtopologies
    assert (sub.sources, sub.copartitioned) == (("a", "b"), ())


@pytest.mark.parametrize("again", [("a",), ("b", "c"), ("a", "b", "c")])
def test_topic_is_refused_when_streamed_with_other_topics_too(again: tuple[str, ...]) -> None:
    builder = _builder()
    builder.stream("a", "b")
    with pytest.raises(TopologyError, match=r"is read by two sources.*of the topics a, b and of") as caught:
        builder.stream(*again)
    assert caught.value.cause.count(f"{__file__}:") == 2
    assert caught.value.cause.endswith(f"and of {', '.join(again)}")
    assert ") and another (" in caught.value.cause


def test_topics_are_refused_when_streamed_with_other_serdes() -> None:
    builder = _builder()
    builder.stream("a", "b")
    with pytest.raises(TopologyError, match=r"topic 'b' is read by two sources.*serdes\.int64"):
        builder.stream("b", "a", value_serde=serdes.int64())


@pytest.mark.parametrize("topics", [(), ([],), ("a", "a"), ("a", ["a"]), (1,), (["a", None],), ({"a", "b"},)])
def test_stream_is_refused_with_the_users_line_when_topics_are_no_names(topics: tuple[Any, ...]) -> None:
    with pytest.raises(TopologyError) as caught:
        _builder().stream(*topics)
    assert f"stream at {__file__}:" in caught.value.cause
    assert caught.value.fix


def test_every_topic_is_named_when_a_serde_is_missing() -> None:
    with pytest.raises(TopologyError, match=r"stream\('a', 'b'\) at .* needs a key serde"):
        KStreamBuilder().stream("a", "b")
