from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, StoreSpec, TopologyError, TumblingWindow, serdes
from airflow_kstreams.streams.serde.internal_serdes import OldAndNew, changed
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.topology.bound_topology import BoundTopology, Output

pytestmark = pytest.mark.promise("tables-take-back-what-they-gave", "tables-need-changelogs")


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def _spec(name: str, *, cached: bool = False, logged: bool = True) -> StoreSpec:
    return StoreSpec(
        name=name, key_serde=serdes.string(), value_serde=serdes.json(), cached=cached, logged=logged
    )


def _by_owner(key: str, account: Any) -> tuple[Any, Any]:
    owner, amount = account
    return owner, amount


def _plus(total: int, amount: int) -> int:
    return total + amount


def _minus(total: int, amount: int) -> int:
    return total - amount


def _outputs(bound: BoundTopology) -> list[tuple[Any, Any]]:
    return [(output.key, output.value) for output in bound.read("out")]


def _totals(*, cached: bool = False) -> BoundTopology:
    builder = _builder()
    grouped = builder.table("in", store=_spec("t", cached=cached)).group_by(_by_owner)
    grouped.reduce(_plus, _minus, store=_spec("totals")).to_stream().send_to("out")
    return BoundTopology(builder.build())


def test_old_value_is_taken_out_and_the_new_one_put_in_by_one_record_when_the_group_stays() -> None:
    bound = _totals()
    for amount in (5, 7):
        bound.pipe("in", "1", ["ann", amount])
    assert _outputs(bound) == [("ann", 5), ("ann", 7)]
    assert [output.value for output in bound.read("totals-repartition")] == [
        OldAndNew(5, None),
        OldAndNew(7, 5),
    ]


def test_old_group_loses_the_value_before_the_new_one_gets_it_when_an_entry_moves() -> None:
    bound = _totals()
    bound.pipe("in", "1", ["ann", 5])
    bound.pipe("in", "2", ["ann", 1])
    bound.pipe("in", "1", ["bob", 5])
    assert _outputs(bound) == [("ann", 5), ("ann", 6), ("ann", 1), ("bob", 5)]
    assert [(output.key, output.value) for output in bound.read("totals-repartition")][-2:] == [
        ("ann", OldAndNew(None, 5)),
        ("bob", OldAndNew(5, None)),
    ]


def test_group_loses_the_value_when_the_entry_is_deleted() -> None:
    bound = _totals()
    bound.pipe("in", "1", ["ann", 5])
    bound.pipe("in", "2", ["ann", 1])
    bound.pipe("in", "1", None)
    bound.pipe("in", "1", None)
    assert _outputs(bound) == [("ann", 5), ("ann", 6), ("ann", 1)]


def test_cached_table_takes_back_what_it_emitted_last() -> None:
    bound = _totals(cached=True)
    bound.pipe("in", "1", ["ann", 5])
    bound.flush()
    for account in (["bob", 3], ["ann", 6], ["ann", 9]):
        bound.pipe("in", "1", account)
    bound.flush()
    assert _outputs(bound) == [("ann", 5), ("ann", 9)]
    assert bound.read("totals-repartition")[-1].value == OldAndNew(9, 5)


def test_pair_is_in_no_group_when_it_has_no_key_or_no_value() -> None:
    bound = _totals()
    for account in ([None, 5], ["ann", None], ["ann", 4], [None, 7]):
        bound.pipe("in", "1", account)
    assert _outputs(bound) == [("ann", 4), ("ann", 0)]
    assert bound.dropped == 3, "each new pair that is in no group is counted"


def test_keys_that_only_look_equal_go_by_two_records() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.json(), default_value_serde=serdes.json())
    grouped = builder.table("in", store=None).group_by(lambda key, value: (value, 1))
    grouped.count(store="n")
    bound = BoundTopology(builder.build())
    for value in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"b": True, "a": 1}):
        bound.pipe("in", "1", value)
        bound.flush()
    assert [output.value for output in bound.read("n-repartition")] == [
        OldAndNew(1, None),
        OldAndNew(None, 1),
        OldAndNew(1, None),
        OldAndNew(None, 1),
        OldAndNew(1, None),
    ]
    assert [count for _, count in bound.stores["n"].all()] == [0, 0, 1]


def test_entries_are_counted_and_an_empty_group_stays_with_nought() -> None:
    builder = _builder()
    counts = builder.table("in", store=_spec("t")).group_by(_by_owner).count(store="n")
    assert counts.spec.value_serde == serdes.int64()
    counts.to_stream().send_to("out")
    bound = BoundTopology(builder.build())
    for key, account in (("1", ["ann", 5]), ("2", ["ann", 6]), ("1", ["bob", 5]), ("1", None)):
        bound.pipe("in", key, account)
        bound.flush()
    assert _outputs(bound) == [("ann", 1), ("ann", 2), ("ann", 1), ("bob", 1), ("bob", 0)]


def _added(owner: str, amount: int, amounts: list[int]) -> list[int]:
    amounts.append(amount)
    return amounts


def _removed(owner: str, amount: int, amounts: list[int]) -> list[int] | None:
    amounts.remove(amount)
    return amounts or None


@pytest.mark.parametrize("cached", [False, True])
def test_aggregate_that_changes_in_place_gives_the_next_table_its_old_value(cached: bool) -> None:
    builder = _builder()
    grouped = builder.table("in", store=_spec("t")).group_by(_by_owner)
    lists = grouped.aggregate(list, _added, _removed, store=_spec("lists", cached=cached))
    by_size = lists.group_by(lambda owner, amounts: (str(len(amounts)), owner))
    by_size.aggregate(list, _added, _removed, store=_spec("sizes"))
    bound = BoundTopology(builder.build())
    for key, account in (("1", ["ann", 5]), ("2", ["bob", 6]), ("3", ["ann", 7]), ("2", None)):
        bound.pipe("in", key, account)
        bound.flush()
    assert dict(bound.stores["lists"].all()) == {"ann": [5, 7]}
    assert dict(bound.stores["sizes"].all()) == {"2": ["ann"]}


def test_group_has_the_latest_timestamp_of_what_was_added_or_taken_out() -> None:
    bound = _totals()
    bound.pipe("in", "1", ["ann", 5], timestamp_ms=9)
    bound.pipe("in", "2", ["ann", 1], timestamp_ms=3)
    bound.pipe("in", "1", None, timestamp_ms=12)
    assert bound.read("out") == [Output("ann", 5, 9), Output("ann", 6, 9), Output("ann", 1, 12)]


def test_windowed_counts_are_grouped_by_their_windows() -> None:
    builder = _builder()
    window = TumblingWindow(size_ms=10, grace_ms=0)
    counts = builder.stream("in").group_by_key().windowed_by(window).count()
    per_window = counts.group_by(lambda windowed, count: (str(windowed.start_ms), count))
    per_window.reduce(_plus, _minus, store=_spec("all"))
    bound = BoundTopology(builder.build())
    for key, time_ms in (("a", 1), ("b", 2), ("a", 3), ("a", 11)):
        bound.pipe("in", key, 0, timestamp_ms=time_ms)
    bound.flush()
    assert dict(bound.stores["all"].all()) == {"0": 3, "10": 1}


def test_folds_of_one_group_share_the_topic_when_it_has_a_name() -> None:
    builder = _builder()
    grouped = builder.table("in").group_by(_by_owner, name="by-owner")
    grouped.count(store="n")
    grouped.reduce(_plus, _minus, store="totals")
    topology = builder.build()
    assert [topic.name for topic in topology.internal_topics] == ["by-owner-repartition"]
    subtopologies = topology.plan("app").subtopologies
    assert [sub.sources for sub in subtopologies] == [("in",), ("app-by-owner-repartition",)]
    assert [keys.unfit for sub in subtopologies for keys in sub.entry_keys.values()] == ["", "", ""]


def test_description_names_nodes_as_kafka_streams_does() -> None:
    builder = _builder()
    builder.table("in", store="t").group_by(_by_owner).reduce(_plus, _minus, store="r")
    described = builder.build().describe()
    assert "KTABLE-SELECT-0000000002" in described
    assert "KTABLE-REDUCE-0000000003 (stores: [r])" in described


def test_group_survives_restarts_when_each_run_has_one_record() -> None:
    builder = _builder()
    builder.table("in").group_by(_by_owner).reduce(_plus, _minus, store="totals")
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for key, account in (("1", ["ann", 5]), ("2", ["ann", 6]), ("1", ["bob", 5]), ("2", None)):
            with driver.run():
                driver.pipe_input("in", key=key, value=account, timestamp_ms=0)
        assert dict(driver.store("totals").all()) == {"ann": 0, "bob": 5}


def test_group_is_refused_when_a_store_has_no_changelog() -> None:
    table = _builder().table("in", store=_spec("t", logged=False))
    with pytest.raises(TopologyError, match=r"group_by at .* needs the changelog of the store 't'"):
        table.group_by(_by_owner)
    grouped = _builder().table("in").group_by(_by_owner)
    with pytest.raises(TopologyError, match=r"count at .* needs the changelog of the store 'n'"):
        grouped.count(store=_spec("n", logged=False))


def test_fold_is_refused_when_its_arguments_do_not_fit() -> None:
    grouped = _builder().table("in").group_by(_by_owner)
    with pytest.raises(TopologyError, match=r"group_by at .*selector"):
        _builder().table("in").group_by("owner")  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match=r"reduce at .*subtractor") as caught:
        grouped.reduce(_plus, None)  # type: ignore[arg-type]
    assert "takes back what the adder did" in str(caught.value)
    with pytest.raises(TopologyError, match="but its store 'r' holds"):
        grouped.reduce(_plus, _minus, store=_spec("r"), value_serde=serdes.int64())
    with pytest.raises(TopologyError, match=r"group_by at .* needs a key serde"):
        KStreamBuilder().table("in", key_serde=serdes.string(), value_serde=serdes.string()).group_by(
            _by_owner
        ).count()


@pytest.mark.parametrize(
    ("change", "data"),
    [
        (OldAndNew("new", None), b"new\x01"),
        (OldAndNew(None, "old"), b"old\x00"),
        (OldAndNew("new", "old"), b"\x06newold\x02"),
        (OldAndNew("", ""), b"\x00\x02"),
        (OldAndNew("n" * 100, "o"), b"\xc8\x01" + b"n" * 100 + b"o\x02"),
    ],
)
def test_change_is_written_as_kafka_streams_writes_it(change: OldAndNew, data: bytes) -> None:
    serde = changed(serdes.string())
    assert serde.serialize(change) == data
    assert serde.deserialize(data) == change


@pytest.mark.parametrize("data", [b"", b"\x09", b"\x06ne\x02", b"\x80\x80\x80\x80\x80\x80\x02", b"\x01\x02"])
def test_bytes_are_refused_when_they_are_no_change(data: bytes) -> None:
    with pytest.raises(ValueError, match="no change of a table"):
        changed(serdes.string()).deserialize(data)


def test_change_is_refused_when_it_changes_nothing() -> None:
    with pytest.raises(ValueError, match="neither a new value nor an old one"):
        changed(serdes.string()).serialize(OldAndNew(None, None))
