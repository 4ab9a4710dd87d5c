from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.streams import (
    HoppingWindow,
    KStreamBuilder,
    SessionWindow,
    StoreSpec,
    Topology,
    TopologyError,
    TumblingWindow,
    Windowed,
    WindowStoreSpec,
    serdes,
)
from airflow_kstreams.streams.runtime.execution import TaskProgress
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.topology.bound_topology import BoundTopology, Output
from tests.support.topology.restarts import WindowRuns

pytestmark = pytest.mark.promise("held-windows-give-one-result", "flushed-windows-are-replaced")

TUMBLING = TumblingWindow(size_ms=10, grace_ms=2)
FLUSHING = TumblingWindow(size_ms=10, grace_ms=2, at_run_end="flush")


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def _topology(window: Any, store: Any = "w") -> Topology:
    builder = _builder()
    counts = builder.stream("in").group_by_key().windowed_by(window).count(store=store)
    counts.suppress().to_stream().send_to("out")
    return builder.build()


def _read(driver: TopologyTestDriver) -> list[tuple[Any, Any, int]]:
    return [(record.key, record.value, record.timestamp_ms) for record in driver.read_output("out")]


def test_window_is_emitted_once_when_stream_time_reaches_its_close() -> None:
    driver = TopologyTestDriver(_topology(TUMBLING), application_id="app")
    for key, time_ms in (("a", 3), ("a", 11), ("a", 7)):
        driver.pipe_input("in", key=key, value=0, timestamp_ms=time_ms)
    assert _read(driver) == []
    driver.pipe_input("in", key="b", value=0, timestamp_ms=12)
    assert _read(driver) == [(Windowed("a", 0, 10), 2, 7)]
    driver.pipe_input("in", key="a", value=0, timestamp_ms=8)
    assert _read(driver) == []
    driver.pipe_input("in", key="b", value=0, timestamp_ms=22)
    assert _read(driver) == [(Windowed("a", 10, 20), 1, 11), (Windowed("b", 10, 20), 1, 12)]


def test_windows_come_by_close_then_start_then_key_when_several_close_at_once() -> None:
    driver = TopologyTestDriver(
        _topology(HoppingWindow(size_ms=10, advance_ms=5, grace_ms=0)), application_id="app"
    )
    for key, time_ms in (("b", 12), ("c", 7), ("a", 12), ("a", 99)):
        driver.pipe_input("in", key=key, value=0, timestamp_ms=time_ms)
    assert [key for key, _, _ in _read(driver)] == [
        Windowed("a", 5, 15),
        Windowed("b", 5, 15),
        Windowed("c", 5, 15),
        Windowed("a", 10, 20),
        Windowed("b", 10, 20),
    ]


def test_session_is_emitted_when_gap_and_grace_have_passed() -> None:
    driver = TopologyTestDriver(_topology(SessionWindow(gap_ms=5, grace_ms=2)), application_id="app")
    for time_ms in (10, 14, 21):
        driver.pipe_input("in", key="a", value=0, timestamp_ms=time_ms)
    assert _read(driver) == []
    driver.pipe_input("in", key="b", value=0, timestamp_ms=22)
    assert _read(driver) == [(Windowed("a", 10, 14), 2, 14)]


def test_sessions_come_by_close_then_start_then_key_when_several_close_at_once() -> None:
    driver = TopologyTestDriver(_topology(SessionWindow(gap_ms=5, grace_ms=0)), application_id="app")
    for key, time_ms in (("c", 10), ("b", 11), ("a", 11), ("b", 14), ("d", 14), ("x", 99)):
        driver.pipe_input("in", key=key, value=0, timestamp_ms=time_ms)
    assert [key for key, _, _ in _read(driver)] == [
        Windowed("c", 10, 10),
        Windowed("a", 11, 11),
        Windowed("b", 11, 14),
        Windowed("d", 14, 14),
    ]


def test_open_windows_wait_for_the_next_run_when_the_policy_is_hold() -> None:
    runs = WindowRuns(_topology(TUMBLING))
    runs.pipe("a", 0, 3)
    runs.end_run()
    assert runs.outputs == []
    runs.pipe("a", 0, 4)
    runs.end_run()
    runs.pipe("b", 0, 12)
    runs.end_run()
    assert runs.outputs == [Output(Windowed("a", 0, 10), 2, 4)]


def test_open_windows_are_emitted_at_each_run_end_when_they_changed_and_the_policy_is_flush() -> None:
    runs = WindowRuns(_topology(FLUSHING))
    runs.pipe("a", 0, 3)
    runs.pipe("b", 0, 4)
    runs.end_run()
    assert runs.outputs == [Output(Windowed("a", 0, 10), 1, 3), Output(Windowed("b", 0, 10), 1, 4)]
    runs.end_run()
    runs.pipe("b", 0, 5)
    runs.end_run()
    assert runs.outputs[2:] == [Output(Windowed("b", 0, 10), 2, 5)]


def test_flushed_window_is_not_emitted_again_at_its_close_unless_it_changed() -> None:
    runs = WindowRuns(_topology(FLUSHING))
    runs.pipe("a", 0, 3)
    runs.pipe("b", 0, 4)
    runs.end_run()
    runs.pipe("b", 0, 5)
    runs.pipe("c", 0, 12)
    runs.commit()
    assert runs.outputs[2:] == [Output(Windowed("b", 0, 10), 2, 5)]
    assert runs.bound.stores["w-flushed"].approximate_count() == 0


def test_change_before_a_crash_is_flushed_when_the_attempt_that_resumes_sees_no_more() -> None:
    runs = WindowRuns(_topology(FLUSHING))
    runs.pipe("a", 0, 3)
    runs.commit()
    runs.crash()
    runs.end_run()
    assert runs.outputs == [Output(Windowed("a", 0, 10), 1, 3)]


def test_flushed_session_is_taken_back_when_it_grows() -> None:
    runs = WindowRuns(_topology(SessionWindow(gap_ms=5, grace_ms=0, at_run_end="flush")))
    runs.pipe("a", 0, 3)
    runs.end_run()
    runs.pipe("a", 0, 5)
    runs.end_run()
    assert runs.outputs == [
        Output(Windowed("a", 3, 3), 1, 3),
        Output(Windowed("a", 3, 3), None, 3),
        Output(Windowed("a", 3, 5), 2, 5),
    ]


def test_flushed_session_is_taken_back_when_it_changed_before_it_grew() -> None:
    store = StoreSpec(name="w", key_serde=serdes.string(), value_serde=serdes.int64(), cached=False)
    runs = WindowRuns(_topology(SessionWindow(gap_ms=5, grace_ms=0, at_run_end="flush"), store))
    runs.pipe("a", 0, 3)
    runs.end_run()
    runs.pipe("a", 0, 3)
    runs.pipe("a", 0, 5)
    runs.end_run()
    assert runs.outputs[1:] == [Output(Windowed("a", 3, 3), None, 3), Output(Windowed("a", 3, 5), 3, 5)]


def test_flushed_window_is_taken_back_when_its_fold_gives_none() -> None:
    builder = _builder()
    windows = builder.stream("in").group_by_key().windowed_by(FLUSHING)
    table = windows.aggregate(int, lambda key, value, seen: value or None)
    table.suppress().to_stream().send_to("out")
    runs = WindowRuns(builder.build())
    for value, time_ms in ((1, 3), (2, 4)):
        runs.pipe("a", value, time_ms)
        runs.end_run()
    runs.pipe("a", 3, 5)
    runs.commit()
    runs.pipe("a", 0, 6)
    runs.pipe("b", 9, 12)
    runs.end_run()
    assert [(output.key.key, output.value, output.timestamp_ms) for output in runs.outputs] == [
        ("a", 1, 3),
        ("a", 2, 4),
        ("a", None, 6),
        ("b", 9, 12),
    ]


def test_flushed_window_is_not_marked_again_when_nothing_changed() -> None:
    runs = WindowRuns(_topology(FLUSHING))
    runs.pipe("a", 0, 3)
    runs.end_run()
    marks = len(runs.changelogs["w-flushed"])
    runs.end_run()
    assert len(runs.changelogs["w-flushed"]) == marks == 1


def test_driver_flushes_open_windows_when_it_is_closed() -> None:
    driver = TopologyTestDriver(_topology(FLUSHING), application_id="app")
    driver.pipe_input("in", key="a", value=0, timestamp_ms=3)
    assert _read(driver) == []
    driver.close()
    assert _read(driver) == [(Windowed("a", 0, 10), 1, 3)]


def test_updates_and_final_values_both_come_when_both_are_asked_for() -> None:
    builder = _builder()
    counts = builder.stream("in").group_by_key().windowed_by(TUMBLING).count()
    counts.to_stream().send_to("updates")
    counts.suppress().to_stream().map(lambda windowed, count: (windowed.key, count)).send_to("out")
    driver = TopologyTestDriver(builder.build(), application_id="app")
    for time_ms in (3, 4, 12):
        driver.pipe_input("in", key="a", value=0, timestamp_ms=time_ms)
    assert [record.value for record in driver.read_output("updates")] == [1, 2, 1]
    assert _read(driver) == [("a", 2, 4)]


def test_table_asks_for_no_commit_points_when_only_its_final_values_are_wanted() -> None:
    assert BoundTopology(_topology(TUMBLING)).flushes == {}
    assert len(BoundTopology(_topology(FLUSHING)).flushes) == 1


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_clock_decides_on_commits_when_only_final_values_are_wanted_under_any_error_policy(
    policy: str,
) -> None:
    task = StreamTask(
        _topology(TUMBLING),
        task_id=TaskId(subtopology=0, group=0),
        bounds={},
        produce=lambda *_: None,
        settings=ApplicationSettings.parse("app", {"processing.exception.handler": policy}),
        progress=TaskProgress(),
    )
    assert task.commit_due(interval_elapsed=True, processed=False)


def test_suppress_gives_the_same_node_when_asked_twice() -> None:
    builder = _builder()
    counts = builder.stream("in").group_by_key().windowed_by(TUMBLING).count()
    assert counts.suppress() is counts.suppress()
    assert counts.suppress().suppress() is counts.suppress()


def test_plain_table_is_refused_when_suppressed() -> None:
    counts = _builder().stream("in").group_by_key().count(store="c")
    with pytest.raises(TopologyError, match=r"test_suppress\.py:\d+ .*'c', which has no windows"):
        counts.suppress()


@pytest.mark.parametrize(
    "derived",
    [
        lambda counts: counts.filter(lambda key, count: count > 1),
        lambda counts: counts.map_values(str).filter_not(lambda key, count: count == "1"),
    ],
)
def test_table_made_of_windows_is_refused_with_the_order_that_works_when_suppressed(derived: Any) -> None:
    counts = _builder().stream("in").group_by_key().windowed_by(TUMBLING).count(store="w")
    with pytest.raises(TopologyError, match=r"test_suppress\.py:\d+ .*made of a table of windows") as refused:
        derived(counts).suppress()
    assert ".suppress().filter(...)" in refused.value.fix


def test_store_without_changelog_is_refused_when_suppressed() -> None:
    store = StoreSpec(name="w", key_serde=serdes.string(), value_serde=serdes.int64(), logged=False)
    with pytest.raises(TopologyError, match=r"test_suppress\.py:\d+ needs the changelog of the store 'w'"):
        _topology(TUMBLING, store)


def test_longer_retention_is_refused_when_suppressed() -> None:
    store = WindowStoreSpec(name="w", key_serde=serdes.string(), value_serde=serdes.int64(), retention_ms=13)
    with pytest.raises(TopologyError, match=r"test_suppress\.py:\d+ .*13 ms, longer than the 12 ms"):
        _topology(TUMBLING, store)
