"""A process dies at every port call of three runs whose calls are under way, or whose records are parked:
what stays in Kafka is what the same topology leaves with plain functions, undisturbed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from airflow_kstreams.streams import (
    AsyncProcessor,
    AsyncProcessorContext,
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    RetryPolicy,
    SlidingWindow,
    StoreSpec,
    Topology,
    TumblingWindow,
    serdes,
)
from tests.simulation.calling_runs import Arrivals, CallingRuns, Left
from tests.simulation.crash_points import STEPS, Calls, deaths

pytestmark = pytest.mark.promise(
    "calls-change-no-result", "processors-forward-in-order", "retries-keep-order"
)

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


class Spread(Processor):
    """Forwards each record twice, and sends some by name."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: ProcessorRecord) -> None:
        spread(self.context, record)


class AwaitingSpread(AsyncProcessor):
    """Does the same, and waits before and between."""

    def init(self, context: AsyncProcessorContext) -> None:
        self.context = context

    async def process(self, record: ProcessorRecord) -> None:
        await asyncio.sleep(record.value % 3 / 100)
        spread(self.context, record)
        await asyncio.sleep(0.01)


def spread(context: ProcessorContext | AsyncProcessorContext, record: ProcessorRecord) -> None:
    context.forward(record.key, record.value, timestamp_ms=record.timestamp_ms + 1)
    context.forward(record.key, -record.value)
    if record.value % 2:
        context.send("out", record.key, 100, key_serde=serdes.string(), value_serde=serdes.json())


def processed(mapped: Mapped) -> Topology:
    """A processor with calls below a table."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    counts = builder.stream("in").group_by_key().count(store="first").to_stream()
    forwarded = (
        counts.process(Spread)
        if mapped is plain
        else counts.process_async(AwaitingSpread, max_in_flight=2, name="spread")
    )
    forwarded.send_to("out", key_serde=serdes.string(), value_serde=serdes.json())
    return builder.build()


@pytest.mark.parametrize(
    "topology",
    [
        stateless,
        pytest.param(processed, marks=pytest.mark.prove),
        counted_twice,
        pytest.param(windowed, marks=pytest.mark.prove),
        pytest.param(joined, marks=pytest.mark.prove),
    ],
)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("takes_effect", [False, True], ids=["before", "after"])
def test_runs_leave_what_plain_functions_leave_when_a_process_dies_at_any_port_call(
    topology: Callable[[Mapped], Topology], takes_effect: bool, step: int
) -> None:
    expected = CallingRuns(lambda: topology(plain), ARRIVALS, Calls()).run()
    assert any(expected.outputs.values())
    calls = Calls()
    assert CallingRuns(lambda: topology(called), ARRIVALS, calls).run() == expected
    assert len(calls.made) > 100
    for number, made in deaths(calls.made, step=step, takes_effect=takes_effect):
        crashing = Calls(last=number, takes_effect=takes_effect)
        left = CallingRuns(lambda: topology(called), ARRIVALS, crashing).run()
        assert left == expected, f"no. {number}, {made}"


class Service:
    """Fails for some counts in some runs.

    :ivar away: the counts for which it fails in the run under way.
    :ivar calls: what it was called with, by the processes that called it.
    """

    def __init__(self) -> None:
        self.away: frozenset[tuple[str, int]] = frozenset()
        self.calls: list[list[tuple[str, int]]] = [[]]

    def answer(self, value: list[Any]) -> list[Any]:
        key, count = value
        self.calls[-1].append((key, count))
        if (key, count) in self.away:
            raise ConnectionError
        return [key, count + 1]

    async def ask(self, value: list[Any]) -> list[Any]:
        await asyncio.sleep(value[1] % 3 / 100)
        return self.answer(value)


#: By run. In the second one the partition of ``c`` has nothing new.
AWAY = (
    frozenset({("a", 1), ("b", 1), ("c", 2)}),
    frozenset({("a", 1), ("b", 2), ("c", 2)}),
    frozenset[tuple[str, int]](),
)


def counted_around(service: Service, *, by_calls: bool) -> Topology:
    """count -> call -> count, in one task."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    counted = builder.stream("in").group_by_key()
    first = counted.aggregate(
        lambda: ["", 0], lambda key, value, seen: [key, seen[1] + 1], store="first", value_serde=serdes.json()
    ).to_stream()
    if by_calls:
        retry = RetryPolicy(backoff_ms=100, jitter=0, attempts=100)
        asked = first.map_values_async(
            service.ask, order="key", retry=retry, timeout_ms=5_000, max_in_flight=2, name="ask"
        )
    else:
        asked = first.map_values(service.answer)
    second = StoreSpec(name="second", key_serde=serdes.string(), value_serde=serdes.int64(), cached=False)
    counts = asked.group_by_key(value_serde=serdes.json()).count(store=second)
    counts.to_stream().send_to("out", value_serde=serdes.int64())
    asked.send_to("answers", value_serde=serdes.json())
    return builder.build()


def parked_runs(service: Service, calls: Calls, *, by_calls: bool) -> CallingRuns:
    def topology() -> Topology:
        service.calls.append([])
        return counted_around(service, by_calls=by_calls)

    def before(number: int) -> None:
        service.away = AWAY[number] if by_calls else frozenset()
        runs.kafka.clock.sleep(60)

    runs = CallingRuns(
        topology,
        ARRIVALS,
        calls,
        outputs=("out", "answers"),
        settings={"retry.run.budget.ms": 250},
        before=before,
    )
    return runs


def by_key(left: Left) -> tuple[Mapping[Any, Any], Mapping[Any, Any], Mapping[Any, Any]]:
    """Return what is promised to be the same: the outputs of each key, in order, state, and offsets."""
    outputs = defaultdict(list)
    for (topic, _), records in left.outputs.items():
        for record in records:
            outputs[topic, record[0]].append(record)
    state = {changelog: held for changelog, held in left.state.items() if held}
    return outputs, state, left.committed


def calls_by_key(service: Service) -> dict[str, list[int]]:
    """Return what each key was called with, in order, each once; and check that no process calls anything
    before what comes before it in its key.
    """
    found: dict[str, list[int]] = {}
    for calls in service.calls:
        of_process: dict[str, list[int]] = defaultdict(list)
        for key, count in calls:
            of_process[key].append(count)
            if count not in found.setdefault(key, []):
                found[key].append(count)
        assert all(counts == sorted(counts) for counts in of_process.values())
    return found


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("takes_effect", [False, True], ids=["before", "after"])
def test_runs_leave_what_undisturbed_calls_leave_when_records_are_parked_and_a_process_dies_at_any_port_call(
    takes_effect: bool, step: int
) -> None:
    at_once = Service()
    expected = by_key(parked_runs(at_once, Calls(), by_calls=False).run())
    calls, service = Calls(), Service()
    assert by_key(parked_runs(service, calls, by_calls=True).run()) == expected
    assert calls_by_key(service) == calls_by_key(at_once)
    assert sum(map(len, service.calls)) > sum(map(len, at_once.calls)) + 5
    for number, made in deaths(calls.made, step=step, takes_effect=takes_effect):
        service = Service()
        crashing = Calls(last=number, takes_effect=takes_effect)
        left = parked_runs(service, crashing, by_calls=True).run()
        assert by_key(left) == expected, f"no. {number}, {made}"
        assert calls_by_key(service) == calls_by_key(at_once)
