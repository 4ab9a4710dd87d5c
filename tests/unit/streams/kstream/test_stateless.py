from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import KStream, KStreamBuilder, TopologyError, serdes
from tests.support.topology.bound_topology import BoundTopology, Output

Build = Callable[[KStream], KStream]


def _run(build: Build, *records: tuple[Any, Any]) -> list[tuple[Any, Any]]:
    """Run (key, value) records through ``build`` and return what comes out."""
    builder = KStreamBuilder(default_key_serde=serdes.json(), default_value_serde=serdes.json())
    build(builder.stream("in")).send_to("out")
    bound = BoundTopology(builder.build())
    for key, value in records:
        bound.pipe("in", key, value)
    return [(output.key, output.value) for output in bound.read("out")]


def test_filter_keeps_records_when_predicate_holds() -> None:
    result = _run(lambda s: s.filter(lambda k, v: k == "a" and v > 1), ("a", 1), ("a", 2), ("b", 3), ("a", 4))
    assert result == [("a", 2), ("a", 4)]


def test_map_replaces_key_and_value_when_called() -> None:
    assert _run(lambda s: s.map(lambda k, v: (v, [k])), ("a", 1), ("b", 2)) == [(1, ["a"]), (2, ["b"])]


def test_map_values_keeps_the_key_when_value_is_replaced() -> None:
    assert _run(lambda s: s.map_values(lambda v: v * 2), ("a", 1), (None, 2)) == [("a", 2), (None, 4)]


def test_map_values_sees_none_when_the_record_is_a_tombstone() -> None:
    assert _run(lambda s: s.map_values(lambda v: "gone" if v is None else v), ("a", None)) == [("a", "gone")]


def test_flat_map_gives_any_number_of_records_when_called() -> None:
    result = _run(
        lambda s: s.flat_map(lambda k, v: ((k * n, n) for n in range(v))), ("a", 3), ("b", 0), ("c", 1)
    )
    assert result == [("", 0), ("a", 1), ("aa", 2), ("", 0)]


def test_flat_map_values_keeps_the_key_when_values_multiply() -> None:
    result = _run(lambda s: s.flat_map_values(str.split), ("a", "x y"), ("b", ""), ("c", "z"))
    assert result == [("a", "x"), ("a", "y"), ("c", "z")]


def test_branch_takes_the_first_match_when_several_hold() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.json(), default_value_serde=serdes.json())
    small, even = builder.stream("in").branch(lambda k, v: v < 10, lambda k, v: v % 2 == 0)
    small.send_to("small")
    even.map_values(lambda v: -v).send_to("even")
    bound = BoundTopology(builder.build())
    for value in (1, 2, 12, 13, 3, 14):
        bound.pipe("in", "k", value)
    assert [output.value for output in bound.read("small")] == [1, 2, 3]
    assert [output.value for output in bound.read("even")] == [-12, -14]


def test_branch_drops_its_records_when_nobody_uses_it() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.json(), default_value_serde=serdes.json())
    _, rest = builder.stream("in").branch(lambda k, v: v < 10, lambda k, v: True)
    rest.send_to("rest")
    bound = BoundTopology(builder.build())
    for value in (1, 10):
        bound.pipe("in", "k", value)
    assert [output.value for output in bound.read("rest")] == [10]


def test_every_use_sees_each_record_when_a_stream_is_used_twice() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.json(), default_value_serde=serdes.json())
    stream = builder.stream("in")
    stream.map_values(lambda v: v + 1).send_to("one")
    stream.filter(lambda k, v: v > 1).send_to("two")
    bound = BoundTopology(builder.build())
    bound.pipe("in", "a", 1)
    bound.pipe("in", "a", 2)
    assert [output.value for output in bound.read("one")] == [2, 3]
    assert [output.value for output in bound.read("two")] == [2]


def test_timestamp_is_the_records_when_it_is_passed_on() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.json(), default_value_serde=serdes.json())
    builder.stream("in").through("mid").flat_map_values(lambda v: [v, v]).send_to("out")
    bound = BoundTopology(builder.build())
    bound.pipe("in", "a", 1, timestamp_ms=7)
    assert bound.read("mid") == [Output("a", 1, 7)]
    assert bound.read("out") == [Output("a", 1, 7), Output("a", 1, 7)]


@pytest.mark.parametrize(
    "mistake",
    [
        lambda s: s.filter(True),
        lambda s: s.map(None),
        lambda s: s.map_values("x"),
        lambda s: s.flat_map(1),
        lambda s: s.flat_map_values([]),
        lambda s: s.branch(),
        lambda s: s.branch(lambda k, v: True, 1),
        lambda s: s.group_by("carrier"),
        lambda s: s.group_by_key().reduce(None),
        lambda s: s.group_by_key().aggregate(0, lambda k, v, a: a),
        lambda s: s.process(None),
    ],
)
def test_mistake_is_refused_with_the_users_line_when_no_function_is_given(
    mistake: Callable[[KStream], Any],
) -> None:
    stream = KStreamBuilder(default_key_serde=serdes.json(), default_value_serde=serdes.json()).stream("in")
    with pytest.raises(TopologyError) as caught:
        mistake(stream)
    assert f"{__file__}:" in caught.value.cause
    assert caught.value.fix
