from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStream,
    KStreamBuilder,
    Processor,
    ProcessorRecord,
    TopologyError,
    serdes,
)
from airflow_kstreams.streams.graph.nodes import SinkNode


class Silent(Processor):
    def process(self, record: ProcessorRecord) -> None:
        """Forward nothing."""


def _stream(builder: KStreamBuilder | None = None) -> KStream:
    builder = builder or KStreamBuilder()
    return builder.stream("in", key_serde=serdes.string(), value_serde=serdes.int64())


def _sink(builder: KStreamBuilder) -> SinkNode:
    (sink,) = (node for node in builder.build().nodes if isinstance(node, SinkNode))
    return sink


def test_serdes_are_inherited_when_key_and_value_are_unchanged() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.bytes(), default_value_serde=serdes.bytes())
    _stream(builder).filter(lambda k, v: True).branch(lambda k, v: True)[0].send_to("out")
    sink = _sink(builder)
    assert (sink.key_serde, sink.value_serde) == (serdes.string(), serdes.int64())


def test_key_serde_is_inherited_when_only_the_value_changed() -> None:
    builder = KStreamBuilder()
    _stream(builder).map_values(str).send_to("out", value_serde=serdes.string())
    sink = _sink(builder)
    assert (sink.key_serde, sink.value_serde) == (serdes.string(), serdes.string())


def test_default_serdes_are_used_when_nothing_is_known() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.json(), default_value_serde=serdes.bytes())
    _stream(builder).map(lambda k, v: (k, v)).send_to("out")
    sink = _sink(builder)
    assert (sink.key_serde, sink.value_serde) == (serdes.json(), serdes.bytes())


def test_given_serdes_win_when_others_are_known() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.json())
    _stream(builder).send_to("out", key_serde=serdes.bytes(), value_serde=serdes.json())
    sink = _sink(builder)
    assert (sink.key_serde, sink.value_serde) == (serdes.bytes(), serdes.json())


def test_stream_through_a_topic_has_its_serdes_when_it_goes_on() -> None:
    builder = KStreamBuilder()
    mapped = _stream(builder).map(lambda k, v: (k, v))
    mapped.through("mid", key_serde=serdes.json(), value_serde=serdes.json()).send_to("out")
    sinks = {node.topic: node for node in builder.build().nodes if isinstance(node, SinkNode)}
    assert sinks["out"].key_serde == serdes.json()


def test_tables_stream_has_the_stores_serdes_when_sent() -> None:
    builder = KStreamBuilder()
    _stream(builder).group_by_key().count(store="counts").to_stream().send_to("out")
    sink = _sink(builder)
    assert (sink.key_serde, sink.value_serde) == (serdes.string(), serdes.int64())


def test_source_is_shared_when_a_topic_is_streamed_twice() -> None:
    builder = KStreamBuilder()
    _stream(builder).send_to("a")
    _stream(builder).send_to("b")
    assert sum(hasattr(node, "topics") for node in builder.build().nodes) == 1


def test_source_is_shared_when_a_through_topic_is_streamed_too() -> None:
    builder = KStreamBuilder()
    _stream(builder).through("mid").send_to("a")
    builder.stream("mid", key_serde=serdes.string(), value_serde=serdes.int64()).send_to("b")
    assert sum(hasattr(node, "topics") for node in builder.build().nodes) == 2


def test_topic_is_refused_when_streamed_with_other_serdes() -> None:
    builder = KStreamBuilder()
    _stream(builder)
    with pytest.raises(
        TopologyError, match=r"topic 'in' is read by two sources.*serdes\.string, serdes\.json"
    ):
        builder.stream("in", key_serde=serdes.string(), value_serde=serdes.json())


MISSING: list[Any] = [
    (lambda: KStreamBuilder().stream("in"), "stream('in')", "key", "stream"),
    (lambda: KStreamBuilder().stream("in", key_serde=serdes.string()), "stream('in')", "value", "stream"),
    (lambda: _stream().map_values(str).send_to("out"), "send_to('out')", "value", "send_to"),
    (lambda: _stream().map(lambda k, v: (v, k)).send_to("out"), "send_to('out')", "key", "send_to"),
    (
        lambda: _stream().flat_map_values(lambda v: [v]).through("out"),
        "through('out')",
        "value",
        "through",
    ),
    (lambda: _stream().process(Silent).send_to("out"), "send_to('out')", "key", "send_to"),
    (lambda: _stream().group_by(lambda k, v: v).count(store="s"), "group_by", "key", "group_by"),
    (
        lambda: _stream().map(lambda k, v: (k, v)).group_by_key(key_serde=serdes.string()).count(store="s"),
        "group_by_key",
        "value",
        "group_by_key",
    ),
    (
        lambda: _stream().group_by_key().aggregate(list, lambda k, v, a: a, store="s"),
        "aggregate",
        "value",
        "aggregate",
    ),
    (
        lambda: _stream().map_values(str).group_by_key().reduce(max, store="s"),
        "reduce",
        "value",
        "reduce",
    ),
]


@pytest.mark.parametrize(("build", "call", "side", "where"), MISSING)
def test_missing_serde_is_refused_with_line_and_argument_when_bytes_are_needed(
    build: object, call: str, side: str, where: str
) -> None:
    with pytest.raises(TopologyError) as caught:
        build()  # type: ignore[operator]
    assert caught.value.cause.startswith(f"{call} at {__file__}:")
    assert f"needs a {side} serde" in caught.value.cause
    assert caught.value.fix == f"pass {side}_serde= to {where}, or set default_{side}_serde"


def test_missing_serde_names_the_operator_when_one_changed_the_value() -> None:
    with pytest.raises(TopologyError, match=r"none is known after map_values at .*test_serde_flow\.py:\d+"):
        _stream().map_values(str).filter(lambda k, v: True).send_to("out")
