from __future__ import annotations

from typing import Any

from airflow_kstreams.streams import KStreamBuilder, SlidingWindow, serdes
from airflow_kstreams.streams.graph.calls import CallOptions
from airflow_kstreams.streams.graph.stages import Stages, on_threads, stages_of


async def ask(value: Any) -> Any:
    return value


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def stages(made: KStreamBuilder) -> Stages:
    (only,) = made.build().subtopologies()
    return stages_of(only.nodes)


def by_kind(found: Stages) -> dict[str, int]:
    """Return the stage of each node, by its kind, numbered among those of one kind."""
    kinds: dict[str, int] = {}
    for name, stage in found.of.items():
        kind = name.removeprefix("KSTREAM-").removeprefix("KTABLE-").rsplit("-", 1)[0]
        kinds[f"{kind}{sum(known.rstrip('0123456789') == kind for known in kinds)}"] = stage
    return kinds


def test_there_is_one_stage_when_nothing_is_asynchronous() -> None:
    made = builder()
    made.stream("in").map_values(str).send_to("out")
    found = stages(made)
    assert (found.last, {*found.of.values()}, found.early) == (0, {0}, frozenset())


def test_what_leads_to_a_call_comes_first_and_all_else_last() -> None:
    made = builder()
    stream = made.stream("in").filter(lambda key, value: True)
    stream.peek(lambda key, value: None).send_to("beside")
    stream.map_values_async(ask).map_values(str).send_to("out")
    found = stages(made)
    assert by_kind(found) == {
        "SOURCE0": 0,
        "FILTER0": 0,
        "PEEK0": 1,
        "SINK0": 1,
        "MAPVALUES-ASYNC0": 0,
        "MAPVALUES0": 1,
        "SINK1": 1,
    }
    assert found.gives_in["KSTREAM-MAPVALUES-ASYNC-0000000004"] == 1


def test_each_call_below_another_has_a_stage_of_its_own() -> None:
    made = builder()
    first = made.stream("in").map_values_async(ask)
    second = first.map_values(str).map_values_async(ask)
    second.send_to("out")
    found = stages(made)
    assert (found.last, by_kind(found)["MAPVALUES0"], by_kind(found)["MAPVALUES-ASYNC1"]) == (2, 1, 1)
    assert by_kind(found)["SINK0"] == 2


def test_table_is_kept_where_it_is_asked() -> None:
    made = builder()
    table = made.table("prices", store="prices")
    made.stream("in").join(table, lambda one, two: [one, two]).map_values_async(ask).send_to("out")
    assert by_kind(stages(made))["SOURCE1"] == 0
    above = {name: stage for name, stage in stages(made).of.items() if "TABLE" in name or "JOIN" in name}
    assert {*above.values()} == {0}

    made = builder()
    table = made.table("prices", store="prices")
    asked = made.stream("in").map_values_async(ask)
    asked.join(table, lambda one, two: [one, two], value_serde=serdes.json()).send_to("out")
    below = {name: stage for name, stage in stages(made).of.items() if "TABLE" in name or "JOIN" in name}
    assert {*below.values()} == {1}


def test_both_sides_of_a_join_are_in_one_stage_when_a_call_leads_to_one_of_them() -> None:
    made = builder()
    left = made.stream("a").map_values_async(ask).with_window(SlidingWindow(size_ms=1))
    right = made.stream("b").with_window(SlidingWindow(size_ms=1))
    left.join(right, lambda one, two: one, value_serde=serdes.json()).map_values_async(ask).send_to("out")
    found = stages(made)
    assert {stage for name, stage in found.of.items() if "JOIN" in name} == {1}
    assert found.last == 2


def test_function_stays_on_the_tasks_thread_when_a_store_is_used_on_both_sides_of_it() -> None:
    made = builder()
    counts = made.stream("in").filter(lambda key, value: True).group_by_key().count(store="counts")
    doubled = counts.to_stream().map_values(lambda count: 2 * count)
    doubled.left_join(counts, lambda one, two: [one, two], value_serde=serdes.int64()).send_to("out")
    (only,) = made.build().subtopologies()
    nodes = on_threads(only.nodes, CallOptions(threads=True))
    called = {node.name for node in nodes if getattr(getattr(node, "operator", None), "calls", None)}
    assert {name.rsplit("-", 1)[0] for name in called} == {"KSTREAM-FILTER"}
