"""What lasts is called after what it is: no place in the file and no number of a node is part of its name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import (
    AsyncProcessor,
    CallContext,
    HoppingWindow,
    KStreamBuilder,
    ProcessorRecord,
    SessionWindow,
    SlidingWindow,
    StoreSpec,
    Topology,
    TopologyError,
    TumblingWindow,
    serdes,
)
from airflow_kstreams.streams.kstream.lasting_names import lasting_name
from airflow_kstreams.streams.plan import MadeOf
from airflow_kstreams.testing import TopologyTestDriver

pytestmark = pytest.mark.promise("lines-keep-their-state")

WINDOW = SlidingWindow(size_ms=10)


def made() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def taken(*arguments: Any) -> Any:
    return arguments


def ended(stream: Any) -> None:
    stream.send_to("out", value_serde=serdes.json(), key_serde=serdes.string())


def lasting(topology: Topology) -> list[str]:
    """Return what the plan makes of names: changelogs and repartition topics."""
    plan = topology.plan("app")
    return sorted(name.removeprefix("app-") for name in (*plan.changelogs, *plan.repartition_topics))


def by_window(window: Any) -> Callable[[KStreamBuilder], Any]:
    return lambda b: b.stream("orders").group_by_key().windowed_by(window).count()


def joined(call: str) -> Callable[[KStreamBuilder], Any]:
    return lambda b: getattr(b.stream("flights").with_window(WINDOW), call)(
        b.stream("weather").with_window(WINDOW), taken
    )


def cogrouped(b: KStreamBuilder) -> Any:
    groups = [b.stream(topic).group_by(taken) for topic in ("payments", "orders")]
    return groups[0].cogroup(taken).cogroup(groups[1], taken).aggregate(int)


NAMES: dict[str, tuple[Callable[[KStreamBuilder], Any], list[str]]] = {
    "count": (lambda b: b.stream("orders").group_by_key().count(), ["orders-count-changelog"]),
    "reduce": (lambda b: b.stream("orders").group_by_key().reduce(max), ["orders-reduce-changelog"]),
    "aggregate": (
        lambda b: b.stream("orders").group_by_key().aggregate(int, taken),
        ["orders-aggregate-changelog"],
    ),
    "rekeyed": (
        lambda b: b.stream("orders").group_by(taken).count(),
        ["orders-count-changelog", "orders-count-repartition"],
    ),
    "in a named group": (
        lambda b: b.stream("orders").group_by(taken, name="mine").count(),
        ["mine-repartition", "orders-count-changelog"],
    ),
    "behind a topic of the engine": (
        lambda b: b.stream("orders").repartition(2).group_by_key().count(),
        ["orders-count-changelog", "orders-repartition"],
    ),
    "behind a topic of the user": (
        lambda b: b.stream("orders").through("checked").group_by_key().count(),
        ["checked-count-changelog"],
    ),
    "behind steps without state": (
        lambda b: b.stream("orders").filter(taken).map_values(taken).peek(taken).group_by_key().count(),
        ["orders-count-changelog"],
    ),
    "behind a look into a table": (
        lambda b: b.stream("orders").join(b.table("shops"), taken).group_by_key().count(),
        ["orders-count-changelog", "shops-table-changelog"],
    ),
    "of several topics": (
        lambda b: b.stream("web", "shop").group_by_key().count(),
        ["shop-web-count-changelog"],
    ),
    "merged": (
        lambda b: b.stream("web").merge(b.stream("shop")).group_by_key().count(),
        ["shop-web-count-changelog"],
    ),
    "a fold of a fold": (
        lambda b: b.stream("orders").group_by_key().count().to_stream().group_by_key().reduce(max),
        ["orders-count-changelog", "orders-count-reduce-changelog"],
    ),
    "tumbling windows": (by_window(TumblingWindow(size_ms=5)), ["orders-windowed-count-changelog"]),
    "hopping windows": (
        by_window(HoppingWindow(size_ms=5, advance_ms=1)),
        ["orders-windowed-count-changelog"],
    ),
    "sessions": (by_window(SessionWindow(gap_ms=5)), ["orders-session-count-changelog"]),
    "sliding windows": (by_window(SlidingWindow(size_ms=5)), ["orders-sliding-count-changelog"]),
    "cogroup": (
        cogrouped,
        [
            "orders-payments-cogroup-changelog",
            "orders-payments-cogroup-orders-repartition",
            "orders-payments-cogroup-payments-repartition",
        ],
    ),
    "table": (lambda b: b.table("shops"), ["shops-table-changelog"]),
    "to_table": (
        lambda b: b.stream("orders").select_key(taken).to_table(),
        ["orders-to-table-changelog", "orders-to-table-repartition"],
    ),
    "fold of a table": (
        lambda b: b.table("shops").group_by(taken).count(),
        ["shops-table-changelog", "shops-table-count-changelog", "shops-table-count-repartition"],
    ),
    **{
        call: (
            joined(call),
            [f"flights-weather-{kind}-{side}-changelog" for side in ("left", "right")],
        )
        for call, kind in (
            ("join", "join"),
            ("left_join", "left-join"),
            ("outer_join", "outer-join"),
            ("join_prior", "join-prior"),
        )
    },
    "rekeyed join with a table": (
        lambda b: b.stream("orders").select_key(taken).join(b.table("shops"), taken),
        ["orders-repartition", "shops-table-changelog"],
    ),
    "foreign key": (
        lambda b: b.table("orders").left_join(b.table("shops"), taken, foreign_key=taken),
        [
            "orders-shops-foreign-key-left-join-answers-repartition",
            "orders-shops-foreign-key-left-join-copies-changelog",
            "orders-shops-foreign-key-left-join-copies-repartition",
            "orders-shops-foreign-key-left-join-subscriptions-changelog",
            "orders-shops-foreign-key-left-join-subscriptions-repartition",
            "orders-table-changelog",
            "shops-table-changelog",
        ],
    ),
}


def topology_of(line: Callable[[KStreamBuilder], Any], *, behind: int = 0) -> Topology:
    """Return a topology with one line.

    :param behind: how many other lines come before it.
    """
    builder = made()
    for number in range(behind):
        builder.stream(f"other-{number}").filter(taken).group_by(taken, name=f"g{number}").count(
            store=f"c{number}"
        )
    line(builder)
    return builder.build()


@pytest.mark.parametrize("line", [*NAMES])
def test_name_says_what_is_read_and_done(line: str) -> None:
    make, names = NAMES[line]
    assert lasting(topology_of(make)) == names


@pytest.mark.parametrize("line", [*NAMES])
def test_name_stays_when_other_lines_come_before(line: str) -> None:
    make, names = NAMES[line]
    assert {*names} < {*lasting(topology_of(make, behind=2))}
    assert not [name for name in lasting(topology_of(make, behind=2)) if re.search(r"\d{10}", name)]


@pytest.mark.parametrize("line", [*NAMES])
def test_plan_says_which_stores_the_user_gave_no_name_and_how_to_give_it(line: str) -> None:
    make, names = NAMES[line]
    topology = topology_of(make)
    made_of = {name: made for sub in topology.plan("app").subtopologies for name, made in sub.made_of.items()}
    assert {f"{store}-changelog" for store in made_of} == {n for n in names if n.endswith("-changelog")}
    assert not any(made.named for made in made_of.values())
    assert all(store.startswith(made.name) for store, made in made_of.items())


@pytest.mark.parametrize(
    ("name", "store"), [(None, "orders-shops-foreign-key-join-table"), ("mine", "mine-table")]
)
def test_result_of_a_join_by_foreign_key_is_kept_under_the_name_of_the_join(
    name: str | None, store: str
) -> None:
    builder = made()
    result = builder.table("orders").join(builder.table("shops"), taken, foreign_key=taken, name=name)
    builder.stream("asks").join(result.map_values(taken, value_serde=serdes.json()), taken)
    assert f"{store}-changelog" in lasting(builder.build())


def test_pattern_is_part_of_a_name_as_far_as_it_can_be() -> None:
    name = lasting_name(("/flights-\\d{4}/",), "count")
    assert re.fullmatch(r"flights-d-4-[0-9a-f]{8}-count", name), name
    assert name != lasting_name(("/flights-\\d{4,}/",), "count")


def test_name_is_cut_when_it_would_be_too_long() -> None:
    long = [f"{letter}{'x' * 100}" for letter in "ab"]
    names = {lasting_name((long[0], other), "join") for other in (long[1], f"{long[1]}y")}
    assert len(names) == 2
    assert {len(name) for name in names} == {150}


@pytest.mark.parametrize(
    ("line", "option"),
    [
        (lambda b: b.stream("orders").group_by(taken).count(), "store"),
        (lambda b: b.stream("orders").filter(taken).group_by_key().windowed_by(WINDOW).reduce(max), "store"),
        (lambda b: b.stream("orders").to_table(), "store"),
        (lambda b: b.table("orders").group_by(taken).count(), "store"),
        (lambda b: cogrouped(b), "store"),
        (joined("left_join"), "name"),
        (
            lambda b: b.table("orders").join(b.table("shops"), taken, foreign_key=taken),
            "name",
        ),
    ],
)
def test_second_of_one_name_is_refused_with_both_lines_and_what_to_write(line: Any, option: str) -> None:
    builder = made()
    line(builder)
    with pytest.raises(TopologyError) as caught:
        line(builder)
    cause = caught.value.cause
    assert len(re.findall(re.escape(__file__) + r":\d+", cause)) == 2, cause
    assert f'{option}="..."' in caught.value.fix


def test_two_of_one_name_are_taken_when_one_is_named() -> None:
    builder = made()
    stream = builder.stream("orders")
    stream.group_by(taken).count()
    stream.filter(taken).group_by_key().count(store="large")
    for name in (None, "again"):
        stream.with_window(WINDOW).join(builder.stream("b").with_window(WINDOW), taken, name=name)
    assert "orders-count-changelog" in lasting(builder.build())


def test_store_that_the_user_called_so_is_refused_with_both_lines() -> None:
    builder = made()
    builder.stream("shops").group_by_key().count(store="orders-count")
    with pytest.raises(
        TopologyError, match=r"two tables are kept in the store 'orders-count', at (.*):\d+"
    ) as caught:
        builder.stream("orders").group_by_key().count()
    assert len(re.findall(re.escape(__file__) + r":\d+", caught.value.cause)) == 2


def test_streams_that_are_rekeyed_in_two_ways_for_joins_are_refused_until_one_is_named() -> None:
    builder = made()
    orders, shops = builder.stream("orders"), builder.table("shops")
    orders.select_key(taken).join(shops, taken)
    with pytest.raises(
        TopologyError, match="two streams are repartitioned under the name 'orders', at"
    ) as caught:
        orders.select_key(lambda k, v: v).join(shops, taken)
    assert 'name="..."' in caught.value.fix
    orders.select_key(lambda k, v: v).join(shops, taken, name="by-value")


def test_topic_is_one_table_when_it_is_asked_for_twice_without_names() -> None:
    builder = made()
    assert builder.table("shops").store == builder.table("shops").store == "shops-table"
    assert builder.table("shops", store="mine").store == "mine"
    assert [store.name for store in builder.build().stores] == ["shops-table", "mine"]


class Asking(AsyncProcessor):
    def init(self, context: Any) -> None:
        self.context = context

    async def process(self, record: ProcessorRecord) -> None:
        self.context.forward(record.key, self.context.idempotency_key)


async def key_of(value: Any, *, context: CallContext) -> str:
    return context.idempotency_key


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (lambda s: s.map_values_async(key_of), "app/in-0@0/test/in-map-values-async/0"),
        (lambda s: s.process_async(Asking), "app/in-0@0/test/in-process-async/0"),
        (lambda s: s.map_values_async(key_of, name="mine"), "app/in-0@0/test/mine/0"),
    ],
)
@pytest.mark.parametrize("behind", [0, 1])
def test_idempotency_key_stays_when_other_lines_come_before(line: Any, key: str, behind: int) -> None:
    builder = made()
    for _ in range(behind):
        builder.stream("other").filter(taken).send_to("elsewhere")
    line(builder.stream("in")).send_to("out", key_serde=serdes.string(), value_serde=serdes.string())
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        driver.pipe_input("in", key="a", value=1, timestamp_ms=0)
        assert [record.value for record in driver.read_output("out")] == [key]


def test_two_nodes_that_would_give_one_idempotency_key_are_refused() -> None:
    stream = made().stream("in")
    stream.map_values_async(key_of)
    with pytest.raises(TopologyError, match="would have the name 'in-map-values-async'") as caught:
        stream.filter(taken).map_values_async(key_of)
    assert 'name="..."' in caught.value.fix

    async def without(value: Any) -> Any:
        return value

    stream.map_values_async(without).map_values_async(without).map_values_async(key_of, name="mine")


def test_spec_names_a_store_too() -> None:
    builder = made()
    spec = StoreSpec(name="mine", key_serde=serdes.string(), value_serde=serdes.int64())
    builder.stream("orders").group_by_key().count(store=spec)
    (sub,) = builder.build().plan("app").subtopologies
    assert sub.made_of == {"mine": MadeOf("count", ("orders",), "mine", "spec", named=True)}
