from __future__ import annotations

import pytest

from airflow_kstreams.streams import KStreamBuilder, StoreSpec, TopologyError, serdes
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.topology.bound_topology import BoundTopology


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def test_table_holds_each_keys_newest_value_and_a_null_deletes_it() -> None:
    builder = _builder()
    table = builder.stream("in").filter(lambda key, value: value != 7).to_table(store="t")
    table.to_stream().send_to("out")
    bound = BoundTopology(builder.build())
    for key, value in (("a", 1), ("b", 2), ("a", 7), ("b", None), (None, 3)):
        bound.pipe("in", key, value)
    assert dict(bound.stores["t"].all()) == {"a": 1}
    assert bound.counters.dropped >= 1
    assert builder.build().internal_topics == ()


def test_stream_is_repartitioned_with_its_nulls_when_its_key_changed() -> None:
    builder = _builder()
    changed = builder.stream("in").select_key(lambda key, value: key and key[0])
    changed.to_table(store="t")
    topology = builder.build()
    assert [topic.name for topic in topology.internal_topics] == ["t-repartition"]
    bound = BoundTopology(topology)
    for key, value in (("ant", 1), ("ape", 2), ("bee", 3), ("bug", None), (None, 4)):
        bound.pipe("in", key, value)
    assert dict(bound.stores["t"].all()) == {"a": 2}


def test_topic_has_the_name_that_is_given() -> None:
    builder = _builder()
    builder.stream("in").select_key(lambda key, value: key).to_table(name="by-letter")
    assert [topic.name for topic in builder.build().internal_topics] == ["by-letter-repartition"]


def test_store_is_called_after_what_it_reads_when_no_name_is_given() -> None:
    table = _builder().stream("in").to_table()
    assert table.store == "in-to-table"


def test_table_of_a_tables_stream_keeps_its_own_values() -> None:
    builder = _builder()

    def add(key: str, value: int, seen: list[int]) -> list[int]:
        seen.append(value)
        return seen

    lists = builder.stream("in").group_by_key().aggregate(list, add, store="s")
    lists.to_stream().to_table(store="copy")
    bound = BoundTopology(builder.build())
    bound.pipe("in", "a", 1)
    bound.flush()
    bound.pipe("in", "a", 2)
    assert bound.stores["copy"].get("a") == [1]


def test_streams_are_joined_with_the_table_as_with_one_of_a_topic() -> None:
    builder = _builder()
    table = builder.stream("prices").to_table(store="t")
    builder.stream("orders").join(table, lambda order, price: [order, price]).send_to("out")
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        driver.pipe_input("prices", key="a", value=3, timestamp_ms=0)
        driver.pipe_input("orders", key="a", value=1, timestamp_ms=1)
        assert [record.value for record in driver.read_output("out")] == [[1, 3]]


def test_entries_follow_their_keys_when_serdes_are_exact() -> None:
    builder = _builder()
    builder.stream("in").to_table(store="t")
    ((_, keys),) = builder.build().plan("app").subtopologies[0].entry_keys.items()
    assert keys.unfit == ""


def test_table_is_refused_when_serdes_do_not_fit() -> None:
    with pytest.raises(TopologyError, match=r"to_table at .* needs a key serde"):
        KStreamBuilder().stream("in", key_serde=serdes.string(), value_serde=serdes.string()).select_key(
            lambda key, value: 1
        ).to_table()
    stream = _builder().stream("in")
    with pytest.raises(TopologyError, match=r"to keep keys of serdes.int64, but reads keys of") as caught:
        stream.to_table(key_serde=serdes.int64())
    assert f"to_table at {__file__}:" in caught.value.cause
    with pytest.raises(TopologyError, match="but its store 't'"):
        stream.to_table(store=StoreSpec(name="t", key_serde=serdes.int64(), value_serde=serdes.json()))
    stream.to_table(store="t")
    with pytest.raises(TopologyError, match="two tables are kept in the store 't'"):
        stream.to_table(store="t")
