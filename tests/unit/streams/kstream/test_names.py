"""Every operator takes a name: for its node, and for the topics and stores that are made for it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_kstreams import streams
from airflow_kstreams.streams import (
    AsyncProcessor,
    DeltaTable,
    KStream,
    KStreamBuilder,
    KTable,
    Processor,
    ProcessorRecord,
    SessionWindow,
    SlidingWindow,
    Topology,
    TopologyError,
    TumblingWindow,
    ValueTransformer,
    serdes,
)


class Idle(Processor):
    def process(self, record: ProcessorRecord) -> None:
        """Do nothing."""


@dataclass
class Row:
    text: str


class Same(ValueTransformer):
    def transform(self, key: Any, value: Any) -> Any:
        return value


def taken(*arguments: Any) -> Any:
    return arguments


def windowed(stream: KStream) -> Any:
    return stream.group_by_key().windowed_by(TumblingWindow(size_ms=1))


async def awaited(*arguments: Any) -> Any:
    return arguments


class Asking(AsyncProcessor):
    async def process(self, record: ProcessorRecord) -> None:
        """Do nothing."""


def within(stream: KStream) -> Any:
    return stream.with_window(SlidingWindow(size_ms=1))


def grouped(table: KTable) -> Any:
    return table.group_by(taken)


#: Class.method -> a call of it with the name "mine"; behind a second dot, another way to call it.
OPERATORS: dict[str, Callable[[KStream, KStream, KStreamBuilder], Any]] = {
    "KStreamBuilder.stream": lambda s, o, b: b.stream("more", name="mine"),
    "KStreamBuilder.table": lambda s, o, b: b.table("more", name="mine"),
    "KStreamBuilder.global_table": lambda s, o, b: s.join(
        b.global_table("more", name="mine"), taken, key=taken
    ),
    "KStream.filter": lambda s, o, b: s.filter(taken, name="mine"),
    "KStream.filter_not": lambda s, o, b: s.filter_not(taken, name="mine"),
    "KStream.map": lambda s, o, b: s.map(taken, name="mine"),
    "KStream.map_values": lambda s, o, b: s.map_values(taken, name="mine"),
    "KStream.flat_map": lambda s, o, b: s.flat_map(taken, name="mine"),
    "KStream.flat_map_values": lambda s, o, b: s.flat_map_values(taken, name="mine"),
    "KStream.select_key": lambda s, o, b: s.select_key(taken, name="mine"),
    "KStream.peek": lambda s, o, b: s.peek(taken, name="mine"),
    "KStream.foreach": lambda s, o, b: s.foreach(taken, name="mine"),
    "KStream.map_batches": lambda s, o, b: s.map_batches(taken, name="mine"),
    "KStream.branch": lambda s, o, b: s.branch(taken, name="mine"),
    "KStream.split": lambda s, o, b: s.split(some=taken, name="mine"),
    "KStream.set_headers": lambda s, o, b: s.set_headers(taken, name="mine"),
    "KStream.set_timestamp": lambda s, o, b: s.set_timestamp(taken, name="mine"),
    "KStream.process": lambda s, o, b: s.process(Idle, name="mine"),
    "KStream.process_values": lambda s, o, b: s.process_values(Idle, name="mine"),
    "KStream.process_async": lambda s, o, b: s.process_async(Asking, name="mine"),
    "KStream.map_async": lambda s, o, b: s.map_async(awaited, name="mine"),
    "KStream.map_values_async": lambda s, o, b: s.map_values_async(awaited, name="mine"),
    "KStream.filter_async": lambda s, o, b: s.filter_async(awaited, name="mine"),
    "KStream.flat_map_values_async": lambda s, o, b: s.flat_map_values_async(awaited, name="mine"),
    "KStream.foreach_async": lambda s, o, b: s.foreach_async(awaited, name="mine"),
    "KStream.merge": lambda s, o, b: s.merge(o, name="mine"),
    "KStream.send_to": lambda s, o, b: s.send_to("out", name="mine"),
    "KStream.send_to_table": lambda s, o, b: s.send_to_table(
        DeltaTable("/lake/rows", row=Row), key_serde=serdes.string(), name="mine"
    ),
    "KStream.through": lambda s, o, b: s.through("out", name="mine"),
    "KStream.to_table": lambda s, o, b: s.to_table(name="mine"),
    "KStream.group_by": lambda s, o, b: s.group_by(taken, name="mine").count(),
    "KStream.join": lambda s, o, b: s.join(o.to_table(), taken, name="mine"),
    "KStream.left_join": lambda s, o, b: s.left_join(o.to_table(), taken, name="mine"),
    "KStream.join.global": lambda s, o, b: s.join(b.global_table("all"), taken, key=taken, name="mine"),
    "KStream.left_join.global": lambda s, o, b: s.left_join(
        b.global_table("all"), taken, key=taken, name="mine"
    ),
    "KGroupedStream.count": lambda s, o, b: s.group_by_key().count(name="mine"),
    "KGroupedStream.reduce": lambda s, o, b: s.group_by_key().reduce(max, name="mine"),
    "KGroupedStream.aggregate": lambda s, o, b: s.group_by_key().aggregate(int, taken, name="mine"),
    "WindowedKGroupedStream.count": lambda s, o, b: windowed(s).count(name="mine"),
    "WindowedKGroupedStream.reduce": lambda s, o, b: windowed(s).reduce(max, name="mine"),
    "WindowedKGroupedStream.aggregate": lambda s, o, b: windowed(s).aggregate(int, taken, name="mine"),
    "WindowedKGroupedStream.aggregate.sessions": lambda s, o, b: (
        s.group_by_key().windowed_by(SessionWindow(gap_ms=1)).aggregate(int, taken, taken, name="mine")
    ),
    "CogroupedKStream.aggregate": lambda s, o, b: s.group_by_key().cogroup(taken).aggregate(int, name="mine"),
    "WindowedCogroupedKStream.aggregate": lambda s, o, b: (
        s.group_by_key().cogroup(taken).windowed_by(TumblingWindow(size_ms=1)).aggregate(int, name="mine")
    ),
    "KTable.to_stream": lambda s, o, b: s.group_by_key().count().to_stream(name="mine"),
    "KTable.filter": lambda s, o, b: s.to_table().filter(taken, name="mine"),
    "KTable.filter_not": lambda s, o, b: s.to_table().filter_not(taken, name="mine"),
    "KTable.map_values": lambda s, o, b: s.to_table().map_values(taken, name="mine"),
    "KTable.transform_values": lambda s, o, b: s.to_table().transform_values(Same, name="mine"),
    "KTable.group_by": lambda s, o, b: s.to_table().group_by(taken, name="mine").count(),
    "KTable.join": lambda s, o, b: s.to_table().join(o.to_table(), taken, name="mine"),
    "KTable.left_join": lambda s, o, b: s.to_table().left_join(o.to_table(), taken, name="mine"),
    "KTable.outer_join": lambda s, o, b: s.to_table().outer_join(o.to_table(), taken, name="mine"),
    "WindowedKTable.suppress": lambda s, o, b: windowed(s).count().suppress(name="mine"),
    "KGroupedTable.count": lambda s, o, b: grouped(s.to_table()).count(name="mine"),
    "KGroupedTable.reduce": lambda s, o, b: grouped(s.to_table()).reduce(max, max, name="mine"),
    "KGroupedTable.aggregate": lambda s, o, b: grouped(s.to_table()).aggregate(
        int, taken, taken, name="mine"
    ),
}

#: Those that make several nodes, none of which has the name alone: what they make instead begins with it.
SEVERAL: dict[str, Callable[[KStream, KStream, KStreamBuilder], Any]] = {
    "KStream.repartition": lambda s, o, b: s.repartition(2, name="mine"),
    # It makes a topic only where keys may have changed, as Kafka Streams' Grouped.as does.
    "KStream.group_by_key": lambda s, o, b: s.select_key(taken).group_by_key(name="mine").count(),
    "WindowedKStream.join": lambda s, o, b: within(s).join(within(o), taken, name="mine"),
    "WindowedKStream.left_join": lambda s, o, b: within(s).left_join(within(o), taken, name="mine"),
    "WindowedKStream.outer_join": lambda s, o, b: within(s).outer_join(within(o), taken, name="mine"),
    "WindowedKStream.join_prior": lambda s, o, b: within(s).join_prior(within(o), taken, name="mine"),
    "KTable.join.foreign key": lambda s, o, b: s.to_table().join(
        o.to_table(), taken, foreign_key=taken, name="mine"
    ),
    "KTable.left_join.foreign key": lambda s, o, b: s.to_table().left_join(
        o.to_table(), taken, foreign_key=taken, name="mine"
    ),
}

#: Methods that take no name, and why.
NAMELESS = {
    "KStreamBuilder.add_state_store": "the spec has the store's name",
    "KStreamBuilder.build": "adds nothing",
    "KStream.with_window": "adds nothing: the join does",
    "KStream.join_prior": "refuses streams without window",
    "KStream.outer_join": "refuses streams without window",
    "KGroupedStream.windowed_by": "adds nothing: the fold does",
    "KGroupedStream.cogroup": "adds nothing: aggregate does",
    "CogroupedKStream.windowed_by": "adds nothing: aggregate does",
    "CogroupedKStream.cogroup": "adds nothing: aggregate does",
}


def methods() -> dict[str, bool]:
    """Return every public method of the DSL's classes, and whether it takes a name."""
    found: dict[str, bool] = {}
    for name in streams.__all__:
        kind = getattr(streams, name)
        if not inspect.isclass(kind) or not kind.__module__.startswith("airflow_kstreams.streams.kstream"):
            continue
        for method, function in inspect.getmembers(kind, inspect.isfunction):
            bases = [base.__name__ for base in kind.__mro__[1:] if f"{base.__name__}.{method}" in found]
            inherited = method not in vars(kind) and bases
            if not method.startswith("_") and not inherited:
                parameters = inspect.signature(function).parameters
                found[f"{name}.{method}"] = "name" in parameters or "options" in parameters
    return found


def test_every_method_takes_a_name_or_says_why_it_takes_none() -> None:
    takes = methods()
    assert {method for method, named in takes.items() if not named} == {*NAMELESS}
    named = {".".join(call.split(".")[:2]) for call in {**OPERATORS, **SEVERAL}}
    # KTable.suppress is there to refuse tables without windows.
    assert named | {"KTable.suppress"} == {method for method, named in takes.items() if named}


def topology_with(call: str, *, node: bool = False) -> Topology:
    """Return a topology with one call.

    :param node: whether a node has the name already.
    """
    made = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    stream, other = made.stream("in"), made.stream("other")
    if node:
        stream.filter(taken, name="mine")
    {**OPERATORS, **SEVERAL}[call](stream, other, made)
    stream.send_to("end")
    return made.build()


def built(call: str) -> list[str]:
    return [node.name for node in topology_with(call).nodes]


@pytest.mark.parametrize("call", [*OPERATORS])
def test_node_has_the_name_that_its_operator_was_given(call: str) -> None:
    described = topology_with(call).describe()
    assert re.search(r"(Source|Processor|Sink): mine \(", described), described


@pytest.mark.parametrize(
    ("call", "topics", "stores"),
    [
        ("KStream.repartition", {"mine-repartition"}, set()),
        ("KStream.group_by_key", {"mine-repartition"}, set()),
        ("KStream.group_by", {"mine-repartition"}, set()),
        ("KTable.group_by", {"mine-repartition"}, set()),
        *(
            (f"WindowedKStream.{kind}", set(), {"mine-left", "mine-right"})
            for kind in ("join", "left_join", "outer_join", "join_prior")
        ),
        *(
            (
                f"KTable.{kind}.foreign key",
                {f"mine-{what}-repartition" for what in ("subscriptions", "copies", "answers")},
                {"mine-subscriptions", "mine-copies"},
            )
            for kind in ("join", "left_join")
        ),
    ],
)
def test_topics_and_stores_are_called_after_the_operator(
    call: str, topics: set[str], stores: set[str]
) -> None:
    topology = topology_with(call)
    assert topics <= {topic.name for topic in topology.internal_topics}
    assert stores <= {store.name for store in topology.stores}


@pytest.mark.parametrize(
    "make",
    [
        lambda s, t: s.join(t, taken, name="mine"),
        lambda s, t: s.left_join(t, taken, name="mine"),
        lambda s, t: s.to_table(name="mine"),
    ],
)
def test_topic_is_called_after_the_operator_where_keys_may_have_changed(make: Any) -> None:
    made = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    make(made.stream("in").select_key(taken), made.table("other"))
    topology = made.build()
    assert "mine-repartition" in {topic.name for topic in topology.internal_topics}
    assert "mine" in {node.name for node in topology.nodes}


def test_nodes_of_a_join_of_streams_are_called_after_it() -> None:
    assert {"mine-this-join", "mine-other-join", "mine-merge"} <= {*built("WindowedKStream.join")}


@pytest.mark.parametrize("call", [*OPERATORS])
def test_name_of_any_operator_is_refused_when_another_node_has_it(call: str) -> None:
    with pytest.raises(TopologyError, match=f"'mine' is given to two nodes, at {__file__}:\\d+ and at "):
        topology_with(call, node=True)


def test_sources_and_tables_have_the_names_that_they_were_given() -> None:
    made = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    made.stream("in", name="mine")
    made.stream("in").send_to("out")
    made.stream("in", name="mine")
    made.table("table", store="t", name="kept")
    names = [node.name for node in made.build().nodes]
    assert {"mine", "kept"} <= {*names}
    with pytest.raises(TopologyError, match=r"the topic 'in' is read as 'other' at .* and as 'mine' at"):
        made.stream("in", name="other")


def test_branches_are_called_after_their_node() -> None:
    assert "mine-1" in built("KStream.branch")
    assert "mine-some" in built("KStream.split")


def test_sides_of_a_join_of_tables_are_called_after_it() -> None:
    assert {"mine-join-this", "mine-join-other"} <= {*built("KTable.join")}


def test_numbers_of_other_nodes_do_not_depend_on_one_that_has_a_name() -> None:
    made = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    made.stream("in").filter(taken, name="mine").map_values(taken).send_to("out")
    assert [node.name for node in made.build().nodes] == [
        "KSTREAM-SOURCE-0000000000",
        "mine",
        "KSTREAM-MAPVALUES-0000000001",
        "KSTREAM-SINK-0000000002",
    ]


@pytest.mark.parametrize(
    "call",
    [
        lambda b, name: b.stream("in").filter(taken, name=name),
        lambda b, name: b.stream("in").repartition(2, name=name),
        lambda b, name: b.stream("in").group_by_key(name=name),
        lambda b, name: b.stream("in").group_by(taken, name=name),
        lambda b, name: b.stream("in").join(b.table("other"), taken, name=name),
        lambda b, name: within(b.stream("in")).join(within(b.stream("other")), taken, name=name),
        lambda b, name: b.table("in").group_by(taken, name=name),
        lambda b, name: b.table("in").join(b.table("other"), taken, name=name),
        lambda b, name: b.table("in").join(b.table("other"), taken, foreign_key=taken, name=name),
        lambda b, name: b.global_table("in", name=name),
    ],
)
@pytest.mark.parametrize("name", ["", "two words", 5, "a/b", ".", "x" * 250])
def test_name_that_could_name_no_topic_is_refused_with_the_users_line(name: Any, call: Any) -> None:
    made = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    with pytest.raises(TopologyError, match=f"node at {__file__}:\\d+ has name=") as caught:
        call(made, name)
    assert repr(name) in caught.value.cause


def test_global_table_is_drawn_and_described_by_its_name() -> None:
    topology = topology_with("KStreamBuilder.global_table")
    described = topology.describe()
    assert "Source: mine-source (topics: [more])" in described
    assert "Processor: mine (stores: [more])" in described
    assert re.search(r'\[\("mine\S*more', topology.to_mermaid()), "the topic stands beside the name"
    other = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    stream = other.stream("in")
    other.stream("other")
    stream.join(other.global_table("more"), taken, key=taken)
    stream.send_to("end")
    assert "more-table" in other.build().describe()


@pytest.mark.parametrize("options", [{"name": "other"}, {}, {"name": "mine", "storage": "rocksdb"}])
def test_global_table_is_refused_when_it_is_made_twice_in_different_ways(options: Any) -> None:
    made = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    made.global_table("more", name="mine")
    made.global_table("more", name="mine")
    with pytest.raises(
        TopologyError, match="'more' is a global table with name='mine' and storage='memory' "
    ):
        made.global_table("more", **options)


def test_name_is_refused_when_another_node_has_it() -> None:
    made = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    stream = made.stream("in").filter(taken, name="mine")
    with pytest.raises(TopologyError, match="the name 'mine' is given to two nodes"):
        stream.filter(taken, name="mine")


def test_second_name_is_refused_when_results_are_held_back_already() -> None:
    made = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    table = windowed(made.stream("in")).count()
    assert table.suppress(name="mine") is table.suppress() is table.suppress(name="mine")
    with pytest.raises(TopologyError, match=r"has name='other', but .* at the node 'mine'"):
        table.suppress(name="other")
