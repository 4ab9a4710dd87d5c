"""The same slice gives byte-equal outputs in the same order: whatever the fetches, whichever points are
committed, and wherever it crashes.

One topology per operator with more than one input, and per operator that depends on time or caching. Cached
results are emitted at points counted in records; that is why they pass, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams import (
    HoppingWindow,
    KStream,
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    SessionWindow,
    SlidingWindow,
    StoreSpec,
    Topology,
    TopologyBuilder,
    TumblingWindow,
    serdes,
)
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.runtime import stream_task
from tests.support.examples import examples
from tests.support.topology.task_on_logs import Logs, TaskOnLogs, log_of

pytestmark = pytest.mark.promise("same-slice-same-output")

A, B = TopicPartition("a", 0), TopicPartition("b", 0)

entries = st.lists(
    st.tuples(
        st.sampled_from([b"x", b"y", b"z", None]),
        st.sampled_from([b"1", b"2", b"30", None]),
        st.integers(0, 60),
    ),
    max_size=25,
)


def builder_of() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def several_topics() -> Topology:
    builder = builder_of()
    builder.stream("a", "b").send_to("out")
    return builder.build()


def merged() -> Topology:
    builder = builder_of()
    right: KStream = builder.stream("b").map_values(lambda v: {"b": v})
    builder.stream("a").map_values(lambda v: [v]).merge(right).send_to("out")
    return builder.build()


def table_joined(cached: bool, left: bool) -> Topology:
    builder = builder_of()
    spec = StoreSpec(name="t", key_serde=serdes.string(), value_serde=serdes.json(), cached=cached)
    table = builder.table("b", store=spec)
    stream = builder.stream("a")
    (stream.left_join if left else stream.join)(table, lambda v, t: [v, t]).send_to("out")
    table.to_stream().send_to("changes")
    return builder.build()


def aggregated(cached: bool) -> Topology:
    builder = builder_of()
    spec = StoreSpec(name="s", key_serde=serdes.string(), value_serde=serdes.json(), cached=cached)
    streams = builder.stream("a").merge(builder.stream("b"))
    streams.group_by_key().aggregate(list, lambda k, v, all_: [*all_, v], store=spec).to_stream().send_to(
        "out"
    )
    return builder.build()


def windowed(window: TumblingWindow | HoppingWindow | SessionWindow, cached: bool) -> Topology:
    """Updates and final values of the same windows."""
    builder = builder_of()
    spec = StoreSpec(name="w", key_serde=serdes.string(), value_serde=serdes.json(), cached=cached)
    streams = builder.stream("a").merge(builder.stream("b"))
    sums = streams.group_by_key().windowed_by(window).reduce(lambda one, other: one + other, store=spec)
    sums.to_stream().send_to("updates")
    sums.suppress().to_stream().send_to("out")
    return builder.build()


def windowed_joined(call: str, at_run_end: Any) -> Topology:
    builder = builder_of()
    left = builder.stream("a").with_window(SlidingWindow(size_ms=7, grace_ms=9, at_run_end=at_run_end))
    right = builder.stream("b").with_window(SlidingWindow(size_ms=4, grace_ms=20, at_run_end=at_run_end))
    getattr(left, call)(right, lambda l_value, r_value: [l_value, r_value], name="j").send_to("out")
    return builder.build()


def batched() -> Topology:
    builder = builder_of()
    streams = builder.stream("a", "b").filter(lambda k, v: v is not None)
    streams.map_batches(lambda batch: batch.slice(0, 2), batch_size=3).send_to("out")
    return builder.build()


class Totals(Processor):
    """Two parents, a store, punctuation by stream time, commits on request."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.totals = context, context.state_store("totals")
        context.schedule(7)
        context.schedule(10, callback=lambda time_ms: context.forward("ten", time_ms))

    def process(self, record: ProcessorRecord) -> None:
        key = record.key or "none"
        self.totals.put(key, (self.totals.get(key) or 0) + (record.value or 0))
        self.context.forward(key, [self.context.stream_time_ms, self.context.offset])
        if record.value == 30:
            self.context.commit()

    def punctuate(self, stream_time_ms: int) -> None:
        for key, value in self.totals.all():
            self.context.forward(key, value)
            self.totals.delete(key)

    def close(self) -> None:
        self.context.forward("last", self.totals.approximate_count())


def processed() -> Topology:
    string, json = serdes.string(), serdes.json()
    return (
        TopologyBuilder()
        .add_source("left", "a", key_serde=string, value_serde=json)
        .add_source("right", "b", key_serde=string, value_serde=json)
        .add_state_store(StoreSpec(name="totals", key_serde=string, value_serde=json))
        .add_processor("totals", Totals, "left", "right", stores=("totals",))
        .add_sink("out", "out", "totals", key_serde=string, value_serde=json)
        .build()
    )


TOPOLOGIES: dict[str, Callable[[], Topology]] = {
    "several topics": several_topics,
    "merge": merged,
    "table join": lambda: table_joined(cached=False, left=False),
    "table left join": lambda: table_joined(cached=False, left=True),
    "cached table join": lambda: table_joined(cached=True, left=False),
    "aggregate": lambda: aggregated(cached=False),
    "cached aggregate": lambda: aggregated(cached=True),
    "tumbling windows": lambda: windowed(TumblingWindow(size_ms=10, grace_ms=3), cached=False),
    "cached hopping windows": lambda: windowed(
        HoppingWindow(size_ms=10, advance_ms=4, grace_ms=0, at_run_end="flush"), cached=True
    ),
    "sessions": lambda: windowed(SessionWindow(gap_ms=4, grace_ms=2, at_run_end="flush"), cached=False),
    "cached sessions": lambda: windowed(SessionWindow(gap_ms=4, grace_ms=0), cached=True),
    "processor": processed,
    "map_batches": batched,
    **{
        f"{call}, {end}": partial(windowed_joined, call, end)
        for call in ("join", "join_prior", "left_join", "outer_join")
        for end in ("hold", "flush")
    },
}


def outputs_of(topology: Topology, logs: Logs, case: Any, **settings_: object) -> TaskOnLogs:
    seed, crashes = case
    task = TaskOnLogs(
        topology=topology, logs=logs, rng=random.Random(seed), crashes=crashes, settings=settings_
    )
    task.run()
    return task


@pytest.mark.parametrize("name", TOPOLOGIES)
@settings(max_examples=examples(60), deadline=None)
@given(
    a=entries,
    b=entries,
    buffered=st.integers(1, 6),
    every=st.integers(1, 9),
    clock_decides=st.booleans(),
    cases=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 3)), min_size=2, max_size=2),
)
def test_outputs_are_byte_equal_when_fetches_commits_and_crashes_differ(
    name: str, a: Any, b: Any, buffered: int, every: int, clock_decides: bool, cases: list[tuple[int, int]]
) -> None:
    logs = {A: log_of(A, a), B: log_of(B, b)}
    chosen = {
        "buffered.records.per.partition": buffered,
        "commit.every.records": 0 if clock_decides else every,
    }
    with (
        patch.object(stream_task, "CACHED_COMMIT_EVERY_RECORDS", every),
        patch.object(stream_task, "UNDRAINED_CHANGES", 4),
    ):
        first, second = (outputs_of(TOPOLOGIES[name](), logs, case, **chosen) for case in cases)
    assert first.outputs == second.outputs
    assert first.positions == second.positions == {A: len(a), B: len(b)}
    assert first.progress == second.progress
    for task in (first, second):
        for name, restored in task.stores().items():
            assert list(restored.all()) == list(task.live[name].all()), "a store is the fold of its changelog"
            assert list(restored.all()) == list(first.live[name].all())
