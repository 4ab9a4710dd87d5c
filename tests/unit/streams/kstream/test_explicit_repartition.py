from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStream,
    KStreamBuilder,
    SlidingWindow,
    Topology,
    TopologyError,
    partition_of_key,
    serdes,
)
from airflow_kstreams.streams.partitioning.topic_growth import partition_counts
from airflow_kstreams.testing import TopologyTestDriver

pytestmark = pytest.mark.promise("repartition-fixes-the-count")


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())


def _topology(shape: Callable[[KStream], object]) -> Topology:
    builder = _builder()
    shape(builder.stream("in"))
    return builder.build()


def _counting(stream: KStream) -> None:
    counts = stream.repartition(4, name="spread").group_by_key().count(store="counts")
    counts.to_stream().send_to("out", value_serde=serdes.int64())


def test_plan_has_the_topic_with_its_count_when_a_stream_is_repartitioned() -> None:
    plan = _topology(_counting).plan("app")
    assert plan.repartition_topics == {"app-spread-repartition": 4}
    assert plan.intermediates == ("app-spread-repartition",)
    first, second = plan.subtopologies
    assert (first.sources, first.sinks, first.stores) == (("in",), ("app-spread-repartition",), ())
    assert (second.sources, second.stores) == (("app-spread-repartition",), ("counts",))


@pytest.mark.parametrize("partitions_of_input", [1, 3, 9])
def test_state_has_its_own_tasks_however_many_partitions_the_input_has(partitions_of_input: int) -> None:
    topology = _topology(_counting)
    counts = partition_counts(topology.plan("app"), {"in": partitions_of_input})
    groups = topology.partition_groups("app", counts)
    assert [len(found) for found in groups.values()] == [partitions_of_input, 4]


def test_records_lie_by_their_keys_when_they_were_repartitioned() -> None:
    driver = TopologyTestDriver(_topology(_counting), application_id="app", partitions={"in": 3})
    keys = [f"{number}" for number in range(40)]
    for key in keys * 2:
        driver.pipe_input("in", key=key, value="v", timestamp_ms=0)
    moved = driver.read_output("spread-repartition")
    assert [record.partition for record in moved] == [partition_of_key(k.encode(), 4, 4) for k in keys * 2]
    for key in keys:
        assert driver.store("counts", partition=partition_of_key(key.encode(), 4, 4)).get(key) == 2
    changes = driver.read_output("app-counts-changelog")
    assert {record.partition for record in changes} == {0, 1, 2, 3}


def test_records_without_key_alone_are_dropped_and_counted() -> None:
    driver = TopologyTestDriver(
        _topology(lambda s: s.repartition(2, name="a").send_to("out")), application_id="app"
    )
    rows: list[tuple[str | None, str | None]] = [(None, "v"), ("k", None), (None, None), ("k", "v")]
    for key, value in rows:
        driver.pipe_input("in", key=key, value=value, timestamp_ms=7, headers=[("h", b"1")])
    written = driver.read_output("out")
    assert [(record.key, record.value) for record in written] == [("k", None), ("k", "v")]
    assert {(record.timestamp_ms, tuple(record.headers)) for record in written} == {(7, (("h", b"1"),))}
    (left_out,) = driver.counts.left_out
    assert (left_out.node, left_out.rule, left_out.records) == ("a-repartition-filter", "null", 2)


@pytest.mark.parametrize(
    "rekey",
    [lambda s: s, lambda s: s.select_key(lambda k, v: v), lambda s: s.map(lambda k, v: (v, k))],
)
def test_nothing_is_repartitioned_twice_when_the_stream_is_grouped_or_joined(rekey: Any) -> None:
    builder = _builder()
    table = builder.table("table")
    stream = rekey(builder.stream("in")).repartition(2, name="once")
    stream.group_by_key().count(store="counts")
    stream.join(table, lambda value, other: value).send_to("out")
    window = SlidingWindow(size_ms=10)
    other = builder.stream("other").with_window(window)
    stream.with_window(window).join(other, lambda value, other: value).send_to("out")
    assert [topic.name for topic in builder.build().internal_topics] == ["once-repartition"]


def test_stream_is_repartitioned_again_when_its_key_changes_behind() -> None:
    topology = _topology(lambda s: s.repartition(2, name="a").group_by(lambda k, v: v).count(store="counts"))
    assert [(t.name, t.partitions) for t in topology.internal_topics] == [
        ("a-repartition", 2),
        ("counts-repartition", None),
    ]


def test_joined_streams_may_have_inputs_of_other_counts_when_both_are_repartitioned() -> None:
    builder = _builder()
    window = SlidingWindow(size_ms=10)
    left = builder.stream("left").repartition(3).with_window(window)
    right = builder.stream("right").repartition(3).with_window(window)
    left.join(right, lambda a, b: a + b).send_to("out")
    driver = TopologyTestDriver(builder.build(), application_id="app", partitions={"left": 2, "right": 5})
    for key in ("a", "b", "c", "d"):
        driver.pipe_input("left", key=key, value=key, timestamp_ms=0)
        driver.pipe_input("right", key=key, value="!", timestamp_ms=1)
    assert [record.value for record in driver.read_output("out")] == ["a!", "b!", "c!", "d!"]


def test_join_is_refused_when_only_one_side_has_another_count() -> None:
    builder = _builder()
    window = SlidingWindow(size_ms=10)
    left = builder.stream("left").repartition(3, name="spread").with_window(window)
    left.join(builder.stream("right").with_window(window), lambda a, b: a).send_to("out")
    with pytest.raises(TopologyError, match=r"'app-spread-repartition' has 3 and 'right' has 2") as caught:
        partition_counts(builder.build().plan("app"), {"left": 3, "right": 2})
    assert "repartition(partitions)" in caught.value.fix


def test_topic_is_shared_when_a_stream_is_repartitioned_twice_alike() -> None:
    def twice(stream: KStream) -> None:
        stream.repartition(2, name="a").send_to("out")
        stream.repartition(2, name="a").send_to("other")

    assert [topic.name for topic in _topology(twice).internal_topics] == ["a-repartition"]


@pytest.mark.parametrize(
    "second",
    [
        lambda s: s.repartition(3, name="a"),
        lambda s: s.repartition(2, name="a", value_serde=serdes.bytes()),
        lambda s: s.filter(lambda k, v: True).repartition(2, name="a"),
        lambda s: s.group_by(lambda k, v: v, name="a").count(store="counts"),
    ],
)
def test_name_is_refused_when_something_else_is_repartitioned_under_it(second: Any) -> None:
    stream = _builder().stream("in")
    stream.repartition(2, name="a")
    with pytest.raises(TopologyError, match=r"two streams .* 'a'") as caught:
        second(stream)
    assert f"{__file__}:" in caught.value.cause


def test_topic_is_called_after_what_the_stream_reads_and_shared_when_no_name_is_given() -> None:
    def twice(stream: KStream) -> None:
        stream.repartition(2).send_to("a")
        stream.repartition(2).send_to("b")

    topology = _topology(twice)
    assert [topic.name for topic in topology.internal_topics] == ["in-repartition"]


def test_second_topic_is_refused_when_no_name_tells_it_from_the_first() -> None:
    stream = _builder().stream("in")
    stream.repartition(2)
    with pytest.raises(TopologyError, match=r"under the name 'in', at (.*):\d+ and at \1:\d+") as caught:
        stream.select_key(lambda key, value: value).repartition(2)
    assert 'name="..."' in caught.value.fix


@pytest.mark.parametrize("partitions", [0, -1, True, 2.0, "2", None])
def test_partitions_are_refused_when_they_are_no_count(partitions: Any) -> None:
    stream = _builder().stream("in")
    with pytest.raises(TopologyError, match=r"repartition at .* is given .* as partitions") as caught:
        stream.repartition(partitions)
    assert f"{__file__}:" in caught.value.cause


@pytest.mark.parametrize(("lost", "wanted"), [("key", "key"), ("value", "value")])
def test_serde_is_asked_for_when_an_operator_made_something_new(lost: str, wanted: str) -> None:
    stream = KStreamBuilder().stream("in", key_serde=serdes.string(), value_serde=serdes.string())
    new = stream.select_key(lambda k, v: v) if lost == "key" else stream.map_values(lambda v: v)
    with pytest.raises(TopologyError, match=rf"repartition at .* needs a {wanted} serde") as caught:
        new.repartition(2)
    assert f"pass {wanted}_serde= to repartition" in caught.value.fix
    given: dict[str, Any] = {f"{wanted}_serde": serdes.bytes()}
    new.repartition(2, **given).send_to("out")  # and is known from here on


def test_serde_is_refused_when_it_is_none() -> None:
    with pytest.raises(TopologyError, match="key_serde"):
        _builder().stream("in").repartition(2, key_serde="string")  # type: ignore[arg-type]


def test_hash_changes_when_the_count_does() -> None:
    two, again, three = (
        _topology(lambda s, n=n: s.repartition(n, name="a").send_to("out")).topology_hash()  # type: ignore[misc]
        for n in (2, 2, 3)
    )
    assert two == again != three


def test_description_shows_the_topic_between_two_subtopologies() -> None:
    text = _topology(lambda s: s.repartition(2, name="a").send_to("out")).describe(application_id="app")
    assert "Sink: a-repartition-sink (topic: app-a-repartition)" in text
    assert "Source: a-repartition-source (topics: [app-a-repartition])" in text
    assert "Sub-topology: 1" in text


def _left_join(builder: KStreamBuilder, stream: KStream, other: KStream) -> KStream:
    sliding = SlidingWindow(size_ms=5)
    return stream.with_window(sliding).left_join(other.with_window(sliding), lambda one, two: f"{one} {two}")


def _table_left_join(builder: KStreamBuilder, stream: KStream, other: KStream) -> KStream:
    return stream.left_join(builder.table("table"), lambda one, two: f"{one} {two}")


def _global_left_join(builder: KStreamBuilder, stream: KStream, other: KStream) -> KStream:
    airports = builder.global_table("table")
    return stream.left_join(airports, lambda one, two: f"{one} {two}", key=lambda key, value: key)


def _global_join(builder: KStreamBuilder, stream: KStream, other: KStream) -> KStream:
    airports = builder.global_table("table")
    return stream.join(airports, lambda one, two: f"{one} {two}", key=lambda key, value: key)


def _behind_another(builder: KStreamBuilder, stream: KStream, other: KStream) -> KStream:
    return _left_join(builder, stream.filter(lambda key, value: True).repartition(1), other)


def _inner_join(builder: KStreamBuilder, stream: KStream, other: KStream) -> KStream:
    sliding = SlidingWindow(size_ms=5)
    return stream.with_window(sliding).join(other.with_window(sliding), lambda one, two: f"{one} {two}")


def _behind_a_topic(builder: KStreamBuilder, stream: KStream, other: KStream) -> KStream:
    return _left_join(builder, stream.through("between"), other)


@pytest.mark.parametrize(
    ("join", "kept"),
    [
        (_left_join, True),
        (_table_left_join, True),
        (_global_left_join, True),
        (_global_join, False),
        (_behind_another, True),
        (_inner_join, False),
        (_behind_a_topic, False),
    ],
)
def test_records_without_key_stay_when_a_join_behind_takes_them_alone(join: Any, kept: bool) -> None:
    builder = _builder()
    spread = builder.stream("in").repartition(1, name="spread")
    join(builder, spread, builder.stream("other")).send_to("out", value_serde=serdes.string())
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        driver.pipe_input("in", key=None, value="v", timestamp_ms=1)
        assert [record.value for record in driver.read_output("spread-repartition")] == ["v"] * kept
        assert [record.value for record in driver.read_output("out")] == ["v None"] * kept
