from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, KTable, TopologyError, serdes
from airflow_kstreams.streams.graph.nodes import SourceNode
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.runtime.execution import TaskProgress
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from tests.support.topology.bound_topology import BoundTopology, Output
from tests.support.topology.records import FakeRecord


def _pair(left: Any, right: Any) -> list[Any]:
    return [left, right]


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def _joined(method: str) -> BoundTopology:
    builder = _builder()
    table = builder.table("airlines", store="airlines")
    getattr(builder.stream("flights"), method)(table, _pair).send_to("out", value_serde=serdes.json())
    return BoundTopology(builder.build())


def test_join_takes_the_tables_value_of_the_moment_when_a_record_arrives() -> None:
    bound = _joined("join")
    bound.pipe("flights", "UA", 1, timestamp_ms=1)
    bound.pipe("airlines", "UA", "United", timestamp_ms=9)
    bound.pipe("flights", "UA", 2, timestamp_ms=3)
    bound.pipe("flights", "B6", 3, timestamp_ms=4)
    bound.pipe("airlines", "UA", None, timestamp_ms=5)
    bound.pipe("flights", "UA", 4, timestamp_ms=6)
    assert bound.read("out") == [Output("UA", [2, "United"], 3)]
    assert bound.dropped == 0


def test_left_join_gives_none_when_the_table_has_no_value() -> None:
    bound = _joined("left_join")
    bound.pipe("airlines", "UA", "United", timestamp_ms=9)
    for key, value in (("UA", 1), ("B6", 2), (None, 3)):
        bound.pipe("flights", key, value, timestamp_ms=value)
    assert bound.read("out") == [
        Output("UA", [1, "United"], 1),
        Output("B6", [2, None], 2),
        Output(None, [3, None], 3),
    ]
    assert bound.dropped == 0


@pytest.mark.parametrize(("method", "dropped"), [("join", 2), ("left_join", 1)])
def test_record_is_dropped_and_counted_when_it_cannot_be_joined(method: str, dropped: int) -> None:
    bound = _joined(method)
    bound.pipe("airlines", "UA", "United")
    bound.pipe("flights", "UA", None)
    bound.pipe("flights", None, 1)
    assert bound.dropped == dropped
    assert len(bound.read("out")) == 2 - dropped


def test_join_reads_through_the_cache_when_the_table_is_a_fold() -> None:
    builder = _builder()
    totals = builder.stream("sales").group_by_key().reduce(lambda old, new: old + new, store="totals")
    builder.stream("asks").join(totals, _pair).send_to("out", value_serde=serdes.json())
    bound = BoundTopology(builder.build())
    for value in (1, 2):
        bound.pipe("sales", "k", value)
    bound.pipe("asks", "k", "?")
    assert bound.read("out") == [Output("k", ["?", 3], 0)]


def test_sides_are_copartitioned_in_one_subtopology_when_joined() -> None:
    builder = _builder()
    stream = builder.stream("flights")
    stream.join(builder.table("airlines", store="airlines"), _pair).send_to("out", value_serde=serdes.json())
    (sub,) = builder.build().plan("app").subtopologies
    assert sub.sources == ("airlines", "flights")
    assert sub.copartitioned == (("airlines", "flights"),)


@pytest.mark.parametrize("method", ["join", "left_join"])
def test_stream_is_repartitioned_by_the_tables_keys_when_its_key_changed(method: str) -> None:
    builder = KStreamBuilder()
    table = builder.table("airlines", key_serde=serdes.int32(), value_serde=serdes.string(), store="airlines")
    flights = builder.stream("flights", key_serde=serdes.string(), value_serde=serdes.json())
    rekeyed = flights.select_key(lambda k, v: v["carrier"])
    joined = getattr(rekeyed, method)(
        table, lambda flight, airline: [flight["n"], airline], name="by-carrier"
    )
    joined.send_to("out", value_serde=serdes.json())
    topology = builder.build()
    assert [topic.name for topic in topology.internal_topics] == ["by-carrier-repartition"]
    (source,) = (
        node for node in topology.nodes if isinstance(node, SourceNode) and "by-carrier" in node.name
    )
    assert (source.key_serde, source.value_serde) == (serdes.int32(), serdes.json())
    first, second = topology.plan("app").subtopologies
    assert first.sources == ("flights",)
    assert second.copartitioned == (("airlines", "app-by-carrier-repartition"),)
    bound = BoundTopology(topology)
    bound.pipe("airlines", 7, "United")
    bound.pipe("flights", "JFK", {"carrier": 7, "n": 1})
    bound.pipe("flights", "JFK", {"carrier": None, "n": 2})
    lefts = [Output(None, [2, None], 0)] if method == "left_join" else []
    assert bound.read("out") == [Output(7, [1, "United"], 0), *lefts]
    assert bound.dropped == 1 - len(lefts)


def test_rekeyed_stream_meets_a_table_of_its_own_input_only_when_that_goes_through_a_topic() -> None:
    builder = _builder()
    stream = builder.stream("in")
    stream.select_key(lambda k, v: v).join(stream.group_by_key().count(), _pair).send_to(
        "out", value_serde=serdes.json()
    )
    with pytest.raises(TopologyError, match=r"can never stop") as caught:
        builder.build()
    assert f"{__file__}:" in caught.value.cause
    assert "make the table behind a through('topic')" in caught.value.fix

    builder = _builder()
    stream = builder.stream("in")
    table = stream.through("mid").group_by_key().count(store="counts")
    stream.select_key(lambda k, v: v).join(table, _pair).send_to("out", value_serde=serdes.json())
    bound = BoundTopology(builder.build())
    bound.pipe("in", "a", "x")
    bound.pipe("in", "x", "a")
    assert bound.read("out") == [Output("a", ["a", 1], 0)]


def test_two_joins_share_the_repartition_topic_when_their_stream_is_one() -> None:
    builder = _builder()
    rekeyed = builder.stream("in").select_key(lambda k, v: k)
    for topic in ("one", "two"):
        rekeyed.left_join(builder.table(topic), _pair).send_to(f"{topic}-out", value_serde=serdes.json())
    rekeyed.join(builder.table("three"), _pair).send_to("three-out", value_serde=serdes.json())
    assert [topic.name for topic in builder.build().internal_topics] == ["in-repartition"]


def test_second_table_keeps_its_own_objects_when_the_joined_one_changes_them() -> None:
    builder = _builder()
    lists = builder.stream("in").group_by_key().aggregate(list, _append, store="lists")
    joined = builder.stream("asks").join(lists, lambda ask, values: values)
    joined.group_by_key().reduce(lambda old, new: new, store="seen")
    bound = BoundTopology(builder.build())
    bound.pipe("in", "k", 1)
    bound.pipe("asks", "k", "?")
    bound.pipe("in", "k", 2)
    assert bound.stores["lists"].get("k") == [1, 2]
    assert bound.stores["seen"].get("k") == [1]


def _append(key: str, value: int, values: list[int]) -> list[int]:
    values.append(value)
    return values


def test_value_serde_is_asked_for_when_a_join_made_the_value() -> None:
    builder = KStreamBuilder()
    table = builder.table("t", key_serde=serdes.string(), value_serde=serdes.json())
    stream = builder.stream("s", key_serde=serdes.string(), value_serde=serdes.json())
    with pytest.raises(TopologyError, match=r"needs a value serde.*after left_join at .*test_table_join\.py"):
        stream.left_join(table, _pair).send_to("out")
    with pytest.raises(
        TopologyError, match=r"join at .* needs a value serde, and none is known after map at"
    ):
        stream.map(lambda k, v: (k, v)).join(table, _pair)


def test_join_is_refused_when_key_serdes_differ() -> None:
    builder = _builder()
    table = builder.table("t", key_serde=serdes.int32(), store="t")
    with pytest.raises(
        TopologyError, match=r"keys of serdes\.string and the table 't' with keys of serdes\.int32"
    ) as no:
        builder.stream("s").join(table, _pair)
    assert no.value.fix.endswith("before the join, with a selector that gives keys of serdes.int32")


@pytest.mark.parametrize(
    ("partner", "joiner"),
    [
        (lambda builder: builder.stream("t"), _pair),
        (lambda builder: _builder().table("t"), _pair),
        (lambda builder: "t", _pair),
        (lambda builder: builder.table("t"), None),
    ],
)
@pytest.mark.parametrize("method", ["join", "left_join"])
def test_join_is_refused_with_the_users_line_when_it_is_given_something_else(
    method: str, partner: Callable[[KStreamBuilder], KTable], joiner: Any
) -> None:
    builder = _builder()
    stream = builder.stream("s")
    with pytest.raises(TopologyError) as caught:
        getattr(stream, method)(partner(builder), joiner)
    assert caught.value.cause.startswith(f"{method} at {__file__}:")
    assert caught.value.fix


def _record(topic: str, at: int, time_ms: int) -> FakeRecord:
    value = b"%d" % time_ms
    return FakeRecord(at=at, in_topic=topic, key_bytes=b"k", value_bytes=value, timestamp_ms=time_ms)


@pytest.mark.parametrize("stream_first", [True, False])
def test_task_joins_by_time_when_one_side_is_fetched_first(stream_first: bool) -> None:
    builder = _builder()
    stream = builder.stream("s")
    stream.left_join(builder.table("t", store="t"), _pair).send_to("out", value_serde=serdes.json())
    sent: list[tuple[bytes, int]] = []
    task = StreamTask(
        builder.build(),
        task_id=TaskId(subtopology=0, group=0),
        bounds={TopicPartition("s", 0): (0, 3), TopicPartition("t", 0): (0, 2)},
        produce=lambda topic, value, key, partition, time_ms, headers: sent.append((value, time_ms)),
        settings=ApplicationSettings.parse("app"),
        progress=TaskProgress(),
    )
    task.restored()
    task.open()
    sides = {"s": (1, 3, 5), "t": (2, 4)}
    for topic in sorted(sides, reverse=not stream_first):
        assert task.process(10) == 0
        side = TopicPartition(topic, 0)
        task.add(side, [_record(topic, at, time_ms) for at, time_ms in enumerate(sides[topic])])
        task.group.reached(side, len(sides[topic]))
    while task.process(10):
        pass
    assert task.execution.complete
    assert sent == [(b"[1,null]", 1), (b"[3,2]", 3), (b"[5,4]", 5)]
