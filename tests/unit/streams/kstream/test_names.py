"""Every operator takes a name for its node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStream,
    KStreamBuilder,
    Processor,
    ProcessorRecord,
    SessionWindow,
    TopologyError,
    TumblingWindow,
    ValueTransformer,
    serdes,
)


class Idle(Processor):
    def process(self, record: ProcessorRecord) -> None:
        """Do nothing."""


class Same(ValueTransformer):
    def transform(self, key: Any, value: Any) -> Any:
        return value


def taken(*arguments: Any) -> Any:
    return arguments


def windowed(stream: KStream) -> Any:
    return stream.group_by_key().windowed_by(TumblingWindow(size_ms=1))


OPERATORS: dict[str, Callable[[KStream, KStream], Any]] = {
    "filter": lambda s, o: s.filter(taken, name="mine"),
    "filter_not": lambda s, o: s.filter_not(taken, name="mine"),
    "map": lambda s, o: s.map(taken, name="mine"),
    "map_values": lambda s, o: s.map_values(taken, name="mine"),
    "flat_map": lambda s, o: s.flat_map(taken, name="mine"),
    "flat_map_values": lambda s, o: s.flat_map_values(taken, name="mine"),
    "select_key": lambda s, o: s.select_key(taken, name="mine"),
    "peek": lambda s, o: s.peek(taken, name="mine"),
    "foreach": lambda s, o: s.foreach(taken, name="mine"),
    "map_batches": lambda s, o: s.map_batches(taken, name="mine"),
    "branch": lambda s, o: s.branch(taken, name="mine"),
    "split": lambda s, o: s.split(some=taken, name="mine"),
    "set_headers": lambda s, o: s.set_headers(taken, name="mine"),
    "set_timestamp": lambda s, o: s.set_timestamp(taken, name="mine"),
    "process": lambda s, o: s.process(Idle, name="mine"),
    "process_values": lambda s, o: s.process_values(Idle, name="mine"),
    "merge": lambda s, o: s.merge(o, name="mine"),
    "send_to": lambda s, o: s.send_to("out", name="mine"),
    "through": lambda s, o: s.through("out", name="mine"),
    "count": lambda s, o: s.group_by_key().count(name="mine"),
    "reduce": lambda s, o: s.group_by_key().reduce(max, name="mine"),
    "aggregate": lambda s, o: s.group_by_key().aggregate(int, taken, name="mine"),
    "windowed count": lambda s, o: windowed(s).count(name="mine"),
    "windowed reduce": lambda s, o: windowed(s).reduce(max, name="mine"),
    "session aggregate": lambda s, o: (
        s.group_by_key().windowed_by(SessionWindow(gap_ms=1)).aggregate(int, taken, taken, name="mine")
    ),
    "cogroup": lambda s, o: s.group_by_key().cogroup(taken).aggregate(int, name="mine"),
    "windowed cogroup": lambda s, o: (
        s.group_by_key().cogroup(taken).windowed_by(TumblingWindow(size_ms=1)).aggregate(int, name="mine")
    ),
    "to_stream": lambda s, o: s.group_by_key().count().to_stream(name="mine"),
    "windowed to_stream": lambda s, o: windowed(s).count().to_stream(name="mine"),
    "suppress": lambda s, o: windowed(s).count().suppress(name="mine"),
    "table filter": lambda s, o: s.to_table().filter(taken, name="mine"),
    "table filter_not": lambda s, o: s.to_table().filter_not(taken, name="mine"),
    "table map_values": lambda s, o: s.to_table().map_values(taken, name="mine"),
    "table transform_values": lambda s, o: s.to_table().transform_values(Same, name="mine"),
    "table join": lambda s, o: s.to_table().join(o.to_table(), taken, name="mine"),
    "table left_join": lambda s, o: s.to_table().left_join(o.to_table(), taken, name="mine"),
    "table outer_join": lambda s, o: s.to_table().outer_join(o.to_table(), taken, name="mine"),
    "table count": lambda s, o: s.to_table().group_by(taken).count(name="mine"),
    "table reduce": lambda s, o: s.to_table().group_by(taken).reduce(max, max, name="mine"),
    "table aggregate": lambda s, o: s.to_table().group_by(taken).aggregate(int, taken, taken, name="mine"),
}


def built(operator: str) -> list[str]:
    made = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    stream, other = made.stream("in"), made.stream("other")
    OPERATORS[operator](stream, other)
    stream.send_to("end")
    return [node.name for node in made.build().nodes]


@pytest.mark.parametrize("operator", [*OPERATORS])
def test_node_has_the_name_that_its_operator_was_given(operator: str) -> None:
    assert "mine" in built(operator)


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
    assert "mine-1" in built("branch")
    assert "mine-some" in built("split")


def test_sides_of_a_join_of_tables_are_called_after_it() -> None:
    assert {"mine-join-this", "mine-join-other"} <= {*built("table join")}


def test_numbers_of_other_nodes_do_not_depend_on_one_that_has_a_name() -> None:
    made = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    made.stream("in").filter(taken, name="mine").map_values(taken).send_to("out")
    assert [node.name for node in made.build().nodes] == [
        "KSTREAM-SOURCE-0000000000",
        "mine",
        "KSTREAM-MAPVALUES-0000000001",
        "KSTREAM-SINK-0000000002",
    ]


@pytest.mark.parametrize("name", ["", "two words", 5, "a/b", "x" * 250])
def test_name_that_could_name_no_topic_is_refused_with_the_users_line(name: Any) -> None:
    made = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    with pytest.raises(TopologyError, match=f"node at {__file__}:\\d+ has name="):
        made.stream("in").filter(taken, name=name)


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
