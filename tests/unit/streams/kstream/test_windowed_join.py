from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import KStream, KStreamBuilder, SlidingWindow, TopologyError, serdes
from airflow_kstreams.streams.graph.store_specs import JoinStoreSpec, Storage
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.runtime.execution import TaskProgress
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.topology.bound_topology import BoundTopology, Output
from tests.support.topology.records import FakeRecord
from tests.support.topology.restarts import RestartingTopology


def _pair(left: Any, right: Any) -> list[Any]:
    return [left, right]


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def _joined(left: SlidingWindow, right: SlidingWindow) -> TopologyTestDriver:
    builder = _builder()
    one, other = builder.stream("left"), builder.stream("right")
    one.with_window(left).join(other.with_window(right), _pair, name="j").send_to("out")
    return TopologyTestDriver(builder.build(), application_id="app")


def _results(driver: TopologyTestDriver) -> list[tuple[Any, Any, int]]:
    return [(record.key, record.value, record.timestamp_ms) for record in driver.read_output("out")]


def test_join_runs_when_written_as_users_write_it() -> None:
    builder = KStreamBuilder()
    left = builder.stream("left", key_serde=serdes.string(), value_serde=serdes.json())
    right = builder.stream("right", key_serde=serdes.string(), value_serde=serdes.json())
    joined = left.with_window(SlidingWindow(size_ms=10)).join(
        right.with_window(SlidingWindow(size_ms=5)), lambda left, right: [left, right]
    )
    joined.send_to("out", key_serde=serdes.string(), value_serde=serdes.json())
    small, _ = left.branch(lambda k, v: v < 10, lambda k, v: True)
    small.group_by_key().count(store="small-counts").to_stream().send_to(
        "counts", key_serde=serdes.string(), value_serde=serdes.int64()
    )

    driver = TopologyTestDriver(builder.build(), application_id="demo")
    driver.pipe_input("left", key="a", value=1, timestamp_ms=100)
    driver.pipe_input("right", key="a", value=7, timestamp_ms=103)
    assert [(r.key, r.value, r.timestamp_ms) for r in driver.read_output("out")] == [("a", [1, 7], 103)]
    assert driver.store("small-counts").get("a") == 1


@pytest.mark.parametrize(
    ("first", "second", "time_ms", "matches"),
    [
        # An element of the left is kept 10 ms for those of the right, one of the right 5 ms.
        ("left", "right", 110, True),
        ("left", "right", 111, False),
        ("left", "right", 95, True),
        ("left", "right", 94, False),
        ("right", "left", 105, True),
        ("right", "left", 106, False),
        ("right", "left", 90, True),
        ("right", "left", 89, False),
    ],
)
def test_elements_match_up_to_the_window_of_the_older_one_when_either_arrives_last(
    first: str, second: str, time_ms: int, matches: bool
) -> None:
    with _joined(SlidingWindow(size_ms=10), SlidingWindow(size_ms=5)) as driver:
        driver.pipe_input(first, key="a", value=first, timestamp_ms=100)
        driver.pipe_input(second, key="a", value=second, timestamp_ms=time_ms)
        expected = [("a", ["left", "right"], max(100, time_ms))] if matches else []
        assert _results(driver) == expected


def test_results_come_by_time_then_arrival_when_an_element_meets_several() -> None:
    with _joined(SlidingWindow(size_ms=10), SlidingWindow(size_ms=10)) as driver:
        for value, time_ms in ((1, 105), (2, 101), (3, 105), (4, 101), (5, 110), (6, 89), (7, 111)):
            driver.pipe_input("left", key="a", value=value, timestamp_ms=time_ms)
        driver.pipe_input("left", key="b", value=8, timestamp_ms=100)
        driver.pipe_input("right", key="a", value=0, timestamp_ms=100)
        assert _results(driver) == [
            ("a", [2, 0], 101),
            ("a", [4, 0], 101),
            ("a", [1, 0], 105),
            ("a", [3, 0], 105),
            ("a", [5, 0], 110),
        ]


def test_elements_of_equal_time_only_match_when_windows_have_no_size() -> None:
    with _joined(SlidingWindow(size_ms=0), SlidingWindow(size_ms=0)) as driver:
        driver.pipe_input("left", key="a", value=1, timestamp_ms=100)
        for time_ms in (99, 100, 101):
            driver.pipe_input("right", key="a", value=time_ms, timestamp_ms=time_ms)
        assert _results(driver) == [("a", [1, 100], 100)]


@pytest.mark.parametrize(("time_ms", "dropped"), [(170, 0), (169, 1)])
def test_element_is_dropped_when_it_is_older_than_window_and_grace(time_ms: int, dropped: int) -> None:
    bound = _bound(left=SlidingWindow(size_ms=10, grace_ms=20), right=SlidingWindow(size_ms=5))
    # Stream time is the join's: the right side's time makes an element of the left one late.
    bound.pipe("right", "a", "r", timestamp_ms=172)
    bound.pipe("right", "b", "later", timestamp_ms=200)
    bound.pipe("left", "a", "l", timestamp_ms=time_ms)
    assert bound.dropped == dropped
    assert bound.read("out") == ([] if dropped else [Output("a", ["l", "r"], 172)])


@pytest.mark.promise("joins-lose-no-pair-uncounted")
@pytest.mark.parametrize("storage", ["memory", "rocksdb"])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join", "join_prior"])
@pytest.mark.parametrize("first", ["left", "right"])
@pytest.mark.parametrize("unit_ms", [1, 1_000])
def test_pair_is_found_when_stream_time_has_passed_the_first_ones_own_window(
    unit_ms: int, kind: str, first: str, restarts: bool, storage: Storage
) -> None:
    second = "right" if first == "left" else "left"
    window = SlidingWindow(size_ms=100 * unit_ms, grace_ms=0)
    with _driver(kind, window, window, storage) as driver:
        driver.pipe_input(first, key="k", value=first, timestamp_ms=1_000 * unit_ms)
        driver.pipe_input(first, key="other", value="?", timestamp_ms=1_150 * unit_ms)
        if restarts:
            driver.restart()
        driver.pipe_input(second, key="k", value=second, timestamp_ms=1_090 * unit_ms)
        assert _results(driver) == [("k", ["left", "right"], 1_090 * unit_ms)]
        # Neither is joined with None later.
        driver.pipe_input(first, key="z", value="?", timestamp_ms=100_000 * unit_ms)
        assert "k" not in [key for key, _, _ in _results(driver)]


@pytest.mark.promise("joins-lose-no-pair-uncounted")
@pytest.mark.parametrize("storage", ["memory", "rocksdb"])
@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join", "join_prior"])
@pytest.mark.parametrize("late", ["left", "right"])
@pytest.mark.parametrize(("now_ms", "found"), [(3_110, True), (3_111, False)])
def test_grace_of_one_side_keeps_the_other_sides_elements(
    late: str, now_ms: int, found: bool, kind: str, storage: Storage
) -> None:
    graceful, strict = SlidingWindow(size_ms=10, grace_ms=3_000), SlidingWindow(size_ms=10, grace_ms=0)
    early = "right" if late == "left" else "left"
    left, right = (graceful, strict) if late == "left" else (strict, graceful)
    with _driver(kind, left, right, storage) as driver:
        driver.pipe_input(early, key="k", value=early, timestamp_ms=90)
        driver.pipe_input("left", key="other", value="?", timestamp_ms=now_ms)
        driver.restart()
        _results(driver)
        driver.pipe_input(late, key="k", value=late, timestamp_ms=100)
        assert _results(driver) == ([("k", ["left", "right"], 100)] if found else [])


def _driver(kind: str, left: SlidingWindow, right: SlidingWindow, storage: Storage) -> TopologyTestDriver:
    builder = _builder()
    one = builder.stream("left").with_window(left, storage=storage)
    other = builder.stream("right").with_window(right, storage=storage)
    getattr(one, kind)(other, _pair, name="j").send_to("out")
    return TopologyTestDriver(builder.build(), application_id="app")


def test_element_is_not_kept_when_all_that_it_could_still_meet_is_late() -> None:
    # A left element may be 1,010 ms late, but one that is more than 20 ms old finds only what is there.
    left, right = SlidingWindow(size_ms=10, grace_ms=1_000), SlidingWindow(size_ms=10, grace_ms=0)
    bound = _bound(left=left, right=right)
    bound.pipe("right", "a", "r", timestamp_ms=100)
    bound.pipe("left", "z", "?", timestamp_ms=1_000)
    bound.pipe("left", "a", "old", timestamp_ms=100)
    bound.pipe("left", "a", "kept", timestamp_ms=980)
    assert bound.read("out") == [Output("a", ["old", "r"], 100)]
    kept = next(store for name, store in bound.stores.items() if name.endswith("-left"))
    assert kept.get("a") == [(980, "kept")]
    assert kept.approximate_count() == 2


def _bound(left: SlidingWindow, right: SlidingWindow) -> BoundTopology:
    builder = _builder()
    one, other = builder.stream("left"), builder.stream("right")
    one.with_window(left).join(other.with_window(right), _pair).send_to("out")
    return BoundTopology(builder.build())


def test_element_is_dropped_and_counted_when_it_has_no_key_or_value() -> None:
    bound = _bound(left=SlidingWindow(size_ms=10), right=SlidingWindow(size_ms=10))
    bound.pipe("left", None, 1, timestamp_ms=1)
    bound.pipe("left", "a", None, timestamp_ms=1)
    bound.pipe("right", None, 1, timestamp_ms=1)
    bound.pipe("right", "a", None, timestamp_ms=1)
    assert bound.dropped == 4
    assert bound.read("out") == []


@pytest.mark.parametrize("last", ["left", "right"])
def test_next_child_sees_the_records_own_time_when_a_result_had_a_larger_one(last: str) -> None:
    builder = _builder()
    one, other = builder.stream("left"), builder.stream("right")
    window = SlidingWindow(size_ms=10)
    one.with_window(window).join(other.with_window(window), _pair).send_to("out")
    one.merge(other).send_to("all")
    bound = BoundTopology(builder.build())
    bound.pipe("left" if last == "right" else "right", "a", 1, timestamp_ms=105)
    bound.pipe(last, "a", 2, timestamp_ms=100)
    assert [output.timestamp_ms for output in bound.read("out")] == [105]
    assert [output.timestamp_ms for output in bound.read("all")] == [105, 100]


def test_element_meets_itself_once_and_others_twice_when_a_stream_joins_itself() -> None:
    builder = _builder()
    stream = builder.stream("in")
    stream.with_window(SlidingWindow(size_ms=10)).join(
        stream.with_window(SlidingWindow(size_ms=5)), _pair
    ).send_to("out")
    bound = BoundTopology(builder.build())
    bound.pipe("in", "a", 1, timestamp_ms=100)
    bound.pipe("in", "a", 2, timestamp_ms=104)
    bound.pipe("in", "a", 3, timestamp_ms=110)
    assert [output.value for output in bound.read("out")] == [
        [1, 1],
        [2, 1],  # 2 arrives on the left and meets 1 of the right, kept for 5 ms,
        [1, 2],  # then on the right and meets the left ones, kept for 10 ms.
        [2, 2],
        [1, 3],
        [2, 3],
        [3, 3],
    ]


def test_joins_of_results_keep_their_own_elements_when_chained() -> None:
    builder = _builder()
    window = SlidingWindow(size_ms=10)
    first, second, third = (builder.stream(topic).with_window(window) for topic in ("a", "b", "c"))
    pairs = first.join(second, _pair, name="ab")
    pairs.with_window(window).join(third, _pair, name="abc", value_serde=serdes.json()).send_to("out")
    bound = BoundTopology(builder.build())
    for topic, time_ms in (("c", 1), ("a", 5), ("b", 9)):
        bound.pipe(topic, "k", topic, timestamp_ms=time_ms)
    assert bound.read("out") == [Output("k", [["a", "b"], "c"], 9)]


def test_committed_elements_are_met_when_a_crashed_task_comes_back() -> None:
    builder = _builder()
    window = SlidingWindow(size_ms=10)
    builder.stream("left").with_window(window).join(
        builder.stream("right").with_window(window), _pair
    ).send_to("out")
    task = RestartingTopology(builder.build())
    task.bound.pipe("left", "a", 1, timestamp_ms=102)
    task.bound.pipe("left", "a", 2, timestamp_ms=101)
    task.commit()
    task.bound.pipe("left", "a", 3, timestamp_ms=100)
    task.restart()
    task.bound.pipe("left", "a", 4, timestamp_ms=101)
    task.bound.pipe("right", "a", 0, timestamp_ms=103)
    task.commit()
    assert [output.value for output in task.written("out")] == [[2, 0], [4, 0], [1, 0]]


def test_changed_keys_are_repartitioned_by_the_others_serde_when_joined() -> None:
    builder = KStreamBuilder()
    flights = builder.stream("flights", key_serde=serdes.string(), value_serde=serdes.json())
    weather = builder.stream("weather", key_serde=serdes.int32(), value_serde=serdes.string())
    window = SlidingWindow(size_ms=10)
    flights.select_key(lambda k, v: v["origin"]).with_window(window).join(
        weather.with_window(window), lambda flight, rain: [flight["n"], rain], name="weather-at-origin"
    ).send_to("out", value_serde=serdes.json())
    topology = builder.build()
    first, second = topology.plan("app").subtopologies
    assert first.sources == ("flights",)
    assert second.copartitioned == (("app-weather-at-origin-left-repartition", "weather"),)
    assert sorted(second.changelogs.values()) == [
        "app-weather-at-origin-left-changelog",
        "app-weather-at-origin-right-changelog",
    ]
    bound = BoundTopology(topology)
    bound.pipe("weather", 7, "rain", timestamp_ms=1)
    bound.pipe("flights", "x", {"origin": 7, "n": 1}, timestamp_ms=2)
    assert bound.read("out") == [Output(7, [1, "rain"], 2)]


def test_both_sides_are_repartitioned_under_names_of_their_own_when_both_keys_changed() -> None:
    builder = KStreamBuilder(default_value_serde=serdes.json())
    window = SlidingWindow(size_ms=10)
    left, right = (
        builder.stream(topic, key_serde=serdes.string()).select_key(lambda k, v: v).with_window(window)
        for topic in ("left", "right")
    )
    left.join(right, _pair, name="j", key_serde=serdes.int32()).send_to("out")
    topology = builder.build()
    assert [topic.name for topic in topology.internal_topics] == ["j-left-repartition", "j-right-repartition"]
    bound = BoundTopology(topology)
    bound.pipe("left", "x", 7)
    bound.pipe("right", "y", 7)
    assert bound.read("out") == [Output(7, [7, 7], 0)]


def test_repartition_topic_is_shared_when_a_table_and_a_stream_meet_the_same_stream() -> None:
    builder = _builder()
    window = SlidingWindow(size_ms=10)
    rekeyed = builder.stream("in").select_key(lambda k, v: k)
    rekeyed.join(builder.table("table"), _pair).send_to("one")
    rekeyed.with_window(window).join(builder.stream("other").with_window(window), _pair).send_to("two")
    assert len(builder.build().internal_topics) == 1


def test_store_keeps_its_own_objects_when_a_table_changes_its_values_in_place() -> None:
    builder = _builder()
    window = SlidingWindow(size_ms=10)
    lists = builder.stream("in").group_by_key().aggregate(list, _append, store="lists").to_stream()
    lists.with_window(window).join(builder.stream("asks").with_window(window), _pair).send_to("out")
    bound = BoundTopology(builder.build())
    bound.pipe("in", "k", 1)
    bound.flush()
    bound.pipe("in", "k", 2)
    bound.pipe("asks", "k", "?")
    assert bound.read("out") == [Output("k", [[1], "?"], 0)]


def _append(key: str, value: int, values: list[int]) -> list[int]:
    values.append(value)
    return values


@pytest.mark.error_example("KS-APP-003")
def test_result_has_the_keys_serde_and_no_value_serde_when_it_goes_on() -> None:
    builder = KStreamBuilder()
    window = SlidingWindow(size_ms=10)
    left, right = (
        builder.stream(topic, key_serde=serdes.string(), value_serde=serdes.json()).with_window(window)
        for topic in ("left", "right")
    )
    joined = left.join(right, _pair)
    assert type(joined) is KStream
    with pytest.raises(TopologyError, match=r"needs a value serde.*after join at .*test_windowed_join\.py"):
        joined.send_to("out")
    joined.send_to("out", value_serde=serdes.json())
    joined.group_by_key().count(store="results")
    assert builder.build().internal_topics == ()


def test_stores_are_called_after_what_the_join_reads_when_the_join_has_no_name() -> None:
    builder = _builder()
    window = SlidingWindow(size_ms=10, grace_ms=20)
    builder.stream("left").with_window(window).join(
        builder.stream("right").with_window(SlidingWindow(size_ms=5, grace_ms=0)), _pair
    ).send_to("out")
    stores = builder.build().stores
    assert [store.name for store in stores] == [
        "left-right-join-left",
        "left-right-join-right",
    ]
    assert [store.retention_ms for store in stores if isinstance(store, JoinStoreSpec)] == [15, 35]


@pytest.mark.parametrize(
    "other", [SlidingWindow(size_ms=11), SlidingWindow(size_ms=10, grace_ms=5)], ids=["size", "grace"]
)
def test_topology_hash_differs_when_a_window_does(other: SlidingWindow) -> None:
    def topology_hash(window: SlidingWindow) -> str:
        builder = _builder()
        right = builder.stream("right").with_window(SlidingWindow(size_ms=10))
        builder.stream("left").with_window(window).join(right, _pair).send_to("out")
        return builder.build().topology_hash()

    assert topology_hash(SlidingWindow(size_ms=10)) != topology_hash(other)


METHODS = ["join", "left_join", "outer_join", "join_prior"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("windowless", ["left", "right", "both"])
def test_join_is_refused_when_a_stream_has_no_window(method: str, windowless: str) -> None:
    builder = _builder()
    left, right = builder.stream("left"), builder.stream("right")
    one: KStream = left if windowless in ("left", "both") else left.with_window(SlidingWindow(size_ms=1))
    other: KStream = right if windowless in ("right", "both") else right.with_window(SlidingWindow(size_ms=1))
    with pytest.raises(TopologyError, match=r"has no window") as caught:
        getattr(one, method)(other, _pair)
    assert caught.value.cause.startswith(f"{method} at {__file__}:")
    assert ("it is called on" in caught.value.cause) == (windowless != "right")
    assert caught.value.fix == "call with_window(SlidingWindow(size_ms=...)) on both, right before the join"


@pytest.mark.parametrize(
    ("partner", "joiner"),
    [
        (lambda builder: _builder().stream("right").with_window(SlidingWindow(size_ms=1)), _pair),
        (lambda builder: "right", _pair),
        (lambda builder: builder.stream("right").with_window(SlidingWindow(size_ms=1)), None),
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_join_is_refused_with_the_users_line_when_it_is_given_something_else(
    method: str, partner: Callable[[KStreamBuilder], Any], joiner: Any
) -> None:
    builder = _builder()
    stream = builder.stream("left").with_window(SlidingWindow(size_ms=1))
    with pytest.raises(TopologyError) as caught:
        getattr(stream, method)(partner(builder), joiner)
    assert caught.value.cause.startswith(f"{method} at {__file__}:")
    assert caught.value.fix


def test_join_is_refused_when_key_serdes_differ() -> None:
    builder = _builder()
    window = SlidingWindow(size_ms=1)
    left = builder.stream("left").with_window(window)
    right = builder.stream("right", key_serde=serdes.int32()).with_window(window)
    with pytest.raises(TopologyError, match=r"keys of serdes\.string.* and of serdes\.int32") as caught:
        left.join(right, _pair)
    assert f"{__file__}:" in caught.value.cause
    assert "keys of serdes.string, or of serdes.int32 for the other stream" in caught.value.fix
    with pytest.raises(TopologyError, match=r"keys of serdes\.int32.* and of serdes\.string"):
        rekeyed = right.select_key(lambda k, v: k).with_window(window)
        left.join(rekeyed, _pair, key_serde=serdes.int32())


@pytest.mark.parametrize(("side", "option"), [("left", "value_serde"), ("right", "other_value_serde")])
def test_missing_value_serde_is_asked_for_by_its_sides_option_when_a_value_changed(
    side: str, option: str
) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string())
    window = SlidingWindow(size_ms=1)
    streams: dict[str, Any] = {
        topic: builder.stream(topic, value_serde=serdes.json()).with_window(window)
        for topic in ("left", "right")
    }
    streams[side] = streams[side].map_values(str).with_window(window)
    with pytest.raises(TopologyError, match=r"join at .*needs a value serde.*after map_values at") as caught:
        streams["left"].join(streams["right"], _pair)
    assert f"pass {option}= to join" in caught.value.fix
    streams["left"].join(streams["right"], _pair, **{option: serdes.string()}, name="j")
    stores = {store.name: store.value_serde for store in builder.build().stores}
    assert [name for name, serde in stores.items() if serde == serdes.string()] == [f"j-{side}"]


def test_missing_key_serde_is_asked_for_when_both_keys_changed() -> None:
    builder = KStreamBuilder(default_value_serde=serdes.json())
    window = SlidingWindow(size_ms=1)
    left, right = (
        builder.stream(topic, key_serde=serdes.string()).select_key(lambda k, v: v).with_window(window)
        for topic in ("left", "right")
    )
    with pytest.raises(TopologyError, match=r"join at .*needs a key serde.*after select_key at") as caught:
        left.join(right, _pair)
    assert "pass key_serde= to join" in caught.value.fix


def test_name_is_refused_when_another_join_has_it() -> None:
    builder = _builder()
    window = SlidingWindow(size_ms=1)
    left, right = (builder.stream(topic).with_window(window) for topic in ("left", "right"))
    left.join(right, _pair, name="j")
    with pytest.raises(TopologyError, match=r"the name 'j-this-join' is given to two nodes") as caught:
        left.join(right, _pair, name="j")
    assert f"{__file__}:" in caught.value.cause


def test_failing_joiner_is_named_with_its_node_and_line_when_it_raises() -> None:
    builder = _builder()
    window = SlidingWindow(size_ms=10)
    builder.stream("left").with_window(window).left_join(
        builder.stream("right").with_window(window), lambda left, right: left + right
    ).send_to("out")
    driver = TopologyTestDriver(builder.build(), application_id="app")
    driver.pipe_input("left", key="a", value=1, timestamp_ms=100)
    with pytest.raises(Exception, match=r"node 'KSTREAM-JOINOTHER-0000000003' \(.*test_windowed_join\.py:"):
        driver.pipe_input("right", key="a", value="x", timestamp_ms=100)
    driver = TopologyTestDriver(builder.build(), application_id="app")
    driver.pipe_input("left", key="a", value=1, timestamp_ms=100)
    with pytest.raises(Exception, match=r"node 'KSTREAM-MERGE-0000000004' \(.*test_windowed_join\.py:"):
        driver.pipe_input("left", key="b", value=1, timestamp_ms=10**9)


def _record(topic: str, at: int, time_ms: int) -> FakeRecord:
    value = b"%d" % time_ms
    return FakeRecord(at=at, in_topic=topic, key_bytes=b"k", value_bytes=value, timestamp_ms=time_ms)


@pytest.mark.parametrize("left_first", [True, False])
def test_task_joins_in_the_order_of_times_when_one_side_is_fetched_first(left_first: bool) -> None:
    builder = _builder()
    window = SlidingWindow(size_ms=2, grace_ms=0)
    builder.stream("left").with_window(window).outer_join(
        builder.stream("right").with_window(window), _pair
    ).send_to("out")
    sent: list[tuple[bytes, int]] = []
    task = StreamTask(
        builder.build(),
        task_id=TaskId(subtopology=0, group=0),
        bounds={TopicPartition("left", 0): (0, 3), TopicPartition("right", 0): (0, 2)},
        produce=lambda topic, value, key, partition, time_ms, headers: sent.append((value, time_ms)),
        settings=ApplicationSettings.parse("app"),
        progress=TaskProgress(),
    )
    task.restored()
    task.open()
    sides = {"left": (1, 5, 9), "right": (3, 4)}
    for topic in sorted(sides, reverse=not left_first):
        assert task.process(10) == 0
        side = TopicPartition(topic, 0)
        task.add(side, [_record(topic, at, time_ms) for at, time_ms in enumerate(sides[topic])])
        task.group.reached(side, len(sides[topic]))
    while task.process(10):
        pass
    assert task.execution.complete
    assert sent == [(b"[1,3]", 3), (b"[5,3]", 5), (b"[5,4]", 5)]
