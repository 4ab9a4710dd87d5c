from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, StoreSpec, TopologyError, serdes
from tests.support.topology.bound_topology import BoundTopology, Output


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def _spec(name: str, *, cached: bool = False) -> StoreSpec:
    return StoreSpec(name=name, key_serde=serdes.string(), value_serde=serdes.json(), cached=cached)


def _values(bound: BoundTopology, *values: Any) -> list[Any]:
    for value in values:
        bound.pipe("in", "a", value)
    return [output.value for output in bound.read("out")]


@pytest.mark.parametrize("kept", [False, True])
def test_values_are_mapped_and_deletions_pass(kept: bool) -> None:
    builder = _builder()
    mapped = builder.table("in", store=_spec("t")).map_values(
        lambda value: value + 1, store=_spec("m") if kept else None
    )
    mapped.to_stream().send_to("out")
    bound = BoundTopology(builder.build())
    assert _values(bound, 1, 2, None, 5) == [2, 3, None, 6]
    if kept:
        assert dict(bound.stores["m"].all()) == {"a": 6}


def test_mapper_does_not_run_on_old_values_when_nothing_below_needs_them() -> None:
    seen: list[int] = []

    def noted(value: int) -> int:
        seen.append(value)
        return value

    builder = _builder()
    table = builder.table("in", store=_spec("t"))
    table.map_values(noted).to_stream().send_to("out")
    bound = BoundTopology(builder.build())
    _values(bound, 1, 2)
    assert seen == [1, 2]


def test_filter_below_gets_old_values_mapped() -> None:
    builder = _builder()
    mapped = builder.table("in", store=_spec("t")).map_values(lambda value: value * 10)
    mapped.filter(lambda key, value: value > 50).to_stream().send_to("out")
    assert _values(BoundTopology(builder.build()), 1, 9, 2, 3) == [90, None]


def test_key_is_deleted_when_its_value_becomes_none() -> None:
    builder = _builder()
    mapped = builder.table("in", store=_spec("t")).map_values(lambda value: value or None)
    mapped.to_stream().send_to("out")
    assert _values(BoundTopology(builder.build()), 3, 0) == [3, None]


def test_kept_value_stays_as_it_was_when_an_aggregator_changes_its_own_in_place() -> None:
    builder = _builder()

    def add(key: str, value: int, seen: list[int]) -> list[int]:
        seen.append(value)
        return seen

    lists = builder.stream("in").group_by_key().aggregate(list, add, store=_spec("s", cached=True))
    lists.map_values(lambda seen: {"seen": seen}, store=_spec("m", cached=True))
    bound = BoundTopology(builder.build())
    bound.pipe("in", "a", 1)
    bound.flush()
    bound.pipe("in", "a", 2)
    assert bound.stores["m"].get("a") == {"seen": [1]}
    bound.flush()
    assert bound.stores["m"].get("a") == {"seen": [1, 2]}


def test_serde_of_new_values_is_asked_for_where_they_are_written() -> None:
    builder = KStreamBuilder()
    table = builder.table("in", key_serde=serdes.string(), value_serde=serdes.string())
    mapped = table.map_values(len)
    with pytest.raises(TopologyError, match="needs a value serde, and none is known after map_values at"):
        mapped.to_stream().send_to("out")
    with pytest.raises(TopologyError, match=r"map_values at .* needs a value serde"):
        table.map_values(len, store="lengths")
    table.map_values(len, value_serde=serdes.int64()).to_stream().send_to("out")
    kept = table.map_values(len, store="lengths", value_serde=serdes.int64())
    assert kept.spec.value_serde == serdes.int64()
    bound = BoundTopology(builder.build())
    bound.pipe("in", "a", "four")
    bound.flush()
    assert bound.read("out") == [Output("a", 4, 0)]


def test_map_is_refused_when_its_store_holds_other_values() -> None:
    table = _builder().table("in")
    with pytest.raises(TopologyError, match="leave out value_serde="):
        table.map_values(len, store=_spec("m"), value_serde=serdes.int64())


def test_stream_of_changes_has_other_keys_when_a_selector_is_given() -> None:
    builder = _builder()
    table = builder.table("in", store=_spec("t"))
    stream = table.to_stream(lambda key, value: f"{key}{value}")
    stream.send_to("out")
    stream.group_by_key(name="again").count(store="n")
    topology = builder.build()
    bound = BoundTopology(topology)
    bound.pipe("in", "a", 1)
    bound.pipe("in", "a", None)
    assert [(output.key, output.value) for output in bound.read("out")] == [("a1", 1), ("aNone", None)]
    assert [topic.name for topic in topology.internal_topics] == ["again-repartition"]
    with pytest.raises(TopologyError, match="to_stream"):
        table.to_stream(3)  # type: ignore[call-overload]
