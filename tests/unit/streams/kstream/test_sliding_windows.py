from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStreamBuilder,
    Processor,
    ProcessorRecord,
    SlidingWindow,
    StoreSpec,
    Topology,
    TopologyError,
    Windowed,
    WindowStoreSpec,
    serdes,
)
from airflow_kstreams.testing import TopologyTestDriver

KEYS = serdes.time_windowed(serdes.string(), 10)


class Nothing(Processor):
    def process(self, record: ProcessorRecord) -> None:
        pass


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def store(**options: Any) -> StoreSpec:
    return StoreSpec(name="w", key_serde=serdes.string(), value_serde=serdes.json(), cached=False, **options)


def summed(
    *, grace_ms: int = 100, spec: StoreSpec | None = None, final: bool = False, reader: str | None = None
) -> Topology:
    made = builder()
    grouped = made.stream("in").group_by_key().windowed_by(SlidingWindow(size_ms=10, grace_ms=grace_ms))
    windows = grouped.reduce(lambda total, value: total + value, store=spec or store())
    (windows.suppress() if final else windows).to_stream().send_to("out")
    if reader is not None:
        made.stream("in").process(Nothing, reader)
    return made.build()


def changes(driver: TopologyTestDriver) -> list[tuple[int, int]]:
    return [(r.key.start_ms, r.value) for r in driver.read_output("out", key_serde=KEYS)]


def test_window_ends_with_each_record_and_another_begins_behind_it() -> None:
    with TopologyTestDriver(summed(), application_id="app") as driver:
        found = []
        for time_ms, value in ((20, 1), (25, 2), (31, 4)):
            driver.pipe_input("in", key="k", value=value, timestamp_ms=time_ms)
            found.append(changes(driver))
    # 20 lies in [10, 20]; 25 behind it makes [21, 31] and its own [15, 25]; 31 is in [21, 31] and [26, 36]
    assert found == [[(10, 1)], [(21, 2), (15, 3)], [(21, 6), (26, 4)]]


def test_record_that_comes_out_of_order_goes_into_every_window_that_holds_it() -> None:
    with TopologyTestDriver(summed(), application_id="app") as driver:
        for time_ms, value in ((20, 1), (31, 4)):
            driver.pipe_input("in", key="k", value=value, timestamp_ms=time_ms)
        changes(driver)
        driver.pipe_input("in", key="k", value=2, timestamp_ms=25)
        # [21, 31] holds it too; then its own window, and the one behind it with what came before
        assert changes(driver) == [(21, 6), (15, 3), (26, 4)]


def test_window_behind_the_record_before_is_made_when_that_one_came_late_for_an_older_window() -> None:
    with TopologyTestDriver(summed(grace_ms=0), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=1, timestamp_ms=30)
        driver.pipe_input("in", key="other", value=9, timestamp_ms=36)
        driver.pipe_input("in", key="k", value=2, timestamp_ms=27)  # begins [28, 38] with the record at 30
        driver.pipe_input("in", key="k", value=4, timestamp_ms=31)
        changes(driver)
        driver.pipe_input("in", key="k", value=8, timestamp_ms=38)
        # [28, 38] ends with the record and was there; [20, 30] was closed before the one at 31
        assert changes(driver) == [(31, 12), (28, 13), (32, 8)]


def test_records_before_the_first_whole_window_share_the_one_at_the_epoch() -> None:
    with TopologyTestDriver(summed(), application_id="app") as driver:
        for time_ms, value in ((4, 1), (2, 2), (10, 4)):
            driver.pipe_input("in", key="k", value=value, timestamp_ms=time_ms)
        assert dict(changes(driver)) == {0: 7, 3: 5, 5: 4}


def test_size_of_zero_folds_records_of_one_time() -> None:
    made = builder()
    grouped = made.stream("in").group_by_key().windowed_by(SlidingWindow(size_ms=0))
    grouped.count(store="w").to_stream().send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        for time_ms in (5, 5, 6):
            driver.pipe_input("in", key="k", value=1, timestamp_ms=time_ms)
        assert [(r.key, r.value) for r in driver.read_output("out")] == [
            (Windowed("k", 5, 5), 1),
            (Windowed("k", 5, 5), 2),
            (Windowed("k", 6, 6), 1),
        ]


def test_record_is_dropped_and_counted_when_no_window_takes_it() -> None:
    with TopologyTestDriver(summed(grace_ms=0), application_id="app") as driver:
        for key, time_ms in (("k", 100), ("k", 89), ("other", 95), ("k", 95), ("k", 94)):
            driver.pipe_input("in", key=key, value=1, timestamp_ms=time_ms)
        # [79, 89] and what could lie behind 89 are closed; 95 is in a window that is open only beside 100
        assert changes(driver) == [(90, 1), (90, 2), (96, 1), (90, 3), (95, 2)]
        assert driver.counts.by("late") == 2


def test_records_without_key_value_or_time_are_dropped_and_counted() -> None:
    with TopologyTestDriver(summed(), application_id="app") as driver:
        driver.pipe_input("in", key=None, value=1, timestamp_ms=1)
        driver.pipe_input("in", key="k", value=None, timestamp_ms=1)
        assert changes(driver) == []
        assert driver.counts.by("null") == 2


def test_window_is_deleted_when_its_aggregate_becomes_none() -> None:
    made = builder()
    grouped = made.stream("in").group_by_key().windowed_by(SlidingWindow(size_ms=10))
    grouped.reduce(
        lambda total, value: None if value == 0 else total + value, store=store()
    ).to_stream().send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        for time_ms, value in ((20, 1), (20, 0), (20, 3)):
            driver.pipe_input("in", key="k", value=value, timestamp_ms=time_ms)
        assert changes(driver) == [(10, 1), (10, None), (10, 3)]


def test_closed_windows_are_kept_beside_open_ones_as_long_as_later_ones_need_them() -> None:
    with TopologyTestDriver(summed(grace_ms=0), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=1, timestamp_ms=20)
        driver.pipe_input("in", key="k", value=2, timestamp_ms=25)
        assert [start_ms for (_, start_ms), _ in driver.store("w").all()] == [10, 15, 21]
        driver.restart()
        driver.pipe_input("in", key="k", value=4, timestamp_ms=29)  # begins with what [15, 25] held
        assert changes(driver)[-1] == (19, 7)
        driver.pipe_input("in", key="other", value=1, timestamp_ms=90)
        assert [start_ms for (_, start_ms), _ in driver.store("w").all()] == [80]


def test_closed_windows_have_a_store_of_their_own_where_suppress_waits_for_them() -> None:
    with TopologyTestDriver(summed(grace_ms=0, final=True), application_id="app") as driver:
        driver.pipe_input("in", key="k", value=1, timestamp_ms=20)
        driver.pipe_input("in", key="k", value=2, timestamp_ms=25)
        assert changes(driver) == [(10, 1)]
        assert [start_ms for (_, start_ms), _ in driver.store("w").all()] == [15, 21]
        assert [start_ms for (_, start_ms), _ in driver.store("w-closed").all()] == [10]
        driver.restart()
        driver.pipe_input("in", key="k", value=4, timestamp_ms=29)  # begins with what [15, 25] held
        driver.pipe_input("in", key="other", value=1, timestamp_ms=90)
        assert (19, 7) in changes(driver)
        assert [*driver.store("w-closed").all()] == []


def test_no_second_store_is_made_where_the_first_one_can_keep_windows_long_enough() -> None:
    def stores(retention_ms: int, **options: Any) -> list[str]:
        spec = WindowStoreSpec(
            name="w",
            key_serde=serdes.string(),
            value_serde=serdes.json(),
            cached=False,
            retention_ms=retention_ms,
        )
        return [each.name for each in summed(grace_ms=5, spec=spec, **options).stores]

    assert stores(16) == ["w"]
    assert stores(16, final=True) == ["w", "w-closed"]
    assert stores(16, reader="w-closed") == ["w", "w-closed"]
    assert stores(27, reader="w") == ["w"]
    with pytest.raises(TopologyError, match="may change for 16 ms"):
        stores(15)


def test_windows_without_suppress_are_kept_for_both_sizes_and_grace() -> None:
    assert [getattr(each, "retention_ms", None) for each in summed(grace_ms=5).stores] == [27]


def test_entries_of_both_stores_follow_their_keys_to_added_processors() -> None:
    plan = summed(final=True).plan("app")
    (sub,) = plan.subtopologies
    assert {name: (keys.unfit, keys.suffix) for name, keys in sub.entry_keys.items()} == {
        "app-w-changelog": ("", 8),
        "app-w-closed-changelog": ("", 8),
    }


def test_windows_hold_what_their_records_gave_when_an_aggregator_changes_its_aggregate() -> None:
    def noted(key: str, value: Any, seen: list[Any]) -> list[Any]:
        seen.append(value)
        return seen

    made = builder()
    grouped = made.stream("in").group_by_key().windowed_by(SlidingWindow(size_ms=10))
    grouped.aggregate(list, noted, store="w")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        for time_ms, value in ((20, 1), (28, 2), (24, 3)):
            driver.pipe_input("in", key="k", value=value, timestamp_ms=time_ms)
        held = {start_ms: values for (_, start_ms), values in driver.store("w").all()}
    assert held == {10: [1], 14: [1, 3], 18: [1, 2, 3], 21: [2, 3], 25: [2]}


def test_final_results_come_when_stream_time_is_past_the_end_and_the_grace() -> None:
    made = builder()
    grouped = made.stream("in").group_by_key().windowed_by(SlidingWindow(size_ms=10, grace_ms=2))
    grouped.count(store="w").suppress().to_stream().send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        found = []
        for key, time_ms in (("k", 20), ("k", 21), ("other", 22), ("k", 20), ("other", 23), ("other", 24)):
            driver.pipe_input("in", key=key, value=1, timestamp_ms=time_ms)
            found.append([(r.key.start_ms, r.value) for r in driver.read_output("out")])
    assert found == [[], [], [], [], [(10, 2)], [(11, 3)]]


def test_merger_is_refused_for_windows_that_never_merge() -> None:
    grouped = builder().stream("in").group_by_key().windowed_by(SlidingWindow(size_ms=1))
    with pytest.raises(TopologyError, match=r"SlidingWindow at .* a merger"):
        grouped.aggregate(list, max, max)


def test_cogrouped_streams_are_folded_by_sliding_windows() -> None:
    made = builder()
    one, two = made.stream("one").group_by_key(), made.stream("two").group_by_key()
    cogroup = one.cogroup(lambda k, v, n: n + v).cogroup(two, lambda k, v, n: n - v)
    cogroup.windowed_by(SlidingWindow(size_ms=10)).aggregate(int, store=store()).to_stream().send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        driver.pipe_input("one", key="k", value=5, timestamp_ms=20)
        driver.pipe_input("two", key="k", value=3, timestamp_ms=22)
        assert changes(driver) == [(10, 5), (21, -3), (12, 2)]


@pytest.mark.parametrize("cached", [False, True])
def test_table_below_gets_new_and_old_values(cached: bool) -> None:
    made = builder()
    grouped = made.stream("in").group_by_key().windowed_by(SlidingWindow(size_ms=10, grace_ms=100))
    spec = StoreSpec(name="w", key_serde=serdes.string(), value_serde=serdes.json(), cached=cached)
    sums = grouped.aggregate(
        lambda: [0],
        lambda key, value, total: None if value is False else [*total, value],
        store=spec,
    )
    # Each window's length, summed over all windows of a key.
    lengths = sums.group_by(lambda windowed, total: (windowed.key, len(total) - 1))
    lengths.reduce(
        lambda total, length: total + length, lambda total, length: total - length, store="lengths"
    )
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        found = []
        # 25 makes [15, 25] of two and [21, 31]; 22 goes into both, and makes [12, 22] and [23, 33].
        for time_ms, value in ((20, 1), (25, 2), (22, 3), (40, False)):
            driver.pipe_input("in", key="k", value=value, timestamp_ms=time_ms)
            found.append(driver.store("lengths").get("k"))
    assert found == [1, 4, 9, 9]


def test_tables_below_get_deletions_with_the_value_that_was_there() -> None:
    made = builder()
    grouped = made.stream("in").group_by_key().windowed_by(SlidingWindow(size_ms=10, grace_ms=100))
    sums = grouped.reduce(lambda total, value: None if value < 0 else total + value, store=store())
    sums.filter(lambda windowed, total: total > 1).to_stream().send_to("out")
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        for value in (1, 2, -1, 5):
            driver.pipe_input("in", key="k", value=value, timestamp_ms=20)
        assert changes(driver) == [(10, 3), (10, None), (10, 5)]


@pytest.mark.parametrize("cached", [False, True])
def test_table_below_counts_a_window_once_that_is_behind_one_record_and_ends_with_the_next(
    cached: bool,
) -> None:
    made = builder()
    grouped = made.stream("in").group_by_key().windowed_by(SlidingWindow(size_ms=10, grace_ms=0))
    spec = StoreSpec(name="w", key_serde=serdes.string(), value_serde=serdes.json(), cached=cached)
    windows = grouped.aggregate(list, lambda key, value, values: [*values, value], store=spec)
    windows.group_by(lambda key, value: ("all", 1)).count(store="n").to_stream().send_to(
        "out", value_serde=serdes.int64()
    )
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        for time_ms in (95, 100, 111):
            driver.pipe_input("in", key="a", value=time_ms, timestamp_ms=time_ms)
        # [85, 95], [96, 106], [90, 100], and [101, 111], which begins right behind 100 and ends with 111
        assert driver.read_output("out", value_serde=serdes.int64())[-1].value == 4
