"""An aggregator that changes its aggregate in place and then raises, where a handler goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from airflow_kstreams.streams import (
    HoppingWindow,
    KGroupedStream,
    KStreamBuilder,
    KTable,
    SessionWindow,
    SlidingWindow,
    StoreSpec,
    Topology,
    TopologyError,
    TumblingWindow,
    serdes,
)
from airflow_kstreams.testing import TopologyTestDriver

pytestmark = pytest.mark.promise("left-out-records-leave-no-aggregate")

Order = dict[str, Any]
#: (key, order, timestamp)
Row = tuple[str, Order, int]
Fold = Callable[[KGroupedStream, StoreSpec], KTable]

GOOD: Order = {"cents": 5}
BAD: Order = {}


def empty() -> Order:
    return {"orders": 0, "cents": [0]}


def added(key: str, order: Order, total: Order) -> Order:
    total["orders"] += 1
    total["cents"].append(order["cents"])
    return total


def merged(key: str, left: Order, right: Order) -> Order:
    left["orders"] += right["orders"]
    left["cents"] += right["cents"]
    return left


def merged_into_the_later(key: str, left: Order, right: Order) -> Order:
    return merged(key, right, left)


def reduced(total: Order, order: Order) -> Order:
    total["orders"] = total.get("orders", 1) + 1
    total["cents"] += order["cents"]
    return total


FOLDS: dict[str, Fold] = {
    "aggregate": lambda group, spec: group.aggregate(empty, added, store=spec),
    "reduce": lambda group, spec: group.reduce(reduced, store=spec),
    "cogroup": lambda group, spec: group.cogroup(added).aggregate(empty, store=spec),
    "tumbling": lambda group, spec: group.windowed_by(TumblingWindow(size_ms=100)).aggregate(
        empty, added, store=spec
    ),
    "hopping": lambda group, spec: group.windowed_by(HoppingWindow(size_ms=100, advance_ms=50)).aggregate(
        empty, added, store=spec
    ),
    "sliding": lambda group, spec: group.windowed_by(SlidingWindow(size_ms=100, grace_ms=0)).aggregate(
        empty, added, store=spec
    ),
    "session": lambda group, spec: group.windowed_by(SessionWindow(gap_ms=100)).aggregate(
        empty, added, merged, store=spec
    ),
    "session, merged into the later": lambda group, spec: group.windowed_by(
        SessionWindow(gap_ms=100)
    ).aggregate(empty, added, merged_into_the_later, store=spec),
    "session reduce": lambda group, spec: group.windowed_by(SessionWindow(gap_ms=100)).reduce(
        reduced, store=spec
    ),
    "windowed cogroup": lambda group, spec: (
        group.cogroup(added).windowed_by(TumblingWindow(size_ms=100)).aggregate(empty, store=spec)
    ),
}


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def folding(kind: str, *, cached: bool = True, storage: Any = "memory") -> Topology:
    made = builder()
    spec = StoreSpec(
        name="totals",
        key_serde=serdes.string(),
        value_serde=serdes.json(),
        cached=cached,
        storage=storage,
    )
    table = FOLDS[kind](made.stream("orders").group_by_key(), spec)
    totals = table.to_stream().map(lambda key, total: (str(key), total))
    totals.send_to("totals", key_serde=serdes.string(), value_serde=serdes.json())
    return made.build()


def last_totals(topology: Topology, *runs: Sequence[Row], handler: str = "skip") -> dict[str, Order]:
    settings = {"processing.exception.handler": handler}
    with TopologyTestDriver(topology, application_id="app", settings=settings) as driver:
        for rows in runs:
            with driver.run():
                for key, order, time_ms in rows:
                    driver.pipe_input("orders", key=key, value=order, timestamp_ms=time_ms)
        totals = {record.key: record.value for record in driver.read_output("totals")}
        return {key: total for key, total in totals.items() if total is not None}


@pytest.mark.parametrize("handler", ["skip", "dead-letter"])
@pytest.mark.parametrize(("cached", "storage"), [(True, "memory"), (False, "memory"), (True, "rocksdb")])
@pytest.mark.parametrize("kind", FOLDS)
def test_left_out_record_is_not_in_the_aggregate_wherever_runs_are_cut(
    kind: str, cached: bool, storage: str, handler: str
) -> None:
    def topology() -> Topology:
        return folding(kind, cached=cached, storage=storage)

    first, bad, last = ("x", GOOD, 200), ("x", BAD, 201), ("x", GOOD, 202)
    expected = last_totals(topology(), [first, last])
    assert max(total["orders"] for total in expected.values()) == 2
    assert last_totals(topology(), [first, bad, last], handler=handler) == expected
    assert last_totals(topology(), [first], [bad], [last], handler=handler) == expected


@pytest.mark.parametrize("kind", [kind for kind in FOLDS if kind.startswith("session")])
def test_sessions_stay_apart_and_as_they_are_when_the_record_between_them_is_left_out(kind: str) -> None:
    def topology() -> Topology:
        return folding(kind)

    rows = [("x", GOOD, 100), ("x", GOOD, 300), ("x", BAD, 200)]
    expected = last_totals(topology(), rows[:2])
    alone = GOOD if kind == "session reduce" else {"orders": 1, "cents": [0, 5]}
    assert list(expected.values()) == [alone] * 2
    later = ("y", GOOD, 301)
    for runs in ([*rows, later],), (rows[:2], [rows[2]], [later]):
        found = last_totals(topology(), *runs)
        assert {key: total for key, total in found.items() if "'x'" in key} == expected


@pytest.mark.parametrize("cached", [True, False])
def test_change_of_a_grouped_table_is_neither_added_nor_subtracted_when_its_adder_raises(
    cached: bool,
) -> None:
    def removed(key: str, order: Order, total: Order) -> Order:
        total["orders"] -= 1
        total["cents"].remove(order["cents"])
        return total

    def topology() -> Topology:
        made = builder()
        orders, spec = (
            StoreSpec(name=name, key_serde=serdes.string(), value_serde=serdes.json(), cached=wanted)
            for name, wanted in (("orders", False), ("totals", cached))
        )
        grouped = made.table("orders", store=orders).group_by(lambda key, order: ("all", order))
        grouped.aggregate(empty, added, removed, store=spec).to_stream().send_to("totals")
        return made.build()

    expected = {"all": {"orders": 2, "cents": [0, 5, 5]}}
    rows = [("x", GOOD, 1), ("x", BAD, 2), ("y", GOOD, 3)]
    assert last_totals(topology(), rows) == expected
    assert last_totals(topology(), *([row] for row in rows)) == expected


def test_aggregator_gets_the_aggregate_itself_when_an_error_ends_the_task() -> None:
    given: list[list[int]] = []

    def noting(key: str, order: Order, total: list[int]) -> list[int]:
        given.append(total)
        return total

    for handler, same in (("fail", True), ("skip", False)):
        made = builder()
        made.stream("orders").group_by_key().aggregate(list, noting, store="totals")
        given.clear()
        settings = {"processing.exception.handler": handler}
        with TopologyTestDriver(made.build(), application_id="app", settings=settings) as driver:
            for _ in range(3):
                driver.pipe_input("orders", key="x", value=GOOD, timestamp_ms=0)
        _, first, second = given
        assert (first is second) is same


def test_aggregate_that_cannot_be_copied_is_refused_by_name_when_a_handler_goes_on() -> None:
    made = builder()
    counts = (
        made.stream("orders")
        .group_by_key()
        .aggregate(
            threading.Lock,
            lambda key, order, lock: lock,
            store=StoreSpec(name="locks", key_serde=serdes.string(), value_serde=serdes.json(), logged=False),
        )
    )
    counts.to_stream().map_values(lambda lock: 1).send_to("out")
    settings = {"processing.exception.handler": "skip"}
    with (
        TopologyTestDriver(made.build(), application_id="app", settings=settings) as driver,
        pytest.raises(TopologyError, match=r"(?s)lock cannot be copied.*processing\.exception\.handler=fail"),
    ):
        for _ in range(2):
            driver.pipe_input("orders", key="x", value=GOOD, timestamp_ms=0)
