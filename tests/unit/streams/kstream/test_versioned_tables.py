"""Tables with versions, case by case; any order of records is in ``property/test_versioned_stores.py``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams.batch.inspect.state import StoredState
from airflow_kstreams.streams import (
    KStreamBuilder,
    KTable,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    StateStoreError,
    StoreSpec,
    TopologyError,
    VersionedRecord,
    VersionedStore,
    VersionedStoreSpec,
    serdes,
)
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.state.stores.making import make_store
from airflow_kstreams.testing import InMemoryKafka, ManualClock, TopologyTestDriver
from tests.support.kafka.in_process import Application
from tests.support.topology.bound_topology import BoundTopology
from tests.unit.batch.expand.test_processor_expansion import expand, grown
from tests.unit.batch.growing.test_partition_growth import KEYS

pytestmark = pytest.mark.promise("streams-meet-the-version-of-their-time")

HISTORY_MS = 100


def _spec(name: str = "versions", **options: Any) -> VersionedStoreSpec[str, Any]:
    given = {"history_ms": HISTORY_MS, **options}
    return VersionedStoreSpec(name=name, key_serde=serdes.string(), value_serde=serdes.json(), **given)


def _builder() -> KStreamBuilder[str, Any]:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def _joined(builder: KStreamBuilder[str, Any]) -> KStreamBuilder[str, Any]:
    table = builder.table("table", store=_spec())
    builder.stream("in").left_join(table, lambda value, theirs: [value, theirs]).send_to("out")
    table.to_stream().send_to("changes")
    return builder


def test_stream_meets_the_version_of_its_time_when_it_is_late() -> None:
    bound = BoundTopology(_joined(_builder()).build())
    bound.pipe("table", "a", "old", timestamp_ms=10)
    bound.pipe("table", "a", "new", timestamp_ms=20)
    for time_ms in (9, 10, 19, 20, 21):
        bound.pipe("in", "a", time_ms, timestamp_ms=time_ms)
    assert [out.value for out in bound.read("out")] == [
        [9, None],
        [10, "old"],
        [19, "old"],
        [20, "new"],
        [21, "new"],
    ]


def test_late_record_is_a_version_between_others() -> None:
    bound = BoundTopology(_joined(_builder()).build())
    for value, time_ms in (("a", 10), ("c", 30), ("b", 20)):
        bound.pipe("table", "k", value, timestamp_ms=time_ms)
    store = bound.stores["versions"]
    assert store.get("k") == VersionedRecord("c", 30)
    assert store.get("k", 25) == VersionedRecord("b", 20, 30)
    assert store.get("k", 15) == VersionedRecord("a", 10, 20)
    assert [out.value for out in bound.read("changes")] == ["a", "c", "b"]


def test_record_behind_the_history_is_dropped_and_counted_when_the_table_has_newer_ones() -> None:
    with TopologyTestDriver(_joined(_builder()).build(), application_id="app") as driver:
        for key, value, time_ms in (("a", 1, 10), ("b", 1, 200), ("a", 2, 99), ("a", 3, 100)):
            driver.pipe_input("table", key=key, value=value, timestamp_ms=time_ms)
        assert [record.value for record in driver.read_output("changes")] == [1, 1, 3]
        assert [(each.rule, each.records) for each in driver.counts.left_out] == [("late", 1)]
        # 10 lies behind the history, and is not the latest version.
        for time_ms in (50, 99, 100):
            driver.pipe_input("in", key="a", value=time_ms, timestamp_ms=time_ms)
        driver.pipe_input("in", key="b", value=0, timestamp_ms=300)
        assert [record.value for record in driver.read_output("out")] == [
            [50, None],
            [99, None],
            [100, 3],
            [0, 1],
        ]


def test_latest_version_is_found_behind_the_history_when_nothing_followed_it() -> None:
    store: VersionedStore[str, Any] = make_store(_spec(), TaskRecordContext())  # type: ignore[assignment]
    store.put("a", 1, 10)
    store.put("b", 2, 1_000)
    assert store.get("a", 20) == VersionedRecord(1, 10)
    assert not store.put("a", 3, 899)
    assert store.put("a", 3, 900)


@pytest.mark.parametrize("storage", ["memory", "rocksdb"])
def test_versions_leave_with_a_tombstone_when_no_question_reaches_them(storage: Any) -> None:
    store: Any = make_store(_spec(storage=storage), TaskRecordContext())
    for number in range(1_000):
        store.put(f"k{number % 10}", number, 10 * number)
        assert sum(1 for _ in store.all()) <= 10 + HISTORY_MS // 10 + 2
    log: dict[bytes, bytes] = {}
    for key, data, _ in store.drain_changes():
        if data is None:
            log.pop(key, None)
        else:
            log[key] = data
    assert len(log) == sum(1 for _ in store.all())
    if storage == "rocksdb":
        store.close()


def test_store_goes_on_as_before_when_its_files_are_opened_again(tmp_path: Path) -> None:
    spec = _spec(storage="rocksdb")
    first: Any = make_store(spec, TaskRecordContext())
    first.open(tmp_path / "store")
    first.put("a", 1, 10)
    first.put("a", 2, 20)
    first.put("b", 3, 115)
    list(first.drain_changes())
    first.close()
    second: Any = make_store(spec, TaskRecordContext())
    second.open(tmp_path / "store")
    assert second.get("a", 15) == VersionedRecord(1, 10, 20)
    # The time that the store has seen is that of "b".
    assert not second.put("a", 0, 14)
    assert second.get("a", 14) is None
    assert [second.get(key) for key in ("a", "b")] == [VersionedRecord(2, 20), VersionedRecord(3, 115)]
    second.close()


def test_key_stays_deleted_when_an_older_record_comes() -> None:
    store: Any = make_store(_spec(), TaskRecordContext())
    store.put("a", 1, 10)
    assert store.delete("a", 10) == VersionedRecord(1, 10)
    store.put("a", 2, 5)
    assert (store.get("a"), store.get("a", 10)) == (None, None)
    assert store.get("a", 9) == VersionedRecord(2, 5, 10)


def test_derived_table_is_read_as_of_the_records_time_when_it_is_kept_or_not() -> None:
    builder = _builder()
    table = builder.table("table", store=_spec())
    odd = table.filter(lambda key, value: value % 2 == 1)
    kept = odd.map_values(lambda value: value * 10, store=_spec("kept"))
    stream = builder.stream("in")
    stream.left_join(odd, lambda value, theirs: [value, theirs]).send_to("derived")
    stream.left_join(kept, lambda value, theirs: [value, theirs]).send_to("kept-joined")
    bound = BoundTopology(builder.build())
    for value, time_ms in ((1, 10), (2, 20), (3, 30), (5, 15)):
        bound.pipe("table", "a", value, timestamp_ms=time_ms)
    for time_ms in (12, 17, 25, 35):
        bound.pipe("in", "a", time_ms, timestamp_ms=time_ms)
    assert [out.value for out in bound.read("derived")] == [[12, 1], [17, 5], [25, None], [35, 3]]
    assert [out.value for out in bound.read("kept-joined")] == [[12, 10], [17, 50], [25, None], [35, 30]]


def test_tables_below_take_the_latest_values_and_count_late_ones() -> None:
    builder = _builder()
    table = builder.table("table", store=_spec())
    groups = table.group_by(lambda key, value: ("all", value), value_serde=serdes.json())
    groups.reduce(lambda total, value: total + value, lambda total, value: total - value, store="sum")
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for value, time_ms in ((5, 10), (7, 30), (100, 20)):
            driver.pipe_input("table", key="a", value=value, timestamp_ms=time_ms)
        assert driver.store("sum").get("all") == 7
        assert [(each.rule, each.records) for each in driver.counts.left_out] == [("late", 1)]


def test_processor_uses_a_versioned_store_when_it_names_one() -> None:
    class Remember(Processor[str, Any, str, Any]):
        def init(self, context: ProcessorContext[str, Any]) -> None:
            self.context, self.store = context, context.state_store("versions")

        def process(self, record: ProcessorRecord[str, Any]) -> None:
            self.store.put(record.key, record.value, record.timestamp_ms)
            self.context.forward(record.key, self.store.get(record.key).value)

    builder = _builder()
    builder.stream("in").process(Remember, _spec()).send_to("out")
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for value, time_ms in ((1, 10), (2, 5)):
            driver.pipe_input("in", key="a", value=value, timestamp_ms=time_ms)
            driver.restart()
        assert [record.value for record in driver.read_output("out")] == [1, 1]


def test_store_is_described_and_shown_version_by_version_when_a_run_has_finished() -> None:
    kafka = InMemoryKafka(clock=ManualClock(now_ms=1_700_000_000_000))
    for topic in ("table", "in", "out", "changes"):
        kafka.create_topic(topic)
    topology = _joined(_builder()).build()
    assert "KTABLE-SOURCE-0000000001 (stores: [versions])" in topology.describe()
    app = Application(
        application_id="app", topology=topology, on=kafka, clock=kafka.clock, settings={"settle.ms": 0}
    )
    for run, records in enumerate([[("a", 1, 10)], [("a", 2, 30), ("a", 3, 20)]]):
        for key, value, time_ms in records:
            kafka.append("table", serdes.json().serialize(value), key.encode(), timestamp_ms=time_ms)
        kafka.append("in", b"0", b"a", timestamp_ms=25)
        app.run(str(run))
    assert [record.value() for record in kafka.records("out")] == [b"[0,1]", b"[0,1]"]
    with StoredState(app.cluster, topology, "app", "versions", clock=kafka.clock) as state:
        assert [(e.value, e.start_ms, e.end_ms) for e in state.find("a")] == [
            (1, 10, 20),
            (3, 20, 30),
            (2, 30, None),
        ]
        assert [state.get("a"), state.get("a", 25), state.get("a", 5)] == [2, 3, None]


def test_versions_go_with_their_keys_when_processors_are_added() -> None:
    builder = _builder()
    builder.table("in", store=_spec()).to_stream().send_to("out")
    scene = grown(2, 4, builder.build())
    scene.send(KEYS, 7, timestamp_ms=50)
    scene.run()
    expand(scene, 4)
    scene.run()
    scene.send(KEYS, 5, timestamp_ms=20)
    scene.run()
    assert len(scene.recorded.by_group) == 4
    found: dict[str, list[Any]] = {}
    with StoredState(scene.kafka, scene.app.topology, "app", "versions", clock=scene.app.clock) as state:
        for entry in state.all():
            found.setdefault(entry.key, []).append((entry.value, entry.start_ms, entry.end_ms))
    assert found == {key: [(1, 0, 20), (5, 20, 50), (7, 50, None)] for key in KEYS}


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: _spec(history_ms=-1), "history_ms=-1"),
        (lambda: _spec(history_ms="1d"), "history_ms='1d'"),
        (lambda: _spec(cached=True), "cached=True"),
        (lambda: _builder().stream("in").group_by_key().count(store=_spec()), "as a VersionedStoreSpec"),
        (
            lambda: (
                _builder()
                .table("in", store="t")
                .group_by(lambda key, value: (key, value))
                .count(store=_spec())
            ),
            "as a VersionedStoreSpec",
        ),
        (
            lambda: (
                _builder().table("in", store=_spec(logged=False)).group_by(lambda key, value: (key, value))
            ),
            "needs the changelog",
        ),
    ],
)
def test_use_is_refused_when_versions_would_be_none(make: Callable[[], object], error: str) -> None:
    with pytest.raises(TopologyError, match=error):
        make()


@pytest.mark.parametrize(
    ("value", "error"), [({1: "a"}, "a value of type dict"), (object(), r"\(type object\)")]
)
def test_value_is_named_when_its_serde_does_not_keep_it(value: object, error: str) -> None:
    store: Any = make_store(_spec(), TaskRecordContext())
    store.put("a", value, 10)
    with pytest.raises(StateStoreError, match=error):
        list(store.drain_changes())


def test_time_without_a_later_one_is_refused() -> None:
    store: Any = make_store(_spec(), TaskRecordContext())
    with pytest.raises(StateStoreError, match="the largest there is"):
        store.put("a", 1, 2**63 - 1)


def test_table_without_versions_takes_what_a_versioned_one_gives_in_the_order_of_records() -> None:
    # As in Kafka Streams: a plain store keeps what came last.
    builder = _builder()
    spec: StoreSpec[str, Any] = StoreSpec(
        name="plain", key_serde=serdes.string(), value_serde=serdes.json(), cached=False
    )
    table: KTable[str, Any] = builder.table("table", store=_spec())
    table.filter(lambda key, value: True, store=spec).to_stream().send_to("out")
    bound = BoundTopology(builder.build())
    for value, time_ms in ((1, 10), (3, 30), (2, 20)):
        bound.pipe("table", "a", value, timestamp_ms=time_ms)
    assert bound.stores["plain"].get("a") == 2
