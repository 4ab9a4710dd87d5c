from __future__ import annotations

import pytest

from airflow_kstreams.streams import KStreamBuilder, KTable, StoreSpec, TopologyError, serdes
from airflow_kstreams.streams.graph.nodes import SourceNode
from tests.support.topology.bound_topology import BoundTopology, Output


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def _spec(*, cached: bool = True) -> StoreSpec:
    return StoreSpec(name="t", key_serde=serdes.string(), value_serde=serdes.json(), cached=cached)


def _streamed(*, cached: bool) -> BoundTopology:
    builder = _builder()
    builder.table("in", store=_spec(cached=cached)).to_stream().send_to("out")
    return BoundTopology(builder.build())


def test_table_holds_the_newest_value_of_each_key_when_records_arrive() -> None:
    builder = _builder()
    builder.table("in", store="t")
    bound = BoundTopology(builder.build())
    for key, value, time_ms in (("a", 1, 5), ("b", 2, 6), ("a", 3, 4)):
        bound.pipe("in", key, value, timestamp_ms=time_ms)
    assert list(bound.stores["t"].all()) == [("a", 3), ("b", 2)]
    assert bound.stores["t"].get_entry(b"a") == (3, 4)


def test_table_deletes_a_key_when_its_value_is_null() -> None:
    bound = _streamed(cached=False)
    for value in (1, None, None, 2):
        bound.pipe("in", "a", value, timestamp_ms=7)
    assert bound.read("out") == [Output("a", 1, 7), Output("a", None, 7), Output("a", 2, 7)]
    assert bound.stores["t"].get("a") == 2
    assert bound.dropped == 0


def test_record_is_dropped_and_counted_when_it_has_no_key() -> None:
    bound = _streamed(cached=False)
    bound.pipe("in", None, 1)
    assert (bound.read("out"), bound.dropped, list(bound.stores["t"].all())) == ([], 1, [])


def test_cached_table_emits_each_changed_key_once_when_a_commit_point_comes() -> None:
    bound = _streamed(cached=True)
    for key, value, time_ms in (("a", 1, 1), ("b", 2, 2), ("a", 3, 3), ("c", 4, 4), ("c", None, 5)):
        bound.pipe("in", key, value, timestamp_ms=time_ms)
    assert bound.read("out") == []
    bound.flush()
    assert bound.read("out") == [Output("a", 3, 3), Output("b", 2, 2)]
    bound.pipe("in", "b", None, timestamp_ms=9)
    bound.flush()
    assert bound.read("out") == [Output("b", None, 9)]


def test_cached_table_emits_a_deletion_when_the_key_came_back_in_between() -> None:
    bound = _streamed(cached=True)
    bound.pipe("in", "a", 1, timestamp_ms=1)
    bound.flush()
    for value, time_ms in ((None, 2), (3, 3), (None, 4)):
        bound.pipe("in", "a", value, timestamp_ms=time_ms)
    bound.flush()
    assert bound.read("out") == [Output("a", 1, 1), Output("a", None, 4)]


def test_table_asks_for_no_commit_points_when_nobody_streams_it() -> None:
    builder = _builder()
    table = builder.table("in", store=_spec(cached=True))
    builder.stream("other").join(table, lambda left, right: [left, right]).send_to("out")
    assert BoundTopology(builder.build()).flushes == {}
    table.to_stream().send_to("changes")
    assert len(BoundTopology(builder.build()).flushes) == 1


def test_table_and_stream_share_the_source_when_they_read_one_topic() -> None:
    builder = _builder()
    builder.table("in")
    builder.stream("in").send_to("out")
    topology = builder.build()
    assert [node.topics for node in topology.nodes if isinstance(node, SourceNode)] == [("in",)]
    assert len(topology.subtopologies()) == 1


def test_store_is_named_after_the_topic_when_no_name_is_given() -> None:
    builder = _builder()
    table = builder.table("in")
    assert table.store == "in-table"
    (sub,) = builder.build().plan("app").subtopologies
    assert sub.changelogs == {table.store: "app-in-table-changelog"}


def test_specs_serdes_are_used_when_none_is_given() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.bytes(), default_value_serde=serdes.bytes())
    table = builder.table("in", store=_spec())
    assert isinstance(table, KTable)
    (source,) = (node for node in builder.build().nodes if isinstance(node, SourceNode))
    assert (source.key_serde, source.value_serde) == (serdes.string(), serdes.json())


def test_table_is_refused_when_its_store_has_other_keys() -> None:
    with pytest.raises(TopologyError, match=r"reads keys of serdes\.json, but its store 't'") as caught:
        _builder().table("in", key_serde=serdes.json(), store=_spec())
    assert f"table('in') at {__file__}:" in caught.value.cause


def test_fold_is_refused_when_its_store_has_other_keys() -> None:
    grouped = _builder().stream("in", key_serde=serdes.int32()).group_by_key()
    with pytest.raises(TopologyError, match=r"reads keys of serdes\.int32, but its store 't'") as caught:
        store: StoreSpec = StoreSpec(name="t", key_serde=serdes.string(), value_serde=serdes.int64())
        grouped.count(store=store)
    assert f"count at {__file__}:" in caught.value.cause


def test_table_is_refused_when_its_store_is_another_tables() -> None:
    builder = _builder()
    builder.table("one", store="t")
    with pytest.raises(TopologyError, match=r"two tables are kept in the store 't'") as caught:
        builder.table("two", store="t")
    assert f"{__file__}:" in caught.value.cause


def test_serde_is_asked_for_when_a_table_has_none() -> None:
    with pytest.raises(TopologyError, match=r"table\('in'\) at .* needs a key serde"):
        KStreamBuilder().table("in")
