from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, StoreSpec, TopologyError, TumblingWindow, serdes
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.topology.bound_topology import BoundTopology, Output

pytestmark = pytest.mark.promise("tables-need-changelogs")


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def _spec(name: str, *, cached: bool = True, logged: bool = True) -> StoreSpec:
    return StoreSpec(
        name=name, key_serde=serdes.string(), value_serde=serdes.json(), cached=cached, logged=logged
    )


def _large(key: object, value: int) -> bool:
    return value > 10


def _filtered(*, cached: bool, kept: bool = False, negated: bool = False) -> BoundTopology:
    builder = _builder()
    table = builder.table("in", store=_spec("t", cached=cached))
    store = _spec("large", cached=cached) if kept else None
    filtered = (table.filter_not if negated else table.filter)(_large, store=store)
    filtered.to_stream().send_to("out")
    return BoundTopology(builder.build())


def _piped(bound: BoundTopology, *values: Any) -> list[Any]:
    for time_ms, value in enumerate(values):
        bound.pipe("in", "a", value, timestamp_ms=time_ms)
    return [(output.value, output.timestamp_ms) for output in bound.read("out")]


@pytest.mark.parametrize("kept", [False, True])
def test_entry_is_deleted_when_it_no_longer_passes_and_only_then(kept: bool) -> None:
    bound = _filtered(cached=False, kept=kept)
    assert _piped(bound, 5, 6, 20, 30, 7, 8, None) == [(20, 2), (30, 3), (None, 4)]


def test_entry_is_deleted_when_the_table_deletes_it() -> None:
    assert _piped(_filtered(cached=False), 20, None, None) == [(20, 0), (None, 1)]


def test_filter_not_keeps_the_others() -> None:
    assert _piped(_filtered(cached=False, negated=True), 20, 5, 30) == [(5, 1), (None, 2)]


@pytest.mark.parametrize("kept", [False, True])
def test_change_since_the_last_commit_point_is_what_counts_when_the_table_is_cached(kept: bool) -> None:
    bound = _filtered(cached=True, kept=kept)
    assert _piped(bound, 20, 5) == []
    bound.flush()
    assert bound.read("out") == [], "what passed in between was never emitted"
    _piped(bound, 30)
    bound.flush()
    assert bound.read("out") == [Output("a", 30, 0)]
    _piped(bound, 40, 5, 6)
    bound.flush()
    assert bound.read("out") == [Output("a", None, 2)]


def test_store_holds_what_passes_when_one_is_named() -> None:
    bound = _filtered(cached=True, kept=True)
    for key, value in (("a", 20), ("b", 5), ("c", 30), ("a", 7)):
        bound.pipe("in", key, value)
    bound.flush()
    assert dict(bound.stores["large"].all()) == {"c": 30}


def test_fold_is_filtered_by_its_old_aggregate_when_it_changes_in_place() -> None:
    builder = _builder()

    def add(key: str, value: int, seen: list[int]) -> list[int]:
        seen.append(value)
        return seen

    sums = builder.stream("in").group_by_key().aggregate(list, add, store=_spec("s", cached=False))
    sums.filter(lambda key, seen: len(seen) == 2).to_stream().send_to("out")
    bound = BoundTopology(builder.build())
    assert [value for value, _ in _piped(bound, 1, 2, 3, 4)] == [[1, 2], None]


def test_stream_is_joined_with_what_passes_when_the_table_has_no_store() -> None:
    builder = _builder()
    large = builder.table("in", store="t").filter(_large)
    builder.stream("orders").left_join(large, lambda order, value: [order, value]).send_to("out")
    bound = BoundTopology(builder.build())
    for value in (5, 20):
        bound.pipe("in", "a", value)
        bound.pipe("orders", "a", "order")
    assert [output.value for output in bound.read("out")] == [["order", None], ["order", 20]]
    (sub,) = builder.build().subtopologies()
    assert sub.source_topics == ("in", "orders"), "both are read by one task"


def test_windows_are_filtered_when_the_table_is_a_windowed_fold() -> None:
    builder = _builder()
    window = TumblingWindow(size_ms=10, grace_ms=0)
    counts = builder.stream("in").group_by_key().windowed_by(window).count(store=_count_spec())
    counts.filter(lambda windowed, count: count == 2).to_stream().send_to("out")
    bound = BoundTopology(builder.build())
    for time_ms in (1, 2, 3, 11, 12):
        bound.pipe("in", "a", 0, timestamp_ms=time_ms)
    found = [(output.key.start_ms, output.value) for output in bound.read("out")]
    assert found == [(0, 2), (0, None), (10, 2)]


def test_final_windows_are_filtered_when_the_table_is_suppressed() -> None:
    builder = _builder()
    window = TumblingWindow(size_ms=10, grace_ms=0)
    counts = builder.stream("in").group_by_key().windowed_by(window).count(store=_count_spec())
    counts.suppress().filter(lambda windowed, count: count > 1).to_stream().send_to("out")
    bound = BoundTopology(builder.build())
    for time_ms in (1, 2, 11, 22):
        bound.pipe("in", "a", 0, timestamp_ms=time_ms)
    assert [(output.key.start_ms, output.value) for output in bound.read("out")] == [(0, 2)]


def test_filter_is_refused_when_windows_are_emitted_at_every_end_of_a_run() -> None:
    window = TumblingWindow(size_ms=10, grace_ms=0, at_run_end="flush")
    counts = _builder().stream("in").group_by_key().windowed_by(window).count()
    with pytest.raises(TopologyError, match="keeps none of the values that it has emitted") as caught:
        counts.suppress().filter(_large)
    assert f"filter at {__file__}:" in caught.value.cause


def test_filter_is_refused_when_the_tables_store_has_no_changelog() -> None:
    table = _builder().table("in", store=_spec("t", logged=False))
    with pytest.raises(TopologyError, match="needs the changelog of the store 't'") as caught:
        table.filter(_large)
    assert f"filter at {__file__}:" in caught.value.cause


def test_filter_is_refused_when_it_is_given_no_function_or_a_store_that_does_not_fit() -> None:
    table = _builder().table("in")
    with pytest.raises(TopologyError, match=r"filter at .*predicate"):
        table.filter(None)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match=r"reads keys of serdes\.string, but its store 'n'"):
        table.filter(_large, store=StoreSpec(name="n", key_serde=serdes.int64(), value_serde=serdes.json()))
    with pytest.raises(TopologyError, match="expected a name or a StoreSpec"):
        table.filter(_large, store=3)  # type: ignore[arg-type]


def test_windows_are_refused_a_store_that_would_keep_them_for_ever() -> None:
    window = TumblingWindow(size_ms=10, grace_ms=0)
    counts = _builder().stream("in").group_by_key().windowed_by(window).count()
    with pytest.raises(TopologyError, match="would keep every window for ever"):
        counts.filter(_large, store="large")


def test_store_is_asked_for_in_vain_when_the_table_has_none() -> None:
    table = _builder().table("in").filter(_large)
    for ask in (lambda: table.store, lambda: table.spec):
        with pytest.raises(TopologyError, match="kept in no store of its own"):
            ask()


def test_description_shows_the_filter_and_its_store() -> None:
    builder = _builder()
    builder.table("in", store="t").filter(_large, store="large").to_stream().send_to("out")
    assert "KTABLE-FILTER-0000000002 (stores: [large])" in builder.build().describe()
    plan = builder.build().plan("app")
    assert plan.subtopologies[0].changelogs == {"t": "app-t-changelog", "large": "app-large-changelog"}
    assert [keys.unfit for keys in plan.subtopologies[0].entry_keys.values()] == ["", ""]


def _count_spec() -> StoreSpec:
    return StoreSpec(name="n", key_serde=serdes.string(), value_serde=serdes.int64(), cached=False)


@pytest.mark.parametrize("kept", [False, True])
def test_value_passes_though_the_predicate_fails_on_the_one_before(kept: bool) -> None:
    builder = _builder()
    table = builder.table("in", store=_spec("t", cached=False))
    store = _spec("large", cached=False) if kept else None
    table.filter(lambda key, value: value > 10, store=store).to_stream().send_to("out")
    settings = {"processing.exception.handler": "skip"}
    with TopologyTestDriver(builder.build(), application_id="app", settings=settings) as driver:
        for time_ms, value in enumerate((20, "bad", 30)):
            driver.pipe_input("in", key="a", value=value, timestamp_ms=time_ms)
        assert [(record.value, record.timestamp_ms) for record in driver.read_output("out")] == [
            (20, 0),
            (30, 2),
        ]
