from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.streams import (
    HoppingWindow,
    KGroupedStream,
    KStreamBuilder,
    SessionStoreSpec,
    SessionWindow,
    SlidingWindow,
    StoreSpec,
    TopologyError,
    TumblingWindow,
    Windowed,
    WindowStoreSpec,
    serdes,
)
from airflow_kstreams.streams.windows import RunEnd
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.topology.restarts import WindowRuns

TUMBLING = TumblingWindow(size_ms=10, grace_ms=2)
SESSION = SessionWindow(gap_ms=10, grace_ms=2)


def _grouped(builder: KStreamBuilder | None = None) -> KGroupedStream:
    builder = builder or _builder()
    return builder.stream("in").group_by_key()


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def _serdes(name: str = "w") -> dict[str, Any]:
    return {"name": name, "key_serde": serdes.string(), "value_serde": serdes.int64()}


def test_spec_keeps_windows_until_they_close_when_it_is_plain() -> None:
    plain = StoreSpec(**_serdes(), cached=False, changelog_configs={"segment.bytes": "1000000"})
    windows = _grouped().windowed_by(TUMBLING).count(store=plain).spec
    assert windows == WindowStoreSpec(
        **_serdes(), cached=False, changelog_configs={"segment.bytes": "1000000"}, retention_ms=12
    )
    sessions = _grouped().windowed_by(SESSION).count(store=plain).spec
    assert isinstance(sessions, SessionStoreSpec)
    assert sessions.retention_ms == 12


def test_entries_stay_until_the_retention_when_it_is_longer_than_the_window() -> None:
    builder = _builder()
    _grouped(builder).windowed_by(TUMBLING).count(store=WindowStoreSpec(**_serdes(), retention_ms=50))
    driver = TopologyTestDriver(builder.build(), application_id="app")
    for time_ms in (5, 49, 6):
        driver.pipe_input("in", key="a", value=0, timestamp_ms=time_ms)
    assert driver.store("w").get("a", 0) == 1
    driver.pipe_input("in", key="a", value=0, timestamp_ms=50)
    assert driver.store("w").get("a", 0) is None


def test_closed_session_is_not_continued_when_its_store_still_keeps_it() -> None:
    builder = _builder()
    _grouped(builder).windowed_by(SESSION).count(store=SessionStoreSpec(**_serdes(), retention_ms=50))
    driver = TopologyTestDriver(builder.build(), application_id="app")
    for key, time_ms in (("a", 5), ("b", 18), ("a", 10)):
        driver.pipe_input("in", key=key, value=0, timestamp_ms=time_ms)
    assert [windowed for windowed, _ in driver.store("w").range("a")] == [
        Windowed("a", 5, 5),
        Windowed("a", 10, 10),
    ]


def test_records_are_repartitioned_when_the_key_changed() -> None:
    builder = _builder()
    rekeyed = builder.stream("in").group_by(lambda key, value: value)
    rekeyed.windowed_by(TUMBLING).count(store="w").to_stream().send_to("out")
    topology = builder.build()
    assert topology.plan("app").repartition_topics == {"app-w-repartition": None}
    driver = TopologyTestDriver(topology, application_id="app", partitions={"in": 2})
    for value, time_ms in (("x", 1), ("y", 2), ("x", 3)):
        driver.pipe_input("in", key="k", value=value, timestamp_ms=time_ms)
    outputs = [(record.key, record.value) for record in driver.read_output("out")]
    assert outputs == [(Windowed("x", 0, 10), 1), (Windowed("y", 0, 10), 1), (Windowed("x", 0, 10), 2)]


def test_topics_are_copartitioned_when_their_records_meet_in_windows() -> None:
    builder = _builder()
    merged = builder.stream("a").merge(builder.stream("b"))
    merged.group_by_key().windowed_by(TUMBLING).count()
    assert builder.build().plan("app").subtopologies[0].copartitioned == (("a", "b"),)


def test_windowed_stream_is_repartitioned_when_it_is_grouped() -> None:
    builder = _builder()
    counts = _grouped(builder).windowed_by(TUMBLING).count(store="w")
    counts.to_stream().group_by_key().reduce(max, store="newest")
    topology = builder.build()
    assert "newest-repartition" in [topic.name for topic in topology.internal_topics]
    driver = TopologyTestDriver(topology, application_id="app")
    for time_ms in (1, 2):
        driver.pipe_input("in", key="a", value=0, timestamp_ms=time_ms)
    assert driver.store("newest").get(Windowed("a", 0, 10)) == 2


def test_topology_hash_differs_when_a_window_does() -> None:
    def topology_hash(window: Any) -> str:
        builder = _builder()
        _grouped(builder).windowed_by(window).count(store=None)
        return builder.build().topology_hash()

    windows = (
        TUMBLING,
        TumblingWindow(size_ms=11, grace_ms=1),
        HoppingWindow(size_ms=10, advance_ms=5, grace_ms=2),
        SESSION,
        SessionWindow(gap_ms=11, grace_ms=1),
    )
    assert len({topology_hash(window) for window in windows}) == len(windows)


@pytest.mark.parametrize("window", [SlidingWindow, 10, None])
def test_window_is_refused_when_it_is_not_one_to_fold_by(window: Any) -> None:
    with pytest.raises(TopologyError, match=r"windowed_by at .*test_windowed_by\.py:\d+ is given"):
        _grouped().windowed_by(window)


def test_merger_is_refused_when_missing_or_in_vain() -> None:
    with pytest.raises(TopologyError, match=r"SessionWindow at .*test_windowed_by\.py:\d+ .* no merger"):
        _grouped().windowed_by(SESSION).aggregate(int, lambda key, value, total: total)
    with pytest.raises(TopologyError, match=r"TumblingWindow at .*test_windowed_by\.py:\d+ .* never merge"):
        _grouped().windowed_by(TUMBLING).aggregate(
            int, lambda key, value, total: total, lambda key, left, right: left
        )


def test_store_is_refused_when_it_is_of_another_kind() -> None:
    window_spec = WindowStoreSpec(**_serdes(), retention_ms=100)
    session_spec = SessionStoreSpec(**_serdes(), retention_ms=100)
    with pytest.raises(TopologyError, match=r"count at .*\.py:\d+ .*'w' as a WindowStoreSpec"):
        _grouped().windowed_by(SESSION).count(store=window_spec)
    with pytest.raises(TopologyError, match=r"count at .*\.py:\d+ .*'w' as a SessionStoreSpec"):
        _grouped().windowed_by(TUMBLING).count(store=session_spec)
    with pytest.raises(TopologyError, match=r"count at .*\.py:\d+ .*'w' as a WindowStoreSpec"):
        _grouped().count(store=window_spec)
    with pytest.raises(TopologyError, match=r"table\('t'\) at .*\.py:\d+ .*'w' as a WindowStoreSpec"):
        _builder().table("t", store=window_spec)


def test_store_is_refused_when_it_drops_open_windows() -> None:
    with pytest.raises(TopologyError, match=r"count at .*\.py:\d+ .* for 11 ms, .* for 12 ms"):
        _grouped().windowed_by(TUMBLING).count(store=WindowStoreSpec(**_serdes(), retention_ms=11))


def test_windows_live_in_rocksdb_when_their_store_says_so() -> None:
    table = _grouped().windowed_by(TUMBLING).count(store=StoreSpec(**_serdes(), storage="rocksdb"))
    spec = table._known.spec
    assert spec is not None and spec.storage == "rocksdb"


def test_windowed_table_is_refused_when_a_stream_is_joined_with_it() -> None:
    builder = _builder()
    counts = _grouped(builder).windowed_by(TUMBLING).count(store="w")
    with pytest.raises(TopologyError, match=r"join at .*\.py:\d+ .*windowed table 'w'"):
        builder.stream("other").join(counts, lambda left, right: left)


def test_timeline_is_as_the_document_says_when_runs_end_within_windows() -> None:
    emitted: dict[str, list[Any]] = {}
    policies: tuple[RunEnd, ...] = ("hold", "flush")
    for policy in policies:
        builder = _builder()
        window = TumblingWindow(size_ms=10, grace_ms=0, at_run_end=policy)
        _grouped(builder).windowed_by(window).count().suppress().to_stream().send_to("out")
        runs = WindowRuns(builder.build())
        emitted[policy] = []
        for times in ((3, 7), (8,), (14,), (22,)):
            for time_ms in times:
                runs.pipe("a", 0, time_ms)
            runs.commit()
            runs.end_run()
            emitted[policy].append([(output.key.start_ms, output.value) for output in runs.outputs])
            runs.outputs.clear()
    assert emitted["hold"] == [[], [], [(0, 3)], [(10, 1)]]
    assert emitted["flush"] == [[(0, 2)], [(0, 3)], [(10, 1)], [(20, 1)]]
