from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStreamBuilder,
    KTable,
    StoreSpec,
    Topology,
    TopologyError,
    TumblingWindow,
    serdes,
)
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.topology.bound_topology import BoundTopology, Output

pytestmark = pytest.mark.promise(
    "tables-take-back-what-they-gave", "topologies-can-stop", "tables-need-changelogs"
)


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def _spec(name: str, *, cached: bool = False, logged: bool = True) -> StoreSpec:
    return StoreSpec(
        name=name, key_serde=serdes.string(), value_serde=serdes.json(), cached=cached, logged=logged
    )


def _pair(left: Any, right: Any) -> list[Any]:
    return [left, right]


def _bound(build: Callable[[KTable, KTable], KTable], *, cached: bool = False) -> BoundTopology:
    builder = _builder()
    left, right = (builder.table(name, store=_spec(f"{name}-s", cached=cached)) for name in ("l", "r"))
    build(left, right).to_stream().send_to("out")
    return BoundTopology(builder.build())


def _values(bound: BoundTopology, *piped: tuple[str, Any]) -> list[Any]:
    found = []
    for time_ms, (topic, value) in enumerate(piped):
        bound.pipe(topic, "a", value, timestamp_ms=time_ms)
        found.append([output.value for output in bound.read("out")])
    return found


STEPS = (("l", 1), ("r", 2), ("l", 3), ("r", 4), ("r", None), ("l", 5), ("r", 6), ("l", None), ("r", None))


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("join", [[], [[1, 2]], [[3, 2]], [[3, 4]], [None], [], [[5, 6]], [None], []]),
        (
            "left_join",
            [[[1, None]], [[1, 2]], [[3, 2]], [[3, 4]], [[3, None]], [[5, None]], [[5, 6]], [None], []],
        ),
        (
            "outer_join",
            [
                [[1, None]],
                [[1, 2]],
                [[3, 2]],
                [[3, 4]],
                [[3, None]],
                [[5, None]],
                [[5, 6]],
                [[None, 6]],
                [None],
            ],
        ),
    ],
)
def test_result_follows_both_sides(call: str, expected: list[Any], kept: bool) -> None:
    store = _spec("joined") if kept else None
    bound = _bound(lambda left, right: getattr(left, call)(right, _pair, store=store))
    assert _values(bound, *STEPS) == expected
    if kept:
        assert list(bound.stores["joined"].all()) == []


def test_result_has_the_later_timestamp_of_both_entries() -> None:
    bound = _bound(lambda left, right: left.join(right, _pair))
    bound.pipe("l", "a", 1, timestamp_ms=9)
    bound.pipe("r", "a", 2, timestamp_ms=4)
    bound.pipe("r", "a", 3, timestamp_ms=12)
    assert bound.read("out") == [Output("a", [1, 2], 9), Output("a", [1, 3], 12)]


def test_table_is_joined_with_itself() -> None:
    builder = _builder()
    table = builder.table("l", store=_spec("s"))
    table.join(table, _pair).to_stream().send_to("out")
    bound = BoundTopology(builder.build())
    assert [found[-1] for found in _values(bound, ("l", 1), ("l", 2), ("l", None))] == [[1, 1], [2, 2], None]


def test_key_is_deleted_when_the_joiner_gives_none() -> None:
    bound = _bound(lambda left, right: left.join(right, lambda ours, theirs: ours + theirs or None))
    assert _values(bound, ("l", 1), ("r", 1), ("l", -1)) == [[], [2], [None]]


def _summed(table: KTable) -> KTable:
    """Return the sum over a table of pairs; wrong as soon as something is taken back that was never given."""
    grouped = table.group_by(lambda key, pair: ("all", sum(value or 0 for value in pair)))
    return grouped.reduce(lambda total, value: total + value, lambda total, value: total - value)


@pytest.mark.parametrize("call", ["join", "left_join", "outer_join"])
@pytest.mark.parametrize("cached", [False, True])
def test_sum_over_a_join_is_right_when_both_sides_change_between_two_commit_points(
    call: str, cached: bool
) -> None:
    bound = _bound(lambda left, right: _summed(getattr(left, call)(right, _pair)), cached=cached)
    for left, right in ((1, 10), (2, 20), (3, None), (None, 30), (4, 40), (5, 50)):
        bound.pipe("l", "a", left)
        bound.pipe("r", "a", right)
        bound.flush()
    assert bound.read("out")[-1].value == 55


@pytest.mark.parametrize("call", ["join", "left_join", "outer_join"])
@pytest.mark.parametrize("cached", [False, True])
def test_sum_over_a_join_is_right_when_both_sides_come_from_one_table(call: str, cached: bool) -> None:
    builder = _builder()
    table = builder.table("l", store=_spec("s", cached=cached))
    even = table.filter(lambda key, value: value % 2 == 0)
    tenfold = table.map_values(lambda value: value * 10 if value > 2 else None)
    _summed(getattr(even, call)(tenfold, _pair)).to_stream().send_to("out")
    bound = BoundTopology(builder.build())
    for value in (1, 2, 3, 5, None, 6, 4):
        bound.pipe("l", "a", value)
        bound.flush()
    assert bound.read("out")[-1].value == 44


def test_joins_are_joined_when_none_of_them_has_a_store() -> None:
    bound = _bound(
        lambda left, right: left.join(right, _pair).left_join(left.outer_join(right, _pair), _pair)
    )
    assert [found[-1:] for found in _values(bound, ("l", 1), ("r", 2), ("l", 3), ("r", None))] == [
        [],
        [[[1, 2], [1, 2]]],
        [[[3, 2], [3, 2]]],
        [None],
    ]


def test_stream_is_joined_with_a_joined_table() -> None:
    builder = _builder()
    joined = builder.table("l", store="ls").outer_join(builder.table("r", store="rs"), _pair)
    builder.stream("orders").join(joined, lambda order, pair: [order, *pair]).send_to("out")
    bound = BoundTopology(builder.build())
    assert _values(bound, ("orders", 1), ("l", 2), ("orders", 3), ("r", 4), ("orders", 5)) == [
        [],
        [],
        [[3, 2, None]],
        [],
        [[5, 2, 4]],
    ]
    (sub,) = builder.build().plan("app").subtopologies
    assert sub.copartitioned == (("l", "orders", "r"),)


def test_description_names_nodes_and_stores_as_kafka_streams_does() -> None:
    builder = _builder()
    builder.table("l", store="ls").join(builder.table("r", store="rs"), _pair, store="both")
    described = builder.build().describe()
    for line in (
        "KTABLE-JOINTHIS-0000000004 (stores: [ls, rs])",
        "KTABLE-JOINOTHER-0000000005 (stores: [ls, rs])",
        "KTABLE-MERGE-0000000006 (stores: [both])",
    ):
        assert line in described
    entry_keys = builder.build().plan("app").subtopologies[0].entry_keys
    assert {changelog: keys.unfit for changelog, keys in entry_keys.items()} == {
        "app-ls-changelog": "",
        "app-rs-changelog": "",
        "app-both-changelog": "",
    }


def test_join_is_refused_when_the_tables_do_not_fit() -> None:
    builder = _builder()
    left = builder.table("l")
    with pytest.raises(TopologyError, match=r"joins tables with keys of serdes.string and of") as caught:
        left.join(builder.table("r", key_serde=serdes.int64()), _pair)
    assert f"join at {__file__}:" in caught.value.cause
    assert caught.value.fix.endswith("with a selector that gives keys of the other's serde")
    with pytest.raises(TopologyError, match="expected a KTable of the same builder"):
        left.outer_join(_builder().table("r"), _pair)
    with pytest.raises(TopologyError, match="expected a KTable"):
        left.left_join(builder.stream("s"), _pair)  # type: ignore[call-overload]
    with pytest.raises(TopologyError, match=r"join at .*joiner"):
        left.join(left, None)  # type: ignore[call-overload]
    with pytest.raises(TopologyError, match="needs the changelog of the store 'u'"):
        left.join(builder.table("u", store=_spec("u", logged=False)), _pair)
    window = TumblingWindow(size_ms=10, grace_ms=0)
    counts = builder.stream("w").group_by_key().windowed_by(window).count(store="n")
    with pytest.raises(TopologyError, match="joins the table of windows 'n'"):
        left.join(counts, _pair)


def test_serde_of_results_is_asked_for_where_they_are_written() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string())
    left, right = (builder.table(name, value_serde=serdes.string()) for name in ("l", "r"))
    with pytest.raises(TopologyError, match="needs a value serde, and none is known after join at"):
        left.join(right, _pair).to_stream().send_to("out")
    with pytest.raises(TopologyError, match=r"join at .* needs a value serde"):
        left.join(right, _pair, store="both")
    left.join(right, _pair, value_serde=serdes.json()).to_stream().send_to("out")


def test_table_is_joined_with_its_own_groups_when_a_copy_of_it_is() -> None:
    builder = _builder()
    table = builder.table("l")
    counts = table.group_by(lambda key, value: (key[0], value)).count(store="n")
    with pytest.raises(TopologyError, match="can never stop") as caught:
        _joined_with(builder, table, counts)
    assert "table.to_stream().repartition(n).to_table()" in caught.value.fix
    builder = _builder()
    table = builder.table("l")
    counts = table.group_by(lambda key, value: (key[0], value)).count(store="n")
    topology = _joined_with(builder, table.to_stream().repartition(1).to_table(), counts)
    with TopologyTestDriver(topology, application_id="app") as driver:
        for key, value in (("a", 1), ("ab", 2), ("a", 3), ("ab", None)):
            driver.pipe_input("l", key=key, value=value, timestamp_ms=0)
        assert driver.read_output("out")[-1].value == [3, 1]


def test_table_is_joined_with_itself_when_no_copy_is() -> None:
    builder = _builder()
    table = builder.table("l")
    with pytest.raises(TopologyError, match="can never stop") as caught:
        _joined_with(builder, table, table.to_stream().repartition(1).to_table())
    assert "name it twice, without a copy" in caught.value.fix
    builder = _builder()
    table = builder.table("l")
    with TopologyTestDriver(_joined_with(builder, table, table), application_id="app") as driver:
        for value in (1, 2, None):
            driver.pipe_input("l", key="a", value=value, timestamp_ms=0)
        assert [record.value for record in driver.read_output("out")][-2:] == [[2, 2], None]


def _joined_with(builder: KStreamBuilder, left: KTable, right: KTable) -> Topology:
    left.join(right, _pair).to_stream().send_to("out")
    return builder.build()


def test_sum_over_a_join_is_right_when_one_side_waits_for_calls() -> None:
    async def tenfold(value: int | None) -> int | None:
        return value and value * 10

    builder = _builder()
    called = builder.stream("l").map_values_async(tenfold).to_table(store="ls")
    _summed(called.outer_join(builder.table("r", store="rs"), _pair)).to_stream().send_to("out")
    rows = [("l", "a", 1), ("r", "a", 2), ("r", "a", 3), ("l", "a", 4), ("r", "b", 5), ("l", "a", None)]
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        with driver.run():
            for time_ms, (topic, key, value) in enumerate([*rows, ("l", "b", 7)]):
                driver.pipe_input(topic, key=key, value=value, timestamp_ms=time_ms)
        assert driver.read_output("out")[-1].value == 78
