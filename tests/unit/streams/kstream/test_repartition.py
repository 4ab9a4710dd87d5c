from __future__ import annotations

import pytest

from airflow_kstreams.streams import (
    KStream,
    KStreamBuilder,
    Processor,
    ProcessorRecord,
    Topology,
    TopologyError,
    serdes,
)
from airflow_kstreams.streams.graph.nodes import SourceNode
from tests.support.topology.bound_topology import BoundTopology, Output


class Silent(Processor):
    def process(self, record: ProcessorRecord) -> None:
        """Forward nothing."""


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def _internal(topology: Topology) -> list[str]:
    return [topic.name for topic in topology.internal_topics]


@pytest.mark.parametrize(
    "keep",
    [
        lambda s: s,
        lambda s: s.filter(lambda k, v: True),
        lambda s: s.map_values(lambda v: v),
        lambda s: s.flat_map_values(lambda v: [v]),
        lambda s: s.branch(lambda k, v: True)[0],
        lambda s: s.map(lambda k, v: (v, k)).through("mine"),
        lambda s: s.group_by_key().count(store="other").to_stream(),
        lambda s: s.group_by(lambda k, v: v).count(store="other").to_stream(),
    ],
)
def test_table_reads_its_stream_directly_when_the_key_is_unchanged(keep: object) -> None:
    builder = _builder()
    keep(builder.stream("in")).group_by_key().count(store="counts")  # type: ignore[operator]
    assert "counts-repartition" not in _internal(builder.build())


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.map(lambda k, v: (k, v)),
        lambda s: s.flat_map(lambda k, v: [(k, v)]),
        lambda s: s.process(Silent),
        lambda s: s.map(lambda k, v: (k, v)).filter(lambda k, v: True),
        lambda s: s.map(lambda k, v: (k, v)).map_values(lambda v: v),
        lambda s: s.map(lambda k, v: (k, v)).branch(lambda k, v: True)[0],
    ],
)
def test_stream_is_repartitioned_when_the_key_may_have_changed(change: object) -> None:
    builder = _builder()
    change(builder.stream("in")).group_by_key().count(store="counts")  # type: ignore[operator]
    topology = builder.build()
    assert _internal(topology) == ["counts-repartition"]
    assert topology.real_topic("counts-repartition", "app") == "app-counts-repartition"
    assert topology.real_topic("in", "app") == "in"


def test_group_by_folds_under_the_new_key_when_called() -> None:
    builder = _builder()
    builder.stream("in").group_by(lambda k, v: v["carrier"]).count(store="counts").to_stream().send_to(
        "out", value_serde=serdes.int64()
    )
    bound = BoundTopology(builder.build())
    for carrier in ("UA", "B6", "UA"):
        bound.pipe("in", "JFK", {"carrier": carrier}, timestamp_ms=3)
    bound.flush()
    assert bound.read("out") == [Output("UA", 2, 3), Output("B6", 1, 3)]
    assert [output.key for output in bound.read("counts-repartition")] == ["UA", "B6", "UA"]


def test_nulls_are_dropped_before_the_topic_when_repartitioned() -> None:
    builder = _builder()
    builder.stream("in").group_by(lambda k, v: None if v == "?" else v).count(store="counts")
    bound = BoundTopology(builder.build())
    for value in ("x", "?", None):
        bound.pipe("in", "a", value)
    assert [output.key for output in bound.read("counts-repartition")] == ["x"]
    assert bound.dropped == 2


def test_topic_is_shared_when_a_named_group_is_used_twice() -> None:
    builder = _builder()
    grouped = builder.stream("in").group_by(lambda k, v: v, name="by-value")
    grouped.count(store="counts")
    grouped.reduce(lambda old, new: new, store="latest")
    topology = builder.build()
    assert _internal(topology) == ["by-value-repartition"]
    bound = BoundTopology(topology)
    bound.pipe("in", "a", "x")
    bound.pipe("in", "b", "x")
    assert bound.stores["counts"].get("x") == 2
    assert bound.stores["latest"].get("x") == "x"


def _by_value(key: str, value: str) -> str:
    return value


def test_topic_is_shared_when_a_stream_is_grouped_twice_under_one_name() -> None:
    builder = _builder()
    stream = builder.stream("in")
    stream.group_by(_by_value, name="by-value").count(store="counts")
    stream.group_by(_by_value, name="by-value").reduce(lambda old, new: new, store="latest")
    mapped = stream.map(lambda k, v: (v, k))
    mapped.group_by_key(name="swapped").count(store="swapped-counts")
    mapped.group_by_key(name="swapped").reduce(lambda old, new: new, store="swapped-latest")
    topology = builder.build()
    assert _internal(topology) == ["by-value-repartition", "swapped-repartition"]
    bound = BoundTopology(topology)
    bound.pipe("in", "a", "x")
    assert bound.stores["counts"].get("x") == 1
    assert bound.stores["swapped-latest"].get("x") == "a"


def test_each_store_has_its_topic_when_the_group_has_no_name() -> None:
    builder = _builder()
    grouped = builder.stream("in").group_by(lambda k, v: v)
    grouped.count(store="counts")
    grouped.reduce(lambda old, new: new, store="latest")
    assert _internal(builder.build()) == ["counts-repartition", "latest-repartition"]


def test_name_is_refused_when_another_stream_is_repartitioned_under_it() -> None:
    builder = _builder()
    stream = builder.stream("in")
    stream.group_by(lambda k, v: v, name="mine").count(store="counts")
    with pytest.raises(TopologyError, match=r"the name 'mine' is given to two nodes") as caught:
        stream.group_by(lambda k, v: v, name="mine").count(store="more")
    assert f"{__file__}:" in caught.value.cause


@pytest.mark.parametrize(
    "use",
    [
        lambda b, s: s.send_to("counts-repartition"),
        lambda b, s: b.stream("counts-repartition").send_to("x"),
        lambda b, s: s.through("counts-repartition").send_to("x"),
    ],
)
def test_repartition_topic_is_refused_when_the_user_names_it(use: object) -> None:
    builder = _builder()
    stream: KStream = builder.stream("in")
    use(builder, stream)  # type: ignore[operator]
    stream.group_by(lambda k, v: v).count(store="counts")
    with pytest.raises(TopologyError, match="counts-repartition"):
        builder.build()


def test_repartition_uses_the_groups_serdes_when_given() -> None:
    builder = KStreamBuilder()
    stream = builder.stream("in", key_serde=serdes.bytes(), value_serde=serdes.json())
    grouped = stream.group_by(lambda k, v: v, key_serde=serdes.string(), value_serde=serdes.string())
    table = grouped.reduce(lambda old, new: new, store="latest")
    table.to_stream().send_to("out")
    sources = {node.topics[0]: node for node in builder.build().nodes if isinstance(node, SourceNode)}
    source = sources["latest-repartition"]
    assert (source.key_serde, source.value_serde) == (serdes.string(), serdes.string())
    assert builder.build().stores[0].value_serde == serdes.string()
