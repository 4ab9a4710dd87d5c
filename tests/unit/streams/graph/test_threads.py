"""Which nodes run on the threads of a task that has several."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_kstreams.streams import KStreamBuilder, Processor, ProcessorRecord, TopologyError, serdes
from airflow_kstreams.streams.graph import stages
from airflow_kstreams.streams.graph.calls import CallOptions
from airflow_kstreams.streams.graph.nodes import Node, ProcessorNode, options_of, traits_of
from airflow_kstreams.streams.graph.stages import on_threads, stages_of

if TYPE_CHECKING:
    import pytest

CALLS = CallOptions(threads=True, implicit=True)


def drawn(rng: random.Random) -> Sequence[Node]:
    """Make nodes in which some may not call, because a store is used on both sides of them."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    counts = builder.stream("in").group_by_key().count(store="counts")
    other = builder.table("other", store="other")
    streams: list[Any] = [counts.to_stream(), builder.stream("more"), other.to_stream()]
    for _ in range(rng.randint(3, 14)):
        stream = rng.choice(streams)
        kind = rng.randrange(4)
        if kind == 0:
            table = rng.choice([counts, other])
            streams.append(stream.left_join(table, lambda one, two: [one, two], value_serde=serdes.json()))
        elif kind == 1:
            streams.append(stream.filter(lambda key, value: True))
        else:
            streams.append(stream.map_values(lambda value: value))
    for stream in streams:
        stream.foreach(lambda key, value: None)
    return builder.build().subtopologies()[0].nodes


def one_by_one(nodes: Sequence[Node]) -> list[str]:
    """Return who calls, if each node is tried behind those before it."""
    found = [*nodes]
    for at, node in enumerate(nodes):
        make = traits_of(node).on_threads
        if make is not None and isinstance(node, ProcessorNode):
            operator = make(CALLS)
            assert operator is not None
            found[at] = dataclasses.replace(node, operator=operator)
            try:
                stages_of(found)
            except TopologyError:
                found[at] = node
    return [node.name for node in found if options_of(node) is not None]


def test_each_node_calls_that_may_behind_those_before_it() -> None:
    numbers = set()
    for seed in range(60):
        nodes = drawn(random.Random(seed))
        calling = [node.name for node in on_threads(nodes, CALLS) if options_of(node) is not None]
        assert calling == one_by_one(nodes), seed
        numbers.add(len(nodes) - len(calling))
    assert len(numbers) > 5


def test_stages_are_found_a_few_times_only_when_there_are_many_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    stream: Any = builder.stream("in")
    for _ in range(500):
        stream = stream.map_values(lambda value: value)
    stream.send_to("out")
    nodes = builder.build().subtopologies()[0].nodes
    looked: list[int] = []
    monkeypatch.setattr(stages, "stages_of", lambda nodes: looked.append(1))
    assert sum(options_of(node) is not None for node in on_threads(nodes, CALLS)) == 500
    assert len(looked) <= 12


class Fit(Processor):
    threads = True

    def process(self, record: ProcessorRecord) -> None:
        pass


class Unfit(Processor):
    def process(self, record: ProcessorRecord) -> None:
        pass


def test_processors_call_that_declare_it_also_below_a_store() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    counts = builder.stream("in").group_by_key().count(store="counts").to_stream()
    for definition in (Fit, lambda: Fit(), functools.partial(Fit), Unfit):
        builder.stream("more").process(definition).send_to("out")
    counts.process(Fit).map_values(len).send_to("out", key_serde=serdes.string())
    found = [
        [
            node.operator.type
            for node in on_threads(subtopology.nodes, CALLS)
            if isinstance(node, ProcessorNode) and options_of(node) is not None
        ]
        for subtopology in builder.build().subtopologies()
    ]
    assert found == [["processor_async", "map_values_async"], ["processor_async"] * 3]


def test_a_processor_stays_on_its_tasks_thread_between_a_store_and_one_that_may_ask_for_commits() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    counts = builder.stream("in").group_by_key().count(store="counts").to_stream()
    counts.process(Fit).process(Unfit).send_to("out", key_serde=serdes.string(), value_serde=serdes.json())
    (subtopology,) = builder.build().subtopologies()
    assert not [node.name for node in on_threads(subtopology.nodes, CALLS) if options_of(node) is not None]
