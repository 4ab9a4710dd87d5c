"""Stores are read outside runs as their tasks hold them: of every kind, before and after expansions, during
runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest

from airflow_kstreams.batch.inspect.state import StateEntry, StoredState
from airflow_kstreams.batch.inspect.state.moment import Moment
from airflow_kstreams.batch.inspect.state.stored_state import LogFold
from airflow_kstreams.streams import (
    KStreamBuilder,
    SessionWindow,
    SlidingWindow,
    StoreSpec,
    Topology,
    TumblingWindow,
    VersionedStoreSpec,
    serdes,
)
from airflow_kstreams.streams.errors import ConfigError, DataLossError, StateStoreError
from airflow_kstreams.streams.ports import ClusterPort, TopicPartition
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka, ManualClock
from tests.support.kafka.in_process import Application
from tests.unit.batch.expand.test_processor_expansion import expand, grown
from tests.unit.batch.growing.test_partition_growth import KEYS, Scene

pytestmark = pytest.mark.promise("state-says-its-moment")

MINUTE_MS, HOUR_MS = 60_000, 3_600_000


def application(topology: Topology, kafka: InMemoryKafka | None = None, partitions: int = 1) -> Application:
    if kafka is None:
        kafka = InMemoryKafka(clock=ManualClock(now_ms=1_700_000_000_000))
    for topic in ("in", "others", "out"):
        kafka.create_topic(topic, partitions=partitions)
    return Application(
        application_id="app", topology=topology, on=kafka, clock=kafka.clock, settings={"settle.ms": 0}
    )


def send(app: Application, records: Iterable[tuple[str, Any, int]], topic: str = "in") -> None:
    assert isinstance(app.on, InMemoryKafka)
    for key, value, timestamp_ms in records:
        data = None if value is None else serdes.json().serialize(value)
        app.on.append(topic, data, key.encode(), timestamp_ms=HOUR_MS + timestamp_ms)


def opened(app: Application, store: str, cluster: ClusterPort | None = None) -> StoredState:
    return StoredState(cluster or app.cluster, app.topology, "app", store, clock=app.clock)


def read(app: Application, store: str) -> list[tuple[Any, ...]]:
    """Return key, bounds of the window since the first hour, and value of every entry."""
    with opened(app, store) as state:
        return [plain(entry) for entry in state.all()]


def plain(entry: StateEntry) -> tuple[Any, ...]:
    bounds = [None if ms is None else ms - HOUR_MS for ms in (entry.start_ms, entry.end_ms)]
    return (entry.key, *bounds, entry.value)


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def table() -> Topology:
    made = builder()
    made.table("in", store="newest")
    return made.build()


def test_key_value_store_gives_what_is_not_deleted_by_serialized_key() -> None:
    app = application(table())
    send(app, [("b", 1, 5), ("a", 2, 6), ("c", 3, 7)])
    app.run("one")
    send(app, [("b", None, 8), ("a", [4], 9)])
    app.run("two")

    with opened(app, "newest") as state:
        found = list(state.all())
        assert [(entry.key, entry.value, entry.timestamp_ms - HOUR_MS) for entry in found] == [
            ("a", [4], 9),
            ("c", 3, 7),
        ]
        assert (state.get("a"), state.get("b"), state.get("never")) == ([4], None, None)
        assert {entry.task_id for entry in found} == {"0_0"}


def test_windows_of_a_key_are_found_with_their_bounds() -> None:
    made = builder()
    minutes = made.stream("in").group_by_key().windowed_by(TumblingWindow(size_ms=MINUTE_MS, grace_ms=10**9))
    minutes.count(store="minutes")
    app = application(made.build())
    send(app, [("a", 0, 0), ("b", 0, 1), ("a", 0, MINUTE_MS), ("a", 0, MINUTE_MS + 1)])
    app.run("one")

    assert read(app, "minutes") == [
        ("a", 0, MINUTE_MS, 1),
        ("a", MINUTE_MS, 2 * MINUTE_MS, 2),
        ("b", 0, MINUTE_MS, 1),
    ]
    with opened(app, "minutes") as state:
        assert [plain(entry)[1:] for entry in state.find("a")] == [
            (0, MINUTE_MS, 1),
            (MINUTE_MS, 2 * MINUTE_MS, 2),
        ]
        assert (state.get("a", HOUR_MS + MINUTE_MS), state.get("a", 7), state.get("b")) == (2, None, 1)
        with pytest.raises(ConfigError, match="holds 2 entries of the key 'a'"):
            state.get("a")


def test_sessions_of_a_key_are_found_with_first_and_last_record() -> None:
    made = builder()
    made.stream("in").group_by_key().windowed_by(SessionWindow(gap_ms=10)).count(store="visits")
    app = application(made.build())
    send(app, [("a", 0, 0), ("a", 0, 7), ("a", 0, 50), ("b", 0, 50)])
    app.run("one")

    assert read(app, "visits") == [("a", 0, 7, 2), ("a", 50, 50, 1), ("b", 50, 50, 1)]
    with opened(app, "visits") as state:
        assert state.get("a", HOUR_MS, HOUR_MS + 7) == 2


def test_versions_of_a_key_are_found_when_some_are_late_deleted_or_expired() -> None:
    made = builder()
    spec = VersionedStoreSpec(
        name="versions", key_serde=serdes.string(), value_serde=serdes.json(), history_ms=100
    )
    made.table("in", store=spec)
    app = application(made.build())
    send(app, [("a", 1, 0), ("a", 3, 20), ("a", 2, 10), ("b", 7, 20), ("b", None, 30)])
    app.run("one")
    assert read(app, "versions") == [
        ("a", 0, 10, 1),
        ("a", 10, 20, 2),
        ("a", 20, None, 3),
        ("b", 20, 30, 7),
    ]
    send(app, [("a", 4, 125), ("a", 9, 5), ("c", 5, 124)])  # the one at 5 is older than the history
    app.run("two")
    assert read(app, "versions") == [
        ("a", 20, 125, 3),
        ("a", 125, None, 4),
        ("b", 20, 30, 7),
        ("c", 124, None, 5),
    ]
    with opened(app, "versions") as state:
        assert [state.get("a", HOUR_MS + at_ms) for at_ms in (10, 20, 124, 125)] == [None, 3, 3, 4]
        assert (state.get("a"), state.get("b"), state.get("b", HOUR_MS + 25)) == (4, None, 7)


def test_windows_and_sessions_are_gone_when_they_are_closed() -> None:
    made = builder()
    grouped = made.stream("in").group_by_key()
    grouped.windowed_by(TumblingWindow(size_ms=MINUTE_MS, grace_ms=0)).count(store="minutes")
    grouped.windowed_by(SessionWindow(gap_ms=10, grace_ms=0)).count(store="visits")
    app = application(made.build())
    send(app, [("a", 0, 0), ("b", 0, 10)])
    app.run("one")
    assert len(read(app, "minutes")) == len(read(app, "visits")) == 2
    send(app, [("b", 0, 2 * MINUTE_MS)])
    app.run("two")
    assert read(app, "minutes") == [("b", 2 * MINUTE_MS, 3 * MINUTE_MS, 1)]
    assert read(app, "visits") == [("b", 2 * MINUTE_MS, 2 * MINUTE_MS, 1)]


def test_results_of_a_foreign_key_join_are_found_and_what_it_keeps_besides() -> None:
    made = builder()
    left, right = made.table("in", store="left"), made.table("others", store="right")
    left.left_join(
        right,
        lambda order, city: [order, city],
        foreign_key=lambda number, order: order[0],
        store="both",
        name="fk",
    )
    app = application(made.build())
    send(app, [("1", ["ann"], 0), ("2", ["bob"], 0), ("3", ["ann"], 0)])
    send(app, [("ann", "Rome", 1), ("bob", "Oslo", 1)], topic="others")
    app.run("one")
    send(app, [("3", None, 2)])
    send(app, [("bob", None, 3)], topic="others")
    app.run("two")
    assert read(app, "both") == [
        ("1", None, None, [["ann"], "Rome"]),
        ("2", None, None, [["bob"], None]),
    ]
    subscribed = [entry[0] for entry in read(app, "fk-subscriptions")]
    assert subscribed == [b"\0\0\0\x03ann1", b"\0\0\0\x03bob2"]
    with opened(app, "fk-subscriptions") as state:
        assert len(state.find_serialized(subscribed[0])) == 1
    with opened(app, "fk-copies") as state:
        assert [entry.value.value for entry in state.find_text("2")] == [b'["bob"]']


def test_asking_for_more_than_entries_have_is_refused() -> None:
    made = builder()
    grouped = made.stream("in").group_by_key()
    grouped.count(store="counts")
    grouped.windowed_by(SessionWindow(gap_ms=10)).count(store="visits")
    spec = VersionedStoreSpec(name="v", key_serde=serdes.string(), value_serde=serdes.json(), history_ms=9)
    made.table("others", store=spec)
    app = application(made.build())
    send(app, [("a", 0, 0)])
    send(app, [("a", 0, 0)], topic="others")
    app.run("one")
    for store, moments, told in (
        ("counts", (0,), "named by the key alone"),
        ("visits", (0, 0, 0), "by the key and the start and end of a window"),
        ("v", (0, 0), "by the key and one moment"),
    ):
        with opened(app, store) as state, pytest.raises(ConfigError, match=told):
            state.get("a", *moments)


def test_marks_of_flushed_windows_are_found_by_the_key_of_the_window() -> None:
    made = builder()
    window = TumblingWindow(size_ms=MINUTE_MS, grace_ms=10**9, at_run_end="flush")
    minutes = made.stream("in").group_by_key().windowed_by(window).count(store="minutes")
    minutes.suppress().to_stream().send_to("out", key_serde=serdes.time_windowed(serdes.string(), MINUTE_MS))
    app = application(made.build())
    send(app, [("a", 0, 0), ("b", 0, MINUTE_MS)])
    app.run("one")

    with opened(app, "minutes-flushed") as state:
        assert [plain(entry) for entry in state.find("a")] == [("a", 0, MINUTE_MS, 1)]
        assert [plain(entry) for entry in state.find_text("b")] == [("b", MINUTE_MS, 2 * MINUTE_MS, 1)]


def test_elements_of_a_join_are_found_with_their_times_and_whether_they_wait() -> None:
    made = builder()
    left, right = (made.stream(topic).with_window(SlidingWindow(size_ms=10)) for topic in ("in", "others"))
    left.left_join(right, lambda one, other: [one, other], name="pairs")
    app = application(made.build())
    send(app, [("a", 1, 0), ("a", 2, 5), ("b", 3, 5)])
    send(app, [("a", 4, 12)], "others")
    app.run("one")

    with opened(app, "pairs-left") as state:
        found = [(*plain(entry)[:2], entry.value, entry.waits) for entry in state.all()]
    assert found == [("a", 0, 1, True), ("a", 5, 2, False), ("b", 5, 3, True)]
    assert read(app, "pairs-right") == [("a", 12, None, 4)]


@pytest.mark.parametrize("key", ["k0", "k7", "k39"])
def test_key_is_found_in_the_task_that_has_it_when_there_are_several(key: str) -> None:
    scene = Scene(4)
    scene.send(KEYS, 7)
    scene.run()
    with opened(scene.app, "listed") as state:
        (found,) = state.find(key)
        assert found.value == [7]
        assert sorted(entry.key for entry in state.all()) == sorted(KEYS)
        assert {entry.task_id for entry in state.all()} == {"0_0", "0_1", "0_2", "0_3"}


def test_only_the_partition_is_read_in_which_producers_place_a_key() -> None:
    class Assigned:
        def __init__(self) -> None:
            self.partitions: set[TopicPartition] = set()

        def call(self, name: str, client: object, effect: Any, arguments: tuple[Any, ...]) -> Any:
            if name == "reader.assign":
                self.partitions |= {*arguments[0]}
            return effect()

    scene, seen = Scene(4), Assigned()
    scene.send(KEYS, 7)
    scene.run()
    with opened(scene.app, "listed", FaultyCluster(scene.kafka, seen)) as state:
        assert state.get("k7") == [7]
        read = {tp for tp in seen.partitions if tp.topic == "app-listed-changelog"}
        assert len(read) == 1
        assert state.get("never") is None
        read = {tp for tp in seen.partitions if tp.topic == "app-listed-changelog"}
        assert len(read) == 4


def test_key_is_found_when_its_producer_placed_it_elsewhere() -> None:
    app = application(table(), partitions=3)
    assert isinstance(app.on, InMemoryKafka)
    for partition in range(3):
        app.on.append("in", b"1", f"of {partition}".encode(), partition=partition, timestamp_ms=0)
    app.run("one")
    with opened(app, "newest") as state:
        for partition in range(3):
            (found,) = state.find(f"of {partition}")
            assert found.task_id == f"0_{partition}"


def test_every_key_is_given_once_before_while_and_after_processors_are_added() -> None:
    scene = grown(2, 4)

    def listed() -> dict[str, list[int]]:
        with opened(scene.app, "listed") as state:
            entries = list(state.all())
            assert len(entries) == len(KEYS)
            assert all(state.find(entry.key) == [entry] for entry in entries[::7])
            return {entry.key: entry.value for entry in entries}

    assert listed() == scene.sent
    expand(scene, 4)
    assert listed() == scene.sent, "copies of the new processors do not count yet"
    scene.run()
    assert len(scene.recorded.by_group) == 4
    assert listed() == scene.sent
    scene.send(KEYS, 2)
    scene.run()
    assert listed() == scene.sent


def test_moment_is_that_of_the_run_that_finished_last() -> None:
    app = application(table())
    send(app, [("a", 1, 0)])
    app.run("one")
    app.run("two")
    with opened(app, "newest") as state:
        assert state.get("a") == 1
        moment = state.as_of()
    assert (moment.moment, moment.run_id, moment.whole) == (Moment.FINISHED, "two", True)
    assert str(moment) == "as of run two, finished 2023-11-14 22:13:20 UTC"


def test_moment_is_the_last_commit_while_a_run_is_under_way() -> None:
    app = application(table(), partitions=2)
    assert isinstance(app.on, InMemoryKafka)
    for value, run in ((1, "one"), (2, "two")):
        for partition in range(2):
            app.on.append("in", str(value).encode(), f"of {partition}".encode(), partition=partition)
        if run == "one":
            app.run(run)
    slice_ = app.begin("two")
    app.task(slice_, 0, 1)

    with opened(app, "newest") as state:
        found = {entry.key: entry.value for entry in state.all()}
        moment = state.as_of()

    assert found == {"of 0": 1, "of 1": 2}
    assert (moment.moment, moment.run_id, moment.whole) == (Moment.UNDER_WAY, "two", False)
    assert "as of the last commit: run two was under way" in str(moment)


def test_moment_is_the_last_commit_when_a_run_begins_while_the_store_is_read() -> None:
    app = application(table())
    send(app, [("a", 1, 0), ("b", 1, 0)])
    app.run("one")
    with opened(app, "newest") as state:
        entries = state.all()
        assert next(entries).value == 1
        send(app, [("b", 2, 0)])
        app.run("two")
        assert next(entries).value == 1, "the task was read already"
        assert state.as_of().moment is Moment.UNDER_WAY
        assert state.get("b") == 2
    with opened(app, "newest") as state:
        assert state.get("b") == 2
        assert state.as_of().run_id == "two"


def test_entry_is_not_lost_when_compaction_runs_ahead_of_the_reading() -> None:
    class Compacting:
        """Runs and compacts after the first records were fetched, as long as there is something to send."""

        def __init__(self, app: Application) -> None:
            self.app, self.left = app, 2

        def call(self, name: str, client: object, effect: Any, arguments: tuple[Any, ...]) -> Any:
            fetched = effect()
            if name != "reader.poll" or not self.left or CHANGELOG not in fetched.records:
                return fetched
            self.left -= 1
            send(self.app, [("a", 2 + self.left, 0), ("b", 2 + self.left, 0)])
            self.app.run(f"meanwhile {self.left}")
            compact(CHANGELOG.topic)
            # What was fetched of the keys that the cleaner has met is gone, as if it had been faster.
            return fetched._replace(records={})

    app = application(table())
    kafka = app.on
    assert isinstance(kafka, InMemoryKafka)
    compact = kafka.compact
    send(app, [("a", 1, 0), ("b", 1, 0), ("c", 1, 0)])
    app.run("one")
    with opened(app, "newest", FaultyCluster(kafka, Compacting(app))) as state:
        found = {entry.key: entry.value for entry in state.all()}
        assert (found["a"], found["b"]) == (2, 2)
        assert not state.as_of().whole


CHANGELOG = TopicPartition("app-newest-changelog", 0)


def test_error_lists_the_stores_there_are_when_one_is_missing() -> None:
    made = builder()
    made.table("in", store="newest")
    made.table(
        "others",
        store=StoreSpec(name="unlogged", key_serde=serdes.string(), value_serde=serdes.json(), logged=False),
    )
    app = application(made.build())
    with pytest.raises(ConfigError, match=r"no store 'newst'(.|\n)*name one of its stores: newest$"):
        opened(app, "newst")
    with pytest.raises(ConfigError, match=r"'unlogged' has no changelog"):
        opened(app, "unlogged")
    with pytest.raises(ConfigError, match="there is no application 'app' on this cluster"):
        opened(app, "newest")
    assert isinstance(app.on, InMemoryKafka)
    app.on.create_topic("app-dead-letter")
    with pytest.raises(ConfigError, match=r"topic 'app-newest-changelog' does not exist"):
        opened(app, "newest")


@pytest.mark.error_example("KS-STATE-001")
def test_store_of_other_serdes_is_refused_instead_of_misread() -> None:
    app = application(table())
    send(app, [("a", 1, 0)])
    app.run("one")
    made = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    made.table("in", store="newest")
    app.topology = made.build()
    with pytest.raises(
        StateStoreError, match=r"'string -> json', the application file has 'string -> string'"
    ):
        opened(app, "newest")


def test_entry_that_the_serde_does_not_read_is_an_error_that_names_it() -> None:
    app = application(table())
    send(app, [("a", 1, 0)])
    app.run("one")
    assert isinstance(app.on, InMemoryKafka)
    app.on.append("app-newest-changelog", b"{", b"b")
    with opened(app, "newest") as state:
        assert state.get("a") == 1
        with pytest.raises(
            StateStoreError, match=r"entry with the key 62 \(hexadecimal\) is not in the serdes"
        ):
            state.get("b")


def test_changelog_that_is_not_whole_is_refused() -> None:
    app = application(table())
    send(app, [("a", 1, 0)])
    app.run("one")
    assert isinstance(app.on, InMemoryKafka)
    app.on.admin().delete_records({CHANGELOG: 1})
    with opened(app, "newest") as state, pytest.raises(DataLossError, match="before offset 1 were deleted"):
        list(state.all())


def test_changelog_that_was_truncated_is_refused() -> None:
    app = application(table())
    send(app, [("a", 1, 0), ("b", 1, 0)])
    app.run("one")
    assert isinstance(app.on, InMemoryKafka)
    app.on.truncate(CHANGELOG, 1)
    with opened(app, "newest") as state, pytest.raises(DataLossError, match="ends at 1, but the ledger says"):
        state.get("a")


def test_key_that_does_not_fit_is_refused_with_what_is_asked_for() -> None:
    app = application(table())
    send(app, [("a", 1, 0)])
    app.run("one")
    with opened(app, "newest") as state, pytest.raises(StateStoreError, match=r"key 7 \(type int\)"):
        state.find(7)


@pytest.mark.parametrize(
    ("serde", "text", "key"),
    [
        (serdes.string(), "12", "12"),
        (serdes.int64(), "12", 12),
        (serdes.json(), "12", 12),
        (serdes.json(), '"12"', "12"),
        (serdes.json(), "AA", "AA"),
        (serdes.json(), '["AA", 1]', ["AA", 1]),
        (serdes.bytes(), "AA", b"AA"),
    ],
)
def test_text_means_the_key_that_its_serde_takes(serde: Any, text: str, key: Any) -> None:
    made = KStreamBuilder(default_key_serde=serde, default_value_serde=serdes.json())
    made.table("in", store="newest")
    app = application(made.build())
    assert isinstance(app.on, InMemoryKafka)
    app.on.append("in", b"1", serde.serialize(key))
    app.run("one")
    with opened(app, "newest") as state:
        assert [(entry.key, entry.value) for entry in state.find_text(text)] == [(key, 1)]


def test_text_that_can_be_no_key_is_refused() -> None:
    made = KStreamBuilder(default_key_serde=serdes.int64(), default_value_serde=serdes.json())
    made.table("in", store="newest")
    app = application(made.build())
    assert isinstance(app.on, InMemoryKafka)
    app.on.append("in", b"1", bytes(8))
    app.run("one")
    with (
        opened(app, "newest") as state,
        pytest.raises(ConfigError, match="'AA' is no key in the format int64"),
    ):
        state.find_text("AA")


def test_everything_is_folded_with_a_bounded_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty times the cache goes through, and what stays in memory is the cache."""
    monkeypatch.setattr("airflow_kstreams.batch.inspect.state.stored_state.CACHE_BYTES", 1024 * 1024)
    kafka = InMemoryKafka()
    kafka.create_topic("log")
    with LogFold(lambda key: key) as fold:
        for number in range(20):
            kafka.append("log", bytes([number]) * 1024 * 1024, f"{number:02}".encode())
            fold.add(kafka.records("log")[-1:])
        (pages,) = fold._database.execute("PRAGMA cache_size").fetchone()
        assert pages == -1024
        assert [key for key, _, _ in fold.entries()] == [f"{number:02}".encode() for number in range(20)]
        (stored,) = fold._database.execute("PRAGMA page_count").fetchone()
        assert stored * 16_384 > 20 * 1024 * 1024


def test_progress_says_how_many_offsets_are_read() -> None:
    scene, told = Scene(2), []
    scene.send(KEYS, 7)
    scene.run()
    with StoredState(
        scene.kafka, scene.app.topology, "app", "listed", progress=lambda *seen: told.append(seen)
    ) as state:
        assert len(list(state.all())) == len(KEYS)
    done, total = told[-1]
    assert done == total
    assert done >= len(KEYS)


@pytest.mark.promise("inspect-bounded")
@pytest.mark.remedy("stored_state.StoredState._refuse_to_read_on")
def test_reading_ends_when_its_time_is_over_and_goes_on_with_more_of_it() -> None:
    app = application(table(), partitions=2)
    send(app, [(f"key {number}", number, number) for number in range(40)])
    app.run("one")
    clock = ManualClock(now_ms=0)

    def all_in(seconds: float | None) -> int:
        def slow(done: int, total: int) -> None:
            clock.sleep(5)

        with StoredState(
            app.cluster, app.topology, "app", "newest", clock=clock, progress=slow, seconds=seconds
        ) as state:
            return len(list(state.all()))

    with pytest.raises(
        StateStoreError, match=r"the time of 5 s was over at app-newest-changelog-1"
    ) as raised:
        all_in(5)
    assert re.search(r"when \d+ of \d\d offsets had been read$", raised.value.cause)
    assert all_in(60) == all_in(None) == 40
