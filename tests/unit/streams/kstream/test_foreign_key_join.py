from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStreamBuilder,
    KTable,
    RecordError,
    StoreSpec,
    Topology,
    TopologyError,
    TumblingWindow,
    serdes,
)
from airflow_kstreams.streams.graph.store_specs import Storage
from airflow_kstreams.streams.partitioning.topic_growth import partition_counts
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.topology.bound_topology import BoundTopology, Output
from tests.support.topology.restarts import RestartingTopology

pytestmark = pytest.mark.promise("foreign-key-joins-follow-both-sides")


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())


def _spec(name: str, *, storage: Storage = "memory", logged: bool = True) -> StoreSpec:
    return StoreSpec(
        name=name,
        key_serde=serdes.string(),
        value_serde=serdes.string(),
        cached=False,
        storage=storage,
        logged=logged,
    )


def _first_letter(key: str, value: str) -> str | None:
    return None if value.startswith("-") else value[0]


def _both(left: str, right: str | None) -> str:
    return f"{left}+{right}"


def _joined(
    call: str = "join",
    *,
    storage: Storage = "memory",
    joiner: Callable[[Any, Any], Any] = _both,
    **options: Any,
) -> Topology:
    builder = _builder()
    left, right = (builder.table(name, store=_spec(f"{name}-s", storage=storage)) for name in ("l", "r"))
    table: KTable = getattr(left, call)(right, joiner, foreign_key=_first_letter, name="fk", **options)
    table.to_stream().send_to("out")
    return builder.build()


#: What is piped, and what comes of it in an inner and in a left join. Topic, key, value, time.
STEPS: list[tuple[tuple[str, str, str | None, int], list[Output], list[Output]]] = [
    (("l", "1", "a1", 0), [], [Output("1", "a1+None", 0)]),
    (("r", "a", "A", 5), [Output("1", "a1+A", 5)], [Output("1", "a1+A", 5)]),
    (("l", "2", "a2", 1), [Output("2", "a2+A", 5)], [Output("2", "a2+A", 5)]),
    # Both entries follow, in the order of their keys.
    (
        ("r", "a", "B", 2),
        [Output("1", "a1+B", 2), Output("2", "a2+B", 2)],
        [Output("1", "a1+B", 2), Output("2", "a2+B", 2)],
    ),
    # Another foreign key, without an entry yet.
    (("l", "1", "b1", 3), [Output("1", None, 3)], [Output("1", "b1+None", 3)]),
    (("r", "b", "C", 9), [Output("1", "b1+C", 9)], [Output("1", "b1+C", 9)]),
    # The old one has lost its subscriber.
    (("r", "a", "D", 9), [Output("2", "a2+D", 9)], [Output("2", "a2+D", 9)]),
    # No foreign key.
    (("l", "1", "-x", 4), [Output("1", None, 9)], [Output("1", "-x+None", 4)]),
    (("l", "1", "a9", 4), [Output("1", "a9+D", 9)], [Output("1", "a9+D", 9)]),
    (("l", "1", None, 1), [Output("1", None, 9)], [Output("1", None, 1)]),
    (("r", "a", None, 7), [Output("2", None, 7)], [Output("2", "a2+None", 7)]),
    (("l", "2", "a2", 8), [], [Output("2", "a2+None", 8)]),
    (("l", "2", "b2", 8), [Output("2", "b2+C", 9)], [Output("2", "b2+C", 9)]),
    # What is not there is deleted.
    (("l", "3", None, 8), [], []),
    (("r", "c", None, 8), [], []),
]


@pytest.mark.parametrize("storage", ["memory", "rocksdb"])
@pytest.mark.parametrize("call", ["join", "left_join"])
def test_result_follows_both_sides(call: str, storage: Storage) -> None:
    bound = BoundTopology(_joined(call, storage=storage))
    for (topic, key, value, time_ms), inner, left in STEPS:
        bound.pipe(topic, key, value, timestamp_ms=time_ms)
        assert bound.read("out") == (inner if call == "join" else left), (topic, key, value)


@pytest.mark.parametrize("call", ["join", "left_join"])
def test_result_is_the_same_when_the_tasks_restart_behind_every_record(call: str) -> None:
    task = RestartingTopology(_joined(call))
    for (topic, key, value, time_ms), _, _ in STEPS:
        task.bound.pipe(topic, key, value, timestamp_ms=time_ms)
        task.commit()
        task.restart()
    places = 1 if call == "join" else 2
    assert task.outputs["out"] == [output for step in STEPS for output in step[places]]


def test_nothing_stays_in_the_joins_stores_when_all_entries_are_deleted() -> None:
    bound = BoundTopology(_joined("left_join"))
    for key, value in (("1", "a"), ("2", "-"), ("1", "b"), ("1", None), ("2", None)):
        bound.pipe("l", key, value)
    assert list(bound.stores["fk-subscriptions"].all()) == []
    assert list(bound.stores["fk-copies"].all()) == []


def test_entry_without_foreign_key_is_counted_when_the_join_is_inner() -> None:
    with TopologyTestDriver(_joined(), application_id="app") as driver:
        driver.pipe_input("l", key="1", value="-", timestamp_ms=0)
        assert [(each.rule, each.records) for each in driver.counts.left_out] == [("null", 1)]


def test_foreign_key_that_begins_another_one_has_its_own_subscribers() -> None:
    builder = _builder()
    left, right = builder.table("l"), builder.table("r")
    left.join(right, _both, foreign_key=lambda key, value: value).to_stream().send_to("out")
    bound = BoundTopology(builder.build())
    for key, value in (("1", "a"), ("2", "ab"), ("3", "a\x00")):
        bound.pipe("l", key, value)
    bound.pipe("r", "a", "x")
    bound.flush()
    assert bound.read("out") == [Output("1", "a+x", 0)]


def test_key_is_deleted_when_the_joiner_gives_none() -> None:
    bound = BoundTopology(_joined(joiner=lambda left, right: None if right == "-" else right))
    for topic, key, value in (("l", "1", "a"), ("r", "a", "x"), ("r", "a", "-"), ("r", "a", "--")):
        bound.pipe(topic, key, value)
    assert [output.value for output in bound.read("out")] == ["x", None, "--"]


def test_result_is_kept_when_a_store_is_named() -> None:
    bound = BoundTopology(_joined(store="kept"))
    for topic, key, value in (("l", "1", "a"), ("l", "2", "a"), ("r", "a", "x"), ("l", "1", None)):
        bound.pipe(topic, key, value)
        bound.flush()
    assert list(bound.stores["kept"].all()) == [("2", "a+x")]


def test_result_is_kept_by_itself_as_soon_as_a_table_is_made_of_it() -> None:
    builder = _builder()
    left, right = builder.table("l", store=_spec("l-s")), builder.table("r", store=_spec("r-s"))
    joined = left.join(right, _both, foreign_key=_first_letter)
    with pytest.raises(TopologyError, match="kept in no store"):
        _ = joined.store
    sums = joined.group_by(lambda key, value: (value[-1], 1), value_serde=serdes.int64())
    sums.count(store="counts")
    kept = joined.store
    joined.filter(lambda key, value: True).to_stream().send_to("out")
    assert joined.store == kept
    bound = BoundTopology(builder.build())
    for topic, key, value in (("l", "1", "a"), ("l", "2", "a"), ("r", "a", "x"), ("r", "a", "y")):
        bound.pipe(topic, key, value)
        bound.flush()
    assert dict(bound.stores["counts"].all()) == {"x": 0, "y": 2}
    bound.pipe("l", "1", "b")
    bound.flush()
    assert dict(bound.stores["counts"].all()) == {"x": 0, "y": 1}


def test_stream_is_joined_with_the_result() -> None:
    builder = _builder()
    left, right = builder.table("l", store=_spec("l-s")), builder.table("r", store=_spec("r-s"))
    joined = left.join(right, _both, foreign_key=_first_letter)
    stream = builder.stream("in").select_key(lambda key, value: key)
    stream.join(joined, _both).send_to("out")
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for topic, key, value in (("l", "1", "a"), ("r", "a", "x"), ("in", "1", "i")):
            driver.pipe_input(topic, key=key, value=value, timestamp_ms=0)
        assert [record.value for record in driver.read_output("out")] == ["i+a+x"]


def test_record_of_a_change_meets_the_result_with_it_when_its_stream_is_joined_with_the_result() -> None:
    builder = _builder()
    left, right = builder.table("l", store=_spec("l-s")), builder.table("r", store=_spec("r-s"))
    joined = left.join(right, _both, foreign_key=_first_letter)
    # The stream is there before the result is kept.
    changes = joined.to_stream()
    changes.join(joined, lambda new, kept: f"{new}/{kept}").send_to("out")
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for topic, key, value in (("l", "1", "a"), ("r", "a", "x"), ("r", "a", "y")):
            driver.pipe_input(topic, key=key, value=value, timestamp_ms=0)
        assert [record.value for record in driver.read_output("out")] == ["a+x/a+x", "a+y/a+y"]


def test_topics_have_the_partitions_of_what_they_meet() -> None:
    plan = _joined().plan("app")
    counts = partition_counts(plan, {"l": 3, "r": 5})
    assert counts == {
        "l": 3,
        "r": 5,
        "app-fk-subscriptions-repartition": 5,
        "app-fk-copies-repartition": 5,
        "app-fk-answers-repartition": 5,
    }


def test_results_are_made_in_a_third_subtopology_with_a_copy_of_the_left_table() -> None:
    read, kept = {}, {}
    for sub in _joined().subtopologies():
        read[sub.id], kept[sub.id] = set(sub.source_topics), {store.name for store in sub.stores}
    (resolver,) = [number for number, topics in read.items() if "fk-answers-repartition" in topics]
    assert len(read) == 3
    assert read[resolver] == {"fk-copies-repartition", "fk-answers-repartition"}
    assert "fk-copies" in kept[resolver]


def test_entries_can_move_to_other_processors() -> None:
    keys = {
        topic: keys for sub in _joined().plan("app").subtopologies for topic, keys in sub.entry_keys.items()
    }
    assert not any(each.unfit for each in keys.values())
    subscriptions = keys["app-fk-subscriptions-changelog"]
    assert subscriptions.placing(b"\x00\x00\x00\x02ab" + b"1") == b"ab"
    assert keys["app-fk-copies-changelog"].placing(b"1") == b"1"


def test_join_is_refused_when_it_cannot_be() -> None:
    builder = _builder()
    left, right = builder.table("l"), builder.table("r")
    with pytest.raises(TopologyError, match="given str as foreign_key, expected a function"):
        left.join(right, _both, foreign_key="a")  # type: ignore[call-overload]
    forgotten = builder.table("f", store=_spec("f-s", logged=False))
    for one, other in ((left, forgotten), (forgotten, right)):
        with pytest.raises(TopologyError, match="needs the changelog of the store 'f-s'"):
            one.join(other, _both, foreign_key=_first_letter)
    windows = builder.stream("w").group_by_key().windowed_by(TumblingWindow(size_ms=10)).count()
    with pytest.raises(TopologyError, match="joins the table of windows"):
        left.join(windows, _both, foreign_key=_first_letter)  # type: ignore[arg-type]


@pytest.mark.promise("topologies-can-stop")
def test_table_joined_with_itself_is_refused_with_what_to_do() -> None:
    builder = _builder()
    table = builder.table("l")
    table.join(table, _both, foreign_key=_first_letter).to_stream().send_to("out")
    with pytest.raises(TopologyError, match=r"can never stop") as refused:
        builder.build()
    assert "join a copy" in refused.value.fix


def test_error_names_the_serde_that_the_foreign_key_does_not_fit() -> None:
    builder = _builder()
    right = builder.table("r", key_serde=serdes.int64())
    joined = builder.table("l").join(right, _both, foreign_key=_first_letter)  # type: ignore[arg-type]
    joined.to_stream().send_to("out")
    driver = TopologyTestDriver(builder.build(), application_id="app")
    with pytest.raises(RecordError, match=r"foreign_key: the function returned str, .* are serdes.int64"):
        driver.pipe_input("l", key="1", value="a", timestamp_ms=0)


def test_copy_of_a_table_is_joined_with_it() -> None:
    builder = _builder()
    table = builder.table("l", store=_spec("l-s"))
    copy = table.to_stream().repartition(1).to_table(store=_spec("copy"))
    table.join(copy, _both, foreign_key=lambda key, value: value[0]).to_stream().send_to("out")
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for key, value in (("1", "2 ann"), ("2", "- bob"), ("2", "- eve")):
            driver.pipe_input("l", key=key, value=value, timestamp_ms=0)
        found = [(record.key, record.value) for record in driver.read_output("out")]
    assert found == [("1", "2 ann+- bob"), ("1", "2 ann+- eve")]


def test_failing_joiner_leaves_one_result_out_and_the_next_ones_right() -> None:
    def joiner(left: str, right: str) -> str:
        if right == "bad":
            raise ValueError(right)
        return left + right

    settings = {"processing.exception.handler": "skip"}
    with TopologyTestDriver(_joined(joiner=joiner), application_id="app", settings=settings) as driver:
        for topic, key, value in (("l", "1", "a"), ("r", "a", "bad"), ("l", "1", "ab"), ("r", "a", "x")):
            driver.pipe_input(topic, key=key, value=value, timestamp_ms=0)
        assert [record.value for record in driver.read_output("out")] == ["abx"]
        driver.pipe_input("l", key="1", value=None, timestamp_ms=0)
        assert [record.value for record in driver.read_output("out")] == [None]
