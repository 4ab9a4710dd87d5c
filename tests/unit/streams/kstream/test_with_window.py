from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStream,
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    SlidingWindow,
    TopologyError,
    TumblingWindow,
    serdes,
)
from tests.support.topology.bound_topology import BoundTopology, Output

WINDOW = SlidingWindow(size_ms=10)


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


class Doubling(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: ProcessorRecord) -> None:
        self.context.forward(record.key, 2 * record.value)


#: What gives a stream of the same records or of new ones made of each.
OPERATORS: dict[str, Callable[[KStream], KStream]] = {
    "filter": lambda stream: stream.filter(lambda k, v: v != 2),
    "filter_not": lambda stream: stream.filter_not(lambda k, v: v == 2),
    "peek": lambda stream: stream.peek(lambda k, v: None),
    "select_key": lambda stream: stream.select_key(lambda k, v: k * 2),
    "map": lambda stream: stream.map(lambda k, v: (k * 2, -v)),
    "map_values": lambda stream: stream.map_values(lambda v: -v),
    "flat_map": lambda stream: stream.flat_map(lambda k, v: [(k, v)] * 2),
    "flat_map_values": lambda stream: stream.flat_map_values(lambda v: [v, -v]),
    "branch": lambda stream: stream.branch(lambda k, v: v == 2, lambda k, v: True)[1],
    "process": lambda stream: stream.process(Doubling),
}

#: What brings streams together or begins a new one.
OTHERS: dict[str, Callable[[KStreamBuilder, KStream], KStream]] = {
    "merge": lambda builder, stream: stream.merge(builder.stream("other")),
    "through": lambda builder, stream: stream.through("mid"),
    "join": lambda builder, stream: stream.join(builder.table("table"), lambda a, b: [a, b]),
    "left_join": lambda builder, stream: stream.left_join(builder.table("table"), lambda a, b: [a, b]),
    "group_by_key": lambda builder, stream: stream.group_by_key().count().to_stream(),
    "group_by": lambda builder, stream: stream.group_by(lambda k, v: k).count().to_stream(),
}


def _outputs(make: Callable[[KStreamBuilder, KStream], KStream], *, windowed: bool) -> list[Output]:
    builder = _builder()
    stream = builder.stream("in")
    make(builder, stream.with_window(WINDOW) if windowed else stream).send_to("out")
    bound = BoundTopology(builder.build())
    for topic in ("table", "other"):
        if any(topic in node.topics for node in bound.topology.nodes if hasattr(node, "topics")):
            bound.pipe(topic, "a", "t", timestamp_ms=1)
    for value in (1, 2, 3):
        bound.pipe("in", "a", value, timestamp_ms=value)
    bound.flush()
    return bound.read("out")


@pytest.mark.parametrize("operator", [*OPERATORS, *OTHERS])
def test_operator_gives_the_same_when_the_stream_has_a_window(operator: str) -> None:
    def make(builder: KStreamBuilder, stream: KStream) -> KStream:
        return OPERATORS[operator](stream) if operator in OPERATORS else OTHERS[operator](builder, stream)

    plain = _outputs(make, windowed=False)
    assert plain
    assert _outputs(make, windowed=True) == plain


@pytest.mark.parametrize("operator", [*OPERATORS, *OTHERS])
def test_stream_is_a_plain_one_when_an_operator_made_it(operator: str) -> None:
    builder = _builder()
    stream = builder.stream("in").with_window(WINDOW)
    made = OPERATORS[operator](stream) if operator in OPERATORS else OTHERS[operator](builder, stream)
    assert type(made) is KStream


@pytest.mark.parametrize("call", ["join", "left_join", "outer_join", "join_prior"])
@pytest.mark.parametrize("side", ["it is called on", "it is given"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_join_of_streams_is_refused_by_name_when_an_operator_stands_behind_the_window(
    operator: str, side: str, call: str
) -> None:
    builder = _builder()
    stream: Any = OPERATORS[operator](builder.stream("left").with_window(WINDOW))
    other: Any = builder.stream("right").with_window(WINDOW)
    sides = (stream, other) if side == "it is called on" else (other, stream)
    with pytest.raises(TopologyError) as refused:
        getattr(sides[0], call)(sides[1], lambda a, b: [a, b])
    assert f"{call} at {__file__}:" in refused.value.cause
    assert f"the one {side} has lost its window: no operator keeps one" in refused.value.cause
    assert f"right before the join: stream.filter(...).with_window(window).{call}(...)" in refused.value.fix


@pytest.mark.parametrize("operator", OPERATORS)
def test_window_is_that_of_the_results_when_it_is_given_behind_an_operator(operator: str) -> None:
    builder = _builder()
    stream = OPERATORS[operator](builder.stream("left")).with_window(WINDOW)
    stream.join(builder.stream("right").with_window(WINDOW), lambda a, b: [a, b]).send_to("out")
    bound = BoundTopology(builder.build())
    bound.pipe("left", "a", 1, timestamp_ms=100)
    for key in ("a", "aa"):
        bound.pipe("right", key, "r", timestamp_ms=110)
        bound.pipe("right", key, "late", timestamp_ms=111)
    seen = bound.read("out")
    assert seen
    assert {output.value[1] for output in seen} == {"r"}


def test_stream_itself_has_no_window_when_another_was_made_of_it() -> None:
    builder = _builder()
    stream = builder.stream("left")
    stream.with_window(WINDOW)
    with pytest.raises(TopologyError, match="has no window"):
        other: Any = builder.stream("right").with_window(WINDOW)
        joiner: Any = max
        stream.join_prior(other, joiner)


def test_last_window_counts_when_a_stream_was_given_two() -> None:
    builder = _builder()
    left = builder.stream("left").with_window(WINDOW).with_window(SlidingWindow(size_ms=100))
    left.join(builder.stream("right").with_window(WINDOW), lambda a, b: [a, b]).send_to("out")
    bound = BoundTopology(builder.build())
    bound.pipe("left", "a", 1, timestamp_ms=100)
    bound.pipe("right", "a", 2, timestamp_ms=200)
    assert bound.read("out") == [Output("a", [1, 2], 200)]


@pytest.mark.parametrize("window", [TumblingWindow(size_ms=10), 10, None])
def test_window_is_refused_when_it_is_not_a_sliding_one(window: Any) -> None:
    with pytest.raises(
        TopologyError, match=rf"is given a {type(window).__name__}, expected a Slid"
    ) as caught:
        _builder().stream("in").with_window(window)
    assert caught.value.cause.startswith(f"with_window at {__file__}:")
    assert caught.value.fix


def test_serdes_of_a_table_are_refused_when_a_windowed_stream_joins_it() -> None:
    builder = _builder()
    stream: Any = builder.stream("in").with_window(WINDOW)
    table = builder.table("table", store="table")
    for option in ("key_serde", "other_value_serde"):
        with pytest.raises(TopologyError, match=r"is given serdes for the table 'table'") as caught:
            stream.join(table, lambda a, b: [a, b], **{option: serdes.string()})
        assert f"{__file__}:" in caught.value.cause


@pytest.mark.parametrize("call", ["outer_join", "join_prior"])
def test_joins_that_a_table_has_are_named_when_a_stream_is_given_one_for_another(call: str) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    stream: Any = builder.stream("in")
    with pytest.raises(TopologyError, match=rf"{call} at .*:\d+ joins a stream with a table") as caught:
        getattr(stream, call)(builder.table("table"), lambda one, other: one)
    assert "to_table()" in caught.value.fix
    with pytest.raises(TopologyError, match="joins two streams, and the one it is called on has no window"):
        getattr(stream, call)(builder.stream("other"), lambda one, other: one)
