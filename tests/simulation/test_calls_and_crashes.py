"""A process dies at every port call of three runs whose calls are under way: what stays in Kafka is what the
same topology leaves with plain functions, undisturbed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, SlidingWindow, Topology, TumblingWindow, serdes
from tests.simulation.calling_runs import Arrivals, CallingRuns
from tests.simulation.crash_points import Calls

Mapped = Callable[[Any, Callable[[Any], Any]], Any]

#: Two partitions; in the second run one of them has nothing new.
ARRIVALS: Arrivals = {
    "in": [
        [
            (0, b"a", b"1", 10),
            (0, b"b", b"2", 20),
            (0, b"a", b"3", 30),
            (1, b"c", b"4", 15),
            (1, b"c", b"5", 25),
        ],
        [(0, b"b", b"6", 40), (0, b"a", b"7", 50), (0, b"b", b"8", 60)],
        [(0, b"a", b"9", 70), (1, b"c", b"10", 80), (1, b"d", b"11", 90)],
    ]
}


def plain(stream: Any, function: Callable[[Any], Any]) -> Any:
    return stream.map_values(function)


def called(stream: Any, function: Callable[[Any], Any]) -> Any:
    async def call(value: Any) -> Any:
        await asyncio.sleep(len(repr(value)) % 3 / 100)
        return function(value)

    return stream.map_values_async(call, max_in_flight=2)


def stateless(mapped: Mapped) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    stream = builder.stream("in")
    mapped(stream.filter(lambda key, value: value != 3), lambda value: value * 10).send_to("out")
    stream.send_to("out")
    return builder.build()


def counted_twice(mapped: Mapped) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    first = builder.stream("in").group_by_key().count(store="first").to_stream()
    second = mapped(first, lambda count: count + 1).group_by_key(value_serde=serdes.int64())
    second.count(store="second").to_stream().send_to("out", value_serde=serdes.int64())
    return builder.build()


def windowed(mapped: Mapped) -> Topology:
    """Calls above windows that are held back until they close, and below them, where timers lead to them."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    values = mapped(builder.stream("in"), lambda value: value + 1).group_by_key()
    windows = values.windowed_by(TumblingWindow(size_ms=20, grace_ms=10))
    sums = windows.aggregate(lambda: 0, lambda key, value, total: total + value, store="sums")
    closed = sums.suppress().to_stream().map(lambda window, total: (window.key, total))
    mapped(closed, lambda total: total * 2).send_to("out")
    return builder.build()


def joined(mapped: Mapped) -> Topology:
    """Calls above a join of a stream with itself, on one of its sides, and below it."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    stream, window = builder.stream("in"), SlidingWindow(size_ms=30, grace_ms=10)
    left = mapped(stream, lambda value: value + 100).with_window(window)
    pairs = left.left_join(stream.with_window(window), lambda a, b: [a, b], name="pairs")
    mapped(pairs.filter(lambda key, pair: pair[1] != 5), lambda pair: [*pair, "called"]).send_to("out")
    return builder.build()


@pytest.mark.parametrize(
    "topology",
    [
        stateless,
        counted_twice,
        pytest.param(windowed, marks=pytest.mark.prove),
        pytest.param(joined, marks=pytest.mark.prove),
    ],
)
@pytest.mark.parametrize("takes_effect", [False, True], ids=["before", "after"])
def test_runs_leave_what_plain_functions_leave_when_a_process_dies_at_any_port_call(
    topology: Callable[[Mapped], Topology], takes_effect: bool
) -> None:
    expected = CallingRuns(lambda: topology(plain), ARRIVALS, Calls()).run()
    assert any(expected.outputs.values())
    calls = Calls()
    assert CallingRuns(lambda: topology(called), ARRIVALS, calls).run() == expected
    assert len(calls.made) > 100
    for number, made in enumerate(calls.made):
        crashing = Calls(last=number, takes_effect=takes_effect)
        left = CallingRuns(lambda: topology(called), ARRIVALS, crashing).run()
        assert left == expected, f"no. {number}, {made}"
