"""Whatever order calls end in, and wherever the task dies: results, state, counts and offsets are those of
the same topology with plain functions.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams import (
    AsyncProcessor,
    AsyncProcessorContext,
    HoppingWindow,
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    SlidingWindow,
    StoreSpec,
    Topology,
    TopologyBuilder,
    TumblingWindow,
    serdes,
)
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing.seeded_caller import SeededCaller
from tests.support.examples import examples
from tests.support.topology.task_on_logs import Logs, TaskOnLogs, Written, log_of

pytestmark = pytest.mark.promise(
    "calls-change-no-result", "threads-are-shared-whole", "processors-forward-in-order"
)

#: Makes ``map_values`` of a stream, by calls or at once.
Mapped = Callable[[Any, Callable[[Any], Any]], Any]


def plain(stream: Any, function: Callable[[Any], Any]) -> Any:
    return stream.map_values(function)


def called(stream: Any, function: Callable[[Any], Any]) -> Any:
    async def call(value: Any) -> Any:
        await asyncio.sleep(hash(repr(value)) % 7 / 100)
        return function(value)

    return stream.map_values_async(call, max_in_flight=3)


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


class Punctuating(Processor):
    """Forwards each record, a count by stream time, and what it holds at the end; its objects change."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.held, self.store = context, [0], context.state_store("seen")
        context.schedule(5)

    def process(self, record: ProcessorRecord) -> None:
        self.held[0] = (self.store.get("n") or 0) + 1
        self.store.put("n", self.held[0])
        self.context.forward(record.key, self.held)
        if record.value == 9:
            self.context.send("sent", b"by", b"name")

    def punctuate(self, stream_time_ms: int) -> None:
        self.context.forward("time", [stream_time_ms, self.store.get("n")])

    def close(self) -> None:
        self.context.forward("end", [self.store.get("n")])


SEEN = StoreSpec(name="seen", key_serde=serdes.string(), value_serde=serdes.json(int))


def stateless(mapped: Mapped) -> Topology:
    b = builder()
    stream = b.stream("in").filter(lambda k, v: v != 3)
    mapped(stream, lambda v: v * 2).filter(lambda k, v: v > 4).send_to("out")
    stream.map_values(lambda v: -v).send_to("out")
    mapped(mapped(stream, lambda v: v + 1).filter(lambda k, v: v != 6), lambda v: [v]).send_to("out")
    return b.build()


def counted_twice(mapped: Mapped) -> Topology:
    b = builder()
    counts = b.stream("in").group_by_key().count(store="first")
    again = mapped(counts.to_stream(), lambda n: n + 1).group_by_key(value_serde=serdes.int64())
    again.count(store="second").to_stream().send_to("out", value_serde=serdes.int64())
    counts.to_stream().send_to("counts", value_serde=serdes.int64())
    return b.build()


def aggregated_in_place(mapped: Mapped) -> Topology:
    def add(key: Any, value: Any, total: list[int]) -> list[int]:
        total.append(value)
        return total

    b = builder()
    spec = StoreSpec(name="lists", key_serde=serdes.string(), value_serde=serdes.json(), cached=False)
    lists = b.stream("in").group_by_key().aggregate(list, add, store=spec)
    mapped(lists.to_stream(), len).send_to("out")
    lists.to_stream().send_to("lists")
    return b.build()


def changed_in_place(mapped: Mapped) -> Topology:
    def grow(values: list[int]) -> list[int]:
        values.append(len(values))
        return values

    b = builder()
    lists = b.stream("in").map_values(lambda v: [v])
    lists.send_to("raw")
    mapped(lists, lambda values: [*values, "seen"]).send_to("seen")
    mapped(lists.map_values(grow), grow).send_to("out")
    return b.build()


def windowed_below(mapped: Mapped) -> Topology:
    b = builder()
    grouped = mapped(b.stream("in"), lambda v: v + 1).group_by_key(value_serde=serdes.json())
    windows = grouped.windowed_by(TumblingWindow(size_ms=4, grace_ms=2)).count(store="windows")
    windows.suppress().to_stream().send_to("out", value_serde=serdes.int64())
    return b.build()


def windowed_above(mapped: Mapped) -> Topology:
    b = builder()
    windows = b.stream("in").group_by_key().windowed_by(HoppingWindow(size_ms=6, advance_ms=3, grace_ms=1))
    stream = mapped(windows.count(store="windows").suppress().to_stream(), lambda n: n * 10)
    stream.send_to("out", value_serde=serdes.json())
    return b.build()


def joined(mapped: Mapped) -> Topology:
    b = builder()
    table = b.table("other", store="table")
    stream = b.stream("in")
    mapped(stream.left_join(table, lambda v, t: [v, t]), lambda v: v[::-1]).send_to("out")
    return b.build()


def joined_below(mapped: Mapped) -> Topology:
    b = builder()
    left = mapped(b.stream("in"), lambda v: v + 100).with_window(SlidingWindow(size_ms=3, grace_ms=2))
    right = b.stream("other").with_window(SlidingWindow(size_ms=2, grace_ms=2))
    left.outer_join(right, lambda one, two: [one, two], value_serde=serdes.json(), name="pairs").send_to(
        "out"
    )
    return b.build()


def processed_above(mapped: Mapped) -> Topology:
    b = builder()
    held = b.stream("in").process(Punctuating, SEEN)
    mapped(held, lambda v: [*v, "called"]).send_to(
        "out", key_serde=serdes.string(), value_serde=serdes.json()
    )
    held.send_to("held", key_serde=serdes.string(), value_serde=serdes.json())
    return b.build()


def processed_below(mapped: Mapped) -> Topology:
    b = builder()
    held = mapped(b.stream("in"), lambda v: v).process(Punctuating, SEEN)
    held.send_to("out", key_serde=serdes.string(), value_serde=serdes.json())
    return b.build()


def timers_on_both_sides(mapped: Mapped) -> Topology:
    b = builder()
    windows = b.stream("in").group_by_key().windowed_by(HoppingWindow(size_ms=6, advance_ms=3, grace_ms=1))
    final = windows.count(store="windows").suppress().to_stream().map(lambda w, n: (w.key, n))
    held = mapped(final, lambda n: n * 10).process(Punctuating, SEEN)
    held.send_to("out", key_serde=serdes.string(), value_serde=serdes.json())
    return b.build()


class Spreading(Processor):
    """Forwards each record several times, by all the ways out; what it has forwarded it changes."""

    threads = True

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: ProcessorRecord) -> None:
        spread(self.context, record)

    def close(self) -> None:
        self.context.forward("end", [self.context.timestamp_ms])


class AwaitingSpread(AsyncProcessor):
    """Does the same behind a wait, and between its parts."""

    def init(self, context: AsyncProcessorContext) -> None:
        self.context = context

    async def process(self, record: ProcessorRecord) -> None:
        await asyncio.sleep(hash(repr(record.value)) % 7 / 100)
        spread(self.context, record)
        await asyncio.sleep(0.01)

    def close(self) -> None:
        self.context.forward("end", [self.context.timestamp_ms])


def spread(context: ProcessorContext | AsyncProcessorContext, record: ProcessorRecord) -> None:
    held = [record.value]
    context.forward(record.key, held)
    held.append(-record.value)
    context.forward("named", held, to="spread", timestamp_ms=record.timestamp_ms + record.value % 3)
    if record.value % 4 == 1:
        context.send("sent", b"by", b"%d" % record.value)
    held.append(context.offset)
    if record.value % 2:
        context.forward(record.key, held, to="counted", headers=[*context.headers, ("odd", b"1")])


def spread_between_stores(mapped: Mapped) -> Topology:
    """A processor with calls below a table and a call, above processors with stores and timers."""
    b = builder()
    counts = b.stream("in").group_by_key().count(store="counts").to_stream()
    b.stream("in").send_to("raw")
    source = mapped(counts, lambda n: n + 1).select_key(lambda k, v: k)._known.node
    low: TopologyBuilder = b._graph.topology
    add_spread(low, mapped, source)
    low.add_processor("counted", Punctuating, "p").add_state_store(SEEN, "counted")
    add_sinks(low)
    return b.build()


class Passing(Processor):
    """Forwards each record."""

    threads = True

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: ProcessorRecord) -> None:
        self.context.forward(record.key, record.value, to="held")


def spread_alone(mapped: Mapped) -> Topology:
    """Processors one below the other, all of them with calls, above a table."""
    b = builder()
    low: TopologyBuilder = b._graph.topology
    stream = b.stream("in")
    add_spread(low, mapped, stream._known.node)
    low.add_processor("counted", Passing, "p")
    add_sinks(low)
    windows = mapped(stream, lambda v: v).group_by_key().windowed_by(TumblingWindow(size_ms=4, grace_ms=2))
    windows.count(store="windows").suppress().to_stream().send_to("out", value_serde=serdes.int64())
    return b.build()


def add_spread(low: TopologyBuilder, mapped: Mapped, parent: str) -> None:
    if mapped is plain:
        low.add_processor("p", Spreading, parent)
    else:
        low.add_processor_async("p", AwaitingSpread, parent, max_in_flight=3)


def add_sinks(low: TopologyBuilder) -> None:
    for name, parent in (("spread", "p"), ("held", "counted")):
        low.add_sink(name, name, parent, key_serde=serdes.string(), value_serde=serdes.json())


TOPOLOGIES = [
    spread_alone,
    spread_between_stores,
    timers_on_both_sides,
    stateless,
    counted_twice,
    aggregated_in_place,
    changed_in_place,
    windowed_below,
    windowed_above,
    joined,
    joined_below,
    processed_above,
    processed_below,
]


def by_topic(written: list[Written]) -> dict[str, list[Written]]:
    topics = defaultdict(list)
    for record in written:
        topics[record.topic].append(record)
    return dict(topics)


def held(task: TaskOnLogs) -> dict[str, Any]:
    return {name: list(store.all()) for name, store in task.stores().items()}


def logs_of(topology: Topology, rng: random.Random) -> Logs:
    logs = {}
    for topic in topology.subtopologies()[0].source_topics:
        for number in range(2 if topic == "in" else 1):
            partition = TopicPartition(topic, number)
            time_ms, entries = 0, []
            for _ in range(rng.randint(0, 12)):
                time_ms = max(0, time_ms + rng.randint(-3, 5))
                entries.append((rng.choice([b"a", b"b", b"c"]), b"%d" % rng.randint(0, 9), time_ms))
            logs[partition] = log_of(partition, entries)
    return logs


def assert_same(by_calls: TaskOnLogs, at_once: TaskOnLogs, first: dict[TopicPartition, int]) -> None:
    """Run two tasks over two runs, and compare all that they leave behind.

    :param first: the stop offsets of the first run.
    """
    for task in (at_once, by_calls):
        task.run(first)
        task.run()
    assert by_topic(by_calls.outputs) == by_topic(at_once.outputs)
    assert held(by_calls) == held(at_once)
    assert by_calls.positions == at_once.positions
    one, other = by_calls.progress, at_once.progress
    assert (one.records_in, one.records_out, one.records_dropped) == (
        other.records_in,
        other.records_out,
        other.records_dropped,
    )
    assert one.partition_times == other.partition_times
    assert one.last_records == other.last_records
    assert one.counts is not None
    assert other.counts is not None
    assert (one.counts.read, one.counts.written, one.counts.by_rule) == (
        other.counts.read,
        other.counts.written,
        other.counts.by_rule,
    )


def of_plain_functions(mapped: Mapped) -> Topology:
    b = builder()
    even, rest = b.stream("in").branch(lambda k, v: v % 2 == 0, lambda k, v: v < 9)
    even.flat_map(lambda k, v: ((k, [v, n]) for n in range(v % 3))).send_to("out")
    words = rest.filter_not(lambda k, v: v == 5).map(lambda k, v: (k, [v])).peek(lambda k, v: None)
    words.flat_map_values(iter).select_key(lambda k, v: f"{k}{v}").send_to("out")
    words.foreach(lambda k, v: None)
    counts = even.group_by_key().count(store="counts")
    doubled = counts.to_stream().map_values(lambda n: 2 * n)
    doubled.left_join(counts, lambda n, now: [n, now], value_serde=serdes.int64()).send_to("again")
    return b.build()


def settings_drawn(rng: random.Random) -> dict[str, object]:
    return {
        "buffered.records.per.partition": rng.randint(1, 3),
        "commit.every.records": rng.choice([0, 1, 3, 5]),
        "max.waiting.results": rng.choice([0, 1, 2, 7]),
    }


@pytest.mark.parametrize("topology", [*TOPOLOGIES, of_plain_functions])
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_task_gives_the_same_when_its_plain_functions_run_on_several_threads(
    topology: Callable[[Mapped], Topology], seed: int
) -> None:
    rng = random.Random(seed)
    logs, chosen = logs_of(topology(plain), rng), settings_drawn(rng)
    on_one = TaskOnLogs(topology=topology(plain), logs=logs, rng=random.Random(seed), settings=chosen)
    on_three = TaskOnLogs(
        topology=topology(plain),
        logs=logs,
        rng=rng,
        crashes=rng.randint(0, 4),
        settings={**chosen, "num.threads.per.task": 3, "num.stream.threads": 3},
        make_caller=lambda async_nodes: SeededCaller(async_nodes, seed=rng.randint(0, 2**32)),
    )
    assert_same(on_three, on_one, {p: rng.randint(0, len(log)) for p, log in logs.items()})


@pytest.mark.parametrize("topology", TOPOLOGIES)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_task_gives_what_plain_functions_give_when_calls_end_in_any_order_and_it_dies(
    topology: Callable[[Mapped], Topology], seed: int
) -> None:
    rng = random.Random(seed)
    logs = logs_of(topology(plain), rng)
    chosen = settings_drawn(rng)
    first = {p: rng.randint(0, len(log)) for p, log in logs.items()}
    at_once = TaskOnLogs(topology=topology(plain), logs=logs, rng=random.Random(seed), settings=chosen)
    by_calls = TaskOnLogs(
        topology=topology(called),
        logs=logs,
        rng=rng,
        crashes=rng.randint(0, 4),
        settings=chosen,
        make_caller=lambda async_nodes: SeededCaller(async_nodes, seed=rng.randint(0, 2**32)),
    )
    assert_same(by_calls, at_once, first)
