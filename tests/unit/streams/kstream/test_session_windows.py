from __future__ import annotations

from typing import Any

from airflow_kstreams.streams import KStreamBuilder, SessionWindow, StoreSpec, Topology, Windowed, serdes
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.topology.bound_topology import BoundTopology, Output

WINDOW = SessionWindow(gap_ms=5, grace_ms=10)


def _topology(window: SessionWindow = WINDOW, *, cached: bool = True) -> Topology:
    """A table of the values of each session, in the order they were folded."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    store = StoreSpec(name="s", key_serde=serdes.string(), value_serde=serdes.json(), cached=cached)
    table = (
        builder.stream("in")
        .group_by_key()
        .windowed_by(window)
        .aggregate(
            list,
            lambda key, value, seen: None if value == "delete" else [*seen, value],
            lambda key, left, right: left + right,
            store=store,
        )
    )
    table.to_stream().send_to("out")
    return builder.build()


def _pipe(driver: TopologyTestDriver, *records: tuple[Any, Any, int]) -> list[tuple[Any, Any, int]]:
    for key, value, time_ms in records:
        driver.pipe_input("in", key=key, value=value, timestamp_ms=time_ms)
    return [(record.key, record.value, record.timestamp_ms) for record in driver.read_output("out")]


def test_session_grows_when_records_are_a_gap_apart() -> None:
    driver = TopologyTestDriver(_topology(), application_id="app")
    assert _pipe(driver, ("a", 1, 10), ("a", 2, 15), ("b", 3, 15), ("a", 4, 21)) == [
        (Windowed("a", 10, 10), [1], 10),
        (Windowed("a", 10, 10), None, 10),
        (Windowed("a", 10, 15), [1, 2], 15),
        (Windowed("b", 15, 15), [3], 15),
        (Windowed("a", 21, 21), [4], 21),
    ]
    assert driver.store("s").get("a", 10, 15) == [1, 2]
    assert list(driver.store("s").range("a", 16, 30)) == [(Windowed("a", 21, 21), [4])]


def test_sessions_merge_when_a_record_comes_between() -> None:
    driver = TopologyTestDriver(_topology(), application_id="app")
    _pipe(driver, ("a", 1, 10), ("a", 2, 18))
    assert _pipe(driver, ("a", 3, 14)) == [
        (Windowed("a", 10, 10), None, 10),
        (Windowed("a", 18, 18), None, 18),
        (Windowed("a", 10, 18), [1, 2, 3], 18),
    ]


def test_session_keeps_its_bounds_when_a_record_falls_inside() -> None:
    driver = TopologyTestDriver(_topology(cached=False), application_id="app")
    _pipe(driver, ("a", 1, 10), ("a", 2, 14))
    assert _pipe(driver, ("a", 3, 12), ("a", 4, 10)) == [
        (Windowed("a", 10, 14), [1, 2, 3], 14),
        (Windowed("a", 10, 14), [1, 2, 3, 4], 14),
    ]


def test_session_is_deleted_when_the_fold_gives_none() -> None:
    driver = TopologyTestDriver(_topology(), application_id="app")
    assert (
        _pipe(driver, ("a", "delete", 5), ("a", 1, 10), ("a", "delete", 12))
        == [
            (Windowed("a", 10, 10), [1], 10),
            (Windowed("a", 10, 10), None, 10),
        ]
        or driver.store("s").approximate_count()
    )
    assert driver.store("s").approximate_count() == 0


def test_first_session_is_merged_with_an_initial_aggregate_when_a_record_continues_it() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    texts = (
        builder.stream("in")
        .group_by_key()
        .windowed_by(WINDOW)
        .aggregate(
            lambda: "0",
            lambda key, value, text: text + value,
            lambda key, earlier, later: f"({earlier}|{later})",
        )
    )
    texts.to_stream().send_to("out")
    driver = TopologyTestDriver(builder.build(), application_id="app")
    found = _pipe(driver, ("a", "x", 10), ("a", "y", 18), ("a", "z", 14))
    assert [value for _, value, _ in found if value is not None] == ["0x", "0y", "((0|0x)|0y)z"]


def test_count_and_reduce_merge_by_themselves_when_sessions_do() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    sessions = builder.stream("in").group_by_key().windowed_by(WINDOW)
    sessions.count(store="counts")
    sessions.reduce(lambda left, right: left + right, store="words")
    driver = TopologyTestDriver(builder.build(), application_id="app")
    for word, time_ms in (("x", 10), ("y", 18), ("z", 14)):
        driver.pipe_input("in", key="a", value=word, timestamp_ms=time_ms)
    assert driver.store("counts").get("a", 10, 18) == 3
    assert driver.store("words").get("a", 10, 18) == "xyz"


def test_record_is_dropped_when_its_session_would_be_closed() -> None:
    bound = BoundTopology(_topology(cached=False))
    for key, time_ms in (("b", 100), ("a", 85), ("c", 84)):
        bound.pipe("in", key, 0, timestamp_ms=time_ms)
    assert bound.read("out") == [
        Output(Windowed("b", 100, 100), [0], 100),
        Output(Windowed("a", 85, 85), [0], 85),
    ]
    assert bound.dropped == 1


def test_late_record_is_taken_when_it_belongs_to_an_open_session() -> None:
    bound = BoundTopology(_topology(cached=False))
    for key, time_ms in (("a", 86), ("b", 100), ("a", 82)):
        bound.pipe("in", key, 0, timestamp_ms=time_ms)
    assert bound.read("out")[-1] == Output(Windowed("a", 82, 86), [0, 0], 86)
    assert bound.dropped == 0


def test_record_begins_a_session_when_the_one_before_is_closed() -> None:
    bound = BoundTopology(_topology(cached=False))
    for key, value, time_ms in (("a", 1, 84), ("b", 2, 100), ("a", 3, 88)):
        bound.pipe("in", key, value, timestamp_ms=time_ms)
    assert bound.read("out")[-1] == Output(Windowed("a", 88, 88), [3], 88)
    assert bound.dropped == 0


def test_record_is_dropped_when_it_has_no_key_no_value_or_no_time() -> None:
    bound = BoundTopology(_topology())
    for key, value, time_ms in ((None, 0, 1), ("a", None, 1), ("a", 0, -1)):
        bound.pipe("in", key, value, timestamp_ms=time_ms)
    assert (bound.stores["s"].approximate_count(), bound.dropped) == (0, 3)


def test_cached_table_emits_the_grown_session_only_when_a_commit_point_comes() -> None:
    bound = BoundTopology(_topology())
    for value in range(4):
        bound.pipe("in", "a", value, timestamp_ms=10 + value)
    bound.flush()
    assert bound.read("out") == [Output(Windowed("a", 10, 13), [0, 1, 2, 3], 13)]
    bound.pipe("in", "a", 4, timestamp_ms=18)
    bound.flush()
    assert bound.read("out") == [
        Output(Windowed("a", 10, 13), None, 13),
        Output(Windowed("a", 10, 18), [0, 1, 2, 3, 4], 18),
    ]


def test_cached_table_takes_a_session_back_when_it_changed_before_it_grew() -> None:
    bound = BoundTopology(_topology())
    for time_ms in (10, 14):
        bound.pipe("in", "a", 0, timestamp_ms=time_ms)
    bound.flush()
    bound.read("out")
    for time_ms in (12, 18):
        bound.pipe("in", "a", 0, timestamp_ms=time_ms)
    bound.flush()
    assert bound.read("out") == [
        Output(Windowed("a", 10, 14), None, 14),
        Output(Windowed("a", 10, 18), [0, 0, 0, 0], 18),
    ]


def test_changelog_holds_one_session_when_it_grew_between_two_commits() -> None:
    bound = BoundTopology(_topology())
    for time_ms in (10, 12, 14):
        bound.pipe("in", "a", 0, timestamp_ms=time_ms)
    keys = serdes.session_windowed(serdes.string())
    drained = [(keys.deserialize(key), value) for key, value, _ in bound.stores["s"].drain_changes()]
    assert drained == [(Windowed("a", 10, 14), b"[0,0,0]")]
