from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import (
    HoppingWindow,
    KStreamBuilder,
    SessionWindow,
    StoreSpec,
    TumblingWindow,
    Windowed,
    WindowedKGroupedStream,
    WindowedKTable,
    serdes,
)
from airflow_kstreams.streams.partitioning import partition_of_key
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.topology.bound_topology import BoundTopology, Output

pytestmark = pytest.mark.promise("windows-go-on-from-run-to-run")

Fold = Callable[[WindowedKGroupedStream], WindowedKTable]


def _builder(fold: Fold, window: TumblingWindow | HoppingWindow) -> KStreamBuilder:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    fold(builder.stream("in").group_by_key().windowed_by(window)).to_stream().send_to("out")
    return builder


def _driver(fold: Fold, window: TumblingWindow | HoppingWindow) -> TopologyTestDriver:
    return TopologyTestDriver(_builder(fold, window).build(), application_id="app")


def _pipe(driver: TopologyTestDriver, *records: tuple[Any, Any, int]) -> list[tuple[Any, Any, int]]:
    for key, value, time_ms in records:
        driver.pipe_input("in", key=key, value=value, timestamp_ms=time_ms)
    return [(record.key, record.value, record.timestamp_ms) for record in driver.read_output("out")]


def _last_or_none(key: str, value: int, seen: Any) -> Any:
    return value or None


def test_count_tells_windows_apart_when_tumbling() -> None:
    driver = _driver(lambda grouped: grouped.count(store="w"), TumblingWindow(size_ms=10))
    assert _pipe(driver, ("a", 0, 0), ("a", 0, 9), ("b", 0, 9), ("a", 0, 10)) == [
        (Windowed("a", 0, 10), 1, 0),
        (Windowed("a", 0, 10), 2, 9),
        (Windowed("b", 0, 10), 1, 9),
        (Windowed("a", 10, 20), 1, 10),
    ]
    assert (driver.store("w").get("a", 0), driver.store("w").get("a", 10)) == (2, 1)
    assert list(driver.store("w").range("a", 0, 9)) == [(0, 2)]


def test_record_counts_in_every_window_it_lies_in_when_hopping() -> None:
    driver = _driver(lambda grouped: grouped.count(), HoppingWindow(size_ms=10, advance_ms=4))
    assert _pipe(driver, ("a", 0, 5), ("a", 0, 12)) == [
        (Windowed("a", 0, 10), 1, 5),
        (Windowed("a", 4, 14), 1, 5),
        (Windowed("a", 4, 14), 2, 12),
        (Windowed("a", 8, 18), 1, 12),
        (Windowed("a", 12, 22), 1, 12),
    ]


def test_reduce_starts_from_the_first_value_when_a_window_is_new() -> None:
    driver = _driver(lambda grouped: grouped.reduce(max), TumblingWindow(size_ms=10))
    records = (("a", 3, 1), ("a", 2, 2), ("a", 1, 11))
    assert [value for _, value, _ in _pipe(driver, *records)] == [3, 3, 1]


def test_aggregate_begins_anew_when_a_window_is_new() -> None:
    driver = _driver(
        lambda grouped: grouped.aggregate(list, lambda key, value, seen: [*seen, value]),
        HoppingWindow(size_ms=10, advance_ms=5),
    )
    assert [value for _, value, _ in _pipe(driver, ("a", 1, 1), ("a", 2, 6))] == [[1], [1, 2], [2]]


def test_timestamp_is_the_largest_when_records_come_out_of_order() -> None:
    driver = _driver(lambda grouped: grouped.count(), TumblingWindow(size_ms=10))
    assert [time_ms for _, _, time_ms in _pipe(driver, ("a", 0, 7), ("a", 0, 3))] == [7, 7]


def test_late_record_counts_until_the_grace_is_over_when_stream_time_went_on() -> None:
    bound = BoundTopology(
        _builder(lambda grouped: grouped.count(), TumblingWindow(size_ms=10, grace_ms=5)).build()
    )
    for time_ms in (2, 14, 3, 15, 4):
        bound.pipe("in", "a", 0, timestamp_ms=time_ms)
        bound.flush()
    assert [output.value for output in bound.read("out")] == [1, 1, 2, 2]
    assert bound.dropped == 1


def test_record_counts_in_the_windows_still_open_when_others_are_closed() -> None:
    bound = BoundTopology(
        _builder(lambda grouped: grouped.count(), HoppingWindow(size_ms=10, advance_ms=5, grace_ms=0)).build()
    )
    for key, time_ms in (("b", 12), ("a", 8)):
        bound.pipe("in", key, 0, timestamp_ms=time_ms)
        bound.flush()
    assert bound.read("out") == [
        Output(Windowed("b", 5, 15), 1, 12),
        Output(Windowed("b", 10, 20), 1, 12),
        Output(Windowed("a", 5, 15), 1, 8),
    ]
    assert bound.dropped == 0


@pytest.mark.promise("same-as-kafka-streams")
def test_record_is_dropped_when_it_has_no_key_no_value_or_no_time() -> None:
    bound = BoundTopology(_builder(lambda grouped: grouped.count(), TumblingWindow(size_ms=10)).build())
    for key, value, time_ms in ((None, 0, 1), ("a", None, 1), ("a", 0, -1)):
        bound.pipe("in", key, value, timestamp_ms=time_ms)
    bound.flush()
    assert (bound.read("out"), bound.dropped) == ([], 3)


def test_window_is_deleted_when_the_fold_gives_none() -> None:
    driver = _driver(lambda grouped: grouped.aggregate(int, _last_or_none), TumblingWindow(size_ms=10))
    assert _pipe(driver, ("a", 0, 1), ("a", 1, 2), ("a", 0, 3)) == [
        (Windowed("a", 0, 10), 1, 2),
        (Windowed("a", 0, 10), None, 3),
    ]


def test_cached_table_forgets_a_window_when_it_came_and_went_between_commit_points() -> None:
    bound = BoundTopology(
        _builder(lambda grouped: grouped.aggregate(int, _last_or_none), TumblingWindow(size_ms=10)).build()
    )
    for key, value in (("a", 1), ("b", 1), ("c", 1), ("a", 0), ("c", 0), ("c", 2)):
        bound.pipe("in", key, value, timestamp_ms=5)
    bound.flush()
    assert bound.read("out") == [
        Output(Windowed("b", 0, 10), 1, 5),
        Output(Windowed("c", 0, 10), 2, 5),
    ]
    bound.pipe("in", "b", 0, timestamp_ms=6)
    bound.pipe("in", "b", 3, timestamp_ms=7)
    bound.pipe("in", "b", 0, timestamp_ms=8)
    bound.flush()
    assert bound.read("out") == [Output(Windowed("b", 0, 10), None, 8)]


def test_cached_table_emits_a_window_once_when_a_commit_point_comes() -> None:
    bound = BoundTopology(
        _builder(lambda grouped: grouped.count(store="w"), TumblingWindow(size_ms=10)).build()
    )
    for key, time_ms in (("b", 1), ("a", 2), ("b", 3), ("b", 11)):
        bound.pipe("in", key, 0, timestamp_ms=time_ms)
    assert bound.read("out") == []
    bound.flush()
    assert bound.read("out") == [
        Output(Windowed("b", 0, 10), 2, 3),
        Output(Windowed("a", 0, 10), 1, 2),
        Output(Windowed("b", 10, 20), 1, 11),
    ]
    bound.flush()
    assert bound.read("out") == []


def test_last_change_is_emitted_when_a_window_leaves_the_store_before_the_commit_point() -> None:
    bound = BoundTopology(
        _builder(lambda grouped: grouped.count(store="w"), TumblingWindow(size_ms=10, grace_ms=0)).build()
    )
    for time_ms in (1, 2, 10):
        bound.pipe("in", "a", 0, timestamp_ms=time_ms)
    assert bound.read("out") == [Output(Windowed("a", 0, 10), 2, 2)]
    bound.flush()
    assert bound.read("out") == [Output(Windowed("a", 10, 20), 1, 10)]
    assert [at for at, _ in bound.stores["w"].all()] == [("a", 10)]


def test_windows_expire_when_they_were_restored_before_the_table_was_bound() -> None:
    topology = _builder(lambda grouped: grouped.count(store="w"), TumblingWindow(size_ms=10)).build()
    bound = BoundTopology(topology)
    bound.stores["w"].restore(b"a" + bytes(8), (7).to_bytes(8, "big"), 5)
    bound.clock.fire()
    for timer in bound.clock._timers:
        timer.set(None)
    for callbacks in bound.opens.values():
        for callback in callbacks:
            callback()
    bound.pipe("in", "b", 0, timestamp_ms=86_400_009)
    assert bound.stores["w"].approximate_count() == 2
    bound.pipe("in", "b", 0, timestamp_ms=86_400_010)
    assert [at for at, _ in bound.stores["w"].all()] == [("b", 86_400_000), ("b", 86_400_010)]


def test_uncached_table_emits_with_every_record_when_told_so() -> None:
    spec = StoreSpec(name="w", key_serde=serdes.string(), value_serde=serdes.int64(), cached=False)
    bound = BoundTopology(
        _builder(lambda grouped: grouped.count(store=spec), TumblingWindow(size_ms=10)).build()
    )
    for time_ms in (1, 2):
        bound.pipe("in", "a", 0, timestamp_ms=time_ms)
    assert [output.value for output in bound.read("out")] == [1, 2]
    assert bound.flushes == {}


def test_changelog_holds_key_and_start_and_a_tombstone_when_a_window_expires() -> None:
    driver = _driver(lambda grouped: grouped.count(store="w"), TumblingWindow(size_ms=10, grace_ms=0))
    _pipe(driver, ("a", 0, 5), ("b", 0, 10))
    assert [(record.key, record.value) for record in driver.read_output("app-w-changelog")] == [
        (("a", 0), 1),
        (("a", 0), None),
        (("b", 10), 1),
    ]


@pytest.mark.parametrize("window", [TumblingWindow(size_ms=10), SessionWindow(gap_ms=5)])
def test_windows_lie_in_the_partition_of_their_key_when_written(window: Any) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    counts = builder.stream("in").group_by_key().windowed_by(window).count(store="w")
    counts.to_stream().send_to("out")
    driver = TopologyTestDriver(builder.build(), application_id="app", partitions={"out": 7})
    for key in ("a", "b", "c"):
        for time_ms in (0, 100, 200):
            driver.pipe_input("in", key=key, value=0, timestamp_ms=time_ms)
    written = driver.read_output("out")
    assert len(written) == 9
    assert [r.partition for r in written] == [partition_of_key(r.key.key.encode(), 7, 7) for r in written]
    assert len({r.partition for r in written}) > 1
