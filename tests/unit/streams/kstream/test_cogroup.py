from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from airflow_kstreams.streams import (
    HoppingWindow,
    KGroupedStream,
    KStreamBuilder,
    SessionWindow,
    StoreSpec,
    Topology,
    TopologyError,
    TumblingWindow,
    serdes,
)
from airflow_kstreams.testing import InMemoryKafka, TopologyTestDriver
from tests.support.kafka.in_process import Application

#: (topic, key, value, timestamp)
ROWS = [
    ("a", "x", 1, 3),
    ("b", "x", 10, 4),
    ("a", "y", 2, 5),
    ("b", "x", 20, 12),
    ("a", "x", 3, 13),
    ("b", "y", 30, 9),
    ("c", "y", 100, 14),
    ("a", "x", 4, 2),
]


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def noting(name: str) -> Any:
    return lambda key, value, seen: [*seen, [name, value]]


def cogrouped(groups: list[KGroupedStream]) -> Any:
    first, *others = groups
    cogroup = first.cogroup(noting("a"))
    for name, group in zip("bc", others, strict=False):
        cogroup = cogroup.cogroup(group, noting(name))
    return cogroup


def topology(*, cached: bool = False, rekeyed: bool = False) -> Topology:
    made = builder()
    groups = [made.stream(name).group_by_key() for name in "abc"]
    if rekeyed:
        groups[1] = made.stream("b").group_by(lambda key, value: key)
    spec = StoreSpec(name="seen", key_serde=serdes.string(), value_serde=serdes.json(), cached=cached)
    cogrouped(groups).aggregate(list, store=spec).to_stream().send_to("out")
    return made.build()


def updates(rows: list[Any]) -> list[tuple[str, Any]]:
    """Say what a table without cache emits, worked out by hand."""
    seen: dict[str, list[Any]] = defaultdict(list)
    found = []
    for topic, key, value, _ in rows:
        seen[key].append([topic, value])
        found.append((key, [*seen[key]]))
    return found


@pytest.mark.parametrize("rekeyed", [False, True])
def test_records_of_all_streams_are_folded_in_the_order_in_which_they_come(*, rekeyed: bool) -> None:
    with TopologyTestDriver(topology(rekeyed=rekeyed), application_id="app") as driver:
        for topic, key, value, time_ms in ROWS:
            driver.pipe_input(topic, key=key, value=value, timestamp_ms=time_ms)
        assert [(record.key, record.value) for record in driver.read_output("out")] == updates(ROWS)


def test_each_key_is_emitted_once_at_a_commit_point_when_the_table_is_cached() -> None:
    with TopologyTestDriver(topology(cached=True), application_id="app") as driver:
        with driver.run():
            for topic, key, value, time_ms in ROWS:
                driver.pipe_input(topic, key=key, value=value, timestamp_ms=time_ms)
        found = [record.key for record in driver.read_output("out")]
    assert sorted(found) == ["x", "y"]


def test_topics_of_groups_without_names_are_called_after_the_store_and_what_they_read() -> None:
    made = builder()
    groups = [made.stream(name).group_by(lambda key, value: key) for name in "ab"]
    groups.append(made.stream("c").group_by(lambda key, value: key, name="mine"))
    cogrouped(groups).aggregate(list, store="seen")
    found = [topic.name for topic in made.build().internal_topics]
    assert found == ["seen-a-repartition", "seen-b-repartition", "mine-repartition"]


@pytest.mark.parametrize("rekeyed", [False, True])
def test_aggregates_are_the_same_when_runs_begin_anew_between_the_records(*, rekeyed: bool) -> None:
    kafka = InMemoryKafka()
    for topic in ("a", "b", "c", "out"):
        kafka.create_topic(topic)
    app = Application(
        application_id="app", topology=topology(rekeyed=rekeyed), on=kafka, settings={"settle.ms": 0}
    )
    for number, (topic, key, value, time_ms) in enumerate(ROWS):
        kafka.append(topic, b"%d" % value, key.encode(), timestamp_ms=time_ms)
        app.run(f"run-{number}")
    written = [serdes.json().deserialize(value or b"") for value in kafka.values("out")]
    assert written == [value for _, value in updates(ROWS)]


def test_key_is_deleted_when_an_aggregator_returns_none() -> None:
    made = builder()
    levels, ends = made.stream("levels").group_by_key(), made.stream("ends").group_by_key()
    totals = levels.cogroup(lambda k, v, total: total + v).cogroup(ends, lambda k, v, total: None)
    totals.aggregate(lambda: 0, store="totals").to_stream().send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        for topic in ("ends", "levels", "levels", "ends", "levels"):
            driver.pipe_input(topic, key="k", value=2, timestamp_ms=0)
        assert [record.value for record in driver.read_output("out")] == [2, 4, None, 2]


def test_records_without_key_or_value_are_dropped_and_counted() -> None:
    with TopologyTestDriver(topology(), application_id="app") as driver:
        driver.pipe_input("a", key=None, value=1, timestamp_ms=0)
        driver.pipe_input("b", key="x", value=None, timestamp_ms=0)
        assert driver.read_output("out") == []
        assert driver.counts.by("null") == 2


def windows_of(time_ms: int, size_ms: int, advance_ms: int) -> list[int]:
    """Return where the windows begin that a time lies in."""
    return [start for start in range(0, time_ms + 1, advance_ms) if start <= time_ms < start + size_ms]


@pytest.mark.parametrize(
    ("window", "advance_ms"),
    [(TumblingWindow(size_ms=10), 10), (HoppingWindow(size_ms=10, advance_ms=5), 5)],
)
def test_records_of_all_streams_are_folded_by_windows(window: Any, advance_ms: int) -> None:
    made = builder()
    grouped = cogrouped([made.stream(name).group_by_key() for name in "abc"]).windowed_by(window)
    table = grouped.aggregate(list, store="seen")
    table.to_stream().map(lambda at, seen: (at.key, [at.start_ms, seen])).send_to("out")
    last: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for topic, key, value, time_ms in ROWS:
        for start_ms in windows_of(time_ms, 10, advance_ms):
            last[key, start_ms].append([topic, value])
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        for topic, key, value, time_ms in ROWS:
            driver.pipe_input(topic, key=key, value=value, timestamp_ms=time_ms)
        found = {(record.key, record.value[0]): record.value[1] for record in driver.read_output("out")}
    assert found == last


def test_records_of_all_streams_are_folded_by_sessions() -> None:
    made = builder()
    grouped = cogrouped([made.stream(name).group_by_key() for name in "abc"])
    table = grouped.windowed_by(SessionWindow(gap_ms=3)).aggregate(
        list, lambda key, left, right: left + right, store="seen"
    )
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        for topic, key, value, time_ms in ROWS:
            driver.pipe_input(topic, key=key, value=value, timestamp_ms=time_ms)
        driver.pipe_input("c", key="x", value=0, timestamp_ms=9)
        driver.pipe_input("c", key="x", value=1, timestamp_ms=6)
        found = {(at.key, at.start_ms, at.end_ms): seen for at, seen in driver.store(table.store).all()}
    assert found == {
        ("x", 2, 13): [
            ["a", 1], ["b", 10], ["a", 4], ["b", 20], ["a", 3], ["c", 0], ["c", 1],
        ],
        ("y", 5, 5): [["a", 2]],
        ("y", 9, 9): [["b", 30]],
        ("y", 14, 14): [["c", 100]],
    }  # fmt: skip


def test_windows_of_redated_streams_go_by_the_new_times() -> None:
    made = builder()
    redated = made.stream("a").set_timestamp(lambda key, value: value)
    cogroup = (
        redated.group_by_key().cogroup(noting("a")).cogroup(made.stream("b").group_by_key(), noting("b"))
    )
    cogroup.windowed_by(TumblingWindow(size_ms=10)).aggregate(list, store="seen")
    assert [topic.name for topic in made.build().internal_topics] == ["seen-a-repartition"]


MISTAKES: dict[str, Any] = {
    "no function": lambda one, two, other: one.cogroup(None),
    "no group": lambda one, two, other: one.cogroup(max).cogroup(None, max),
    "twice": lambda one, two, other: one.cogroup(max).cogroup(one, max),
    "of another builder": lambda one, two, other: one.cogroup(max).cogroup(other, max),
    "no initializer": lambda one, two, other: one.cogroup(max).aggregate(None),
    "no window": lambda one, two, other: one.cogroup(max).windowed_by(5),
    "no merger": lambda one, two, other: one.cogroup(max).windowed_by(SessionWindow(gap_ms=1)).aggregate(int),
    "a merger in vain": lambda one, two, other: (
        one.cogroup(max).windowed_by(TumblingWindow(size_ms=1)).aggregate(int, max)
    ),
    "other keys": lambda one, two, other: one.cogroup(max).cogroup(two, max),
}


@pytest.mark.parametrize("mistake", [*MISTAKES])
def test_mistake_is_refused_with_the_users_line(mistake: str) -> None:
    made = builder()
    two = made.stream("n", key_serde=serdes.int64()).group_by_key()
    other = builder().stream("o").group_by_key()
    with pytest.raises(TopologyError) as caught:
        MISTAKES[mistake](made.stream("in").group_by_key(), two, other)
    assert f"{__file__}:" in caught.value.cause
    assert caught.value.fix
