from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import KStream, KStreamBuilder, TopologyError, serdes
from airflow_kstreams.streams.graph.nodes import SinkNode
from tests.support.topology.bound_topology import BoundTopology, Output


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def test_merge_passes_each_record_once_and_in_order_when_streams_are_several() -> None:
    builder = _builder()
    one, two, three = (builder.stream(topic) for topic in ("one", "two", "three"))
    one.merge(two.map_values(lambda v: -v), three).send_to("out")
    bound = BoundTopology(builder.build())
    for time_ms, topic in enumerate(("two", "one", "three", "two")):
        bound.pipe(topic, topic, time_ms + 1, timestamp_ms=time_ms)
    assert bound.read("out") == [
        Output("two", -1, 0),
        Output("one", 2, 1),
        Output("three", 3, 2),
        Output("two", -4, 3),
    ]


def test_merge_joins_the_branches_again_when_they_are_of_one_stream() -> None:
    builder = _builder()
    small, rest = builder.stream("in").branch(lambda k, v: v < 10, lambda k, v: True)
    small.merge(rest.map_values(lambda v: v // 10)).send_to("out")
    bound = BoundTopology(builder.build())
    for value in (1, 20, 3):
        bound.pipe("in", "k", value)
    assert [output.value for output in bound.read("out")] == [1, 2, 3]


def test_merged_stream_keeps_the_serdes_when_all_streams_share_them() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.bytes(), default_value_serde=serdes.bytes())
    one = builder.stream("one", key_serde=serdes.string(), value_serde=serdes.json())
    two = builder.stream("two", key_serde=serdes.string(), value_serde=serdes.json())
    one.merge(two).send_to("out")
    (sink,) = (node for node in builder.build().nodes if isinstance(node, SinkNode))
    assert (sink.key_serde, sink.value_serde) == (serdes.string(), serdes.json())


@pytest.mark.parametrize(
    ("change", "side"), [(lambda s: s.map_values(str), "value"), (lambda s: s.select_key(max), "key")]
)
def test_serde_is_asked_for_when_one_merged_stream_lost_it(
    change: Callable[[KStream], KStream], side: str
) -> None:
    builder = KStreamBuilder()
    one = builder.stream("one", key_serde=serdes.string(), value_serde=serdes.json())
    two = builder.stream("two", key_serde=serdes.string(), value_serde=serdes.json())
    for first, second in ((one, change(two)), (change(one), two)):
        with pytest.raises(TopologyError, match=rf"needs a {side} serde.*after (map_values|select_key) at"):
            first.merge(second).send_to("out")


def test_merge_is_refused_when_value_serdes_differ() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string())
    one = builder.stream("one", value_serde=serdes.json())
    two = builder.stream("two", value_serde=serdes.int64())
    with pytest.raises(
        TopologyError, match=r"different value serdes, serdes\.json and serdes\.int64"
    ) as caught:
        one.merge(two)
    assert f"merge at {__file__}:" in caught.value.cause


def test_merge_is_refused_when_key_serdes_differ_behind_a_lost_one() -> None:
    builder = KStreamBuilder(default_value_serde=serdes.json())
    one = builder.stream("one", key_serde=serdes.string())
    two = builder.stream("two", key_serde=serdes.int32())
    with pytest.raises(TopologyError, match=r"different key serdes, serdes\.string and serdes\.int32"):
        one.select_key(lambda k, v: v).merge(one, two)


@pytest.mark.parametrize("changed_first", [True, False])
def test_merged_stream_is_repartitioned_when_any_key_may_have_changed(changed_first: bool) -> None:
    builder = _builder()
    plain, changed = builder.stream("one"), builder.stream("two").select_key(lambda k, v: v)
    merged = changed.merge(plain) if changed_first else plain.merge(changed)
    merged.group_by_key().count(store="counts")
    assert [topic.name for topic in builder.build().internal_topics] == ["counts-repartition"]


def test_merged_stream_is_not_repartitioned_when_no_key_changed() -> None:
    builder = _builder()
    builder.stream("one").merge(builder.stream("two")).group_by_key().count(store="counts")
    topology = builder.build()
    assert topology.internal_topics == ()
    assert topology.plan("app").subtopologies[0].copartitioned == (("one", "two"),)


def test_second_table_keeps_its_own_objects_when_a_tables_stream_is_merged() -> None:
    builder = _builder()
    lists = builder.stream("in").group_by_key().aggregate(list, _append, store="lists")
    merged = builder.stream("other").merge(lists.to_stream())
    merged.group_by_key().reduce(lambda old, new: old, store="first-lists")
    bound = BoundTopology(builder.build())
    for value in (1, 2):
        bound.pipe("in", "k", value)
        bound.flush()
    assert bound.stores["lists"].get("k") == [1, 2]
    assert bound.stores["first-lists"].get("k") == [1]


def _append(key: str, value: int, values: list[int]) -> list[int]:
    values.append(value)
    return values


@pytest.mark.parametrize(
    "others",
    [
        lambda stream: [],
        lambda stream: [stream],
        lambda stream: ["two"],
        lambda stream: [_builder().stream("two")],
        lambda stream: [stream.group_by_key().count(store="counts")],
    ],
)
def test_merge_is_refused_with_the_users_line_when_streams_do_not_fit(
    others: Callable[[KStream], Any],
) -> None:
    stream = _builder().stream("in")
    with pytest.raises(TopologyError) as caught:
        stream.merge(*others(stream))
    assert f"merge at {__file__}:" in caught.value.cause
    assert caught.value.fix
