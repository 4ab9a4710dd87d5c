"""An input of keyed state that has gained partitions: keys stay with their state, and in order."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from airflow_kstreams.batch.growing.grown_groups import with_boundaries
from airflow_kstreams.batch.ledger.facts import GroupedPartitions
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.streams import KStreamBuilder, Topology, TumblingWindow
from airflow_kstreams.streams.errors import ConfigError, TopologyError
from airflow_kstreams.streams.partitioning import partition_of_key
from airflow_kstreams.streams.partitioning.topic_growth import LINEAR, GrownTopic
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import accept_in_memory

pytestmark = pytest.mark.promise("keys-stay-when-topics-grow", "new-partitions-wait-for-their-ancestors")

KEYS = [f"k{number}" for number in range(40)]
HOUR_MS = 3_600_000


def listing(store: str = "listed", *, partitions: int | None = None, also: str = "") -> Topology:
    """Every value of each key, in the order in which they were processed.

    :param also: another topic that is copied to ``out``.
    """
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    stream = builder.stream("in")
    listed = (
        (stream if partitions is None else stream.repartition(partitions))
        .group_by_key()
        .aggregate(list, lambda key, value, so_far: [*so_far, value], store=store)
    )
    listed.to_stream().send_to("out")
    if also:
        builder.stream(also).send_to("out")
    return builder.build()


class Scene:
    """An application, and a producer that places keys as the topic's growth asks."""

    def __init__(
        self,
        first: int,
        topology: Topology | None = None,
        *,
        grown: int = 0,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.first = self.count = first
        self.kafka = InMemoryKafka()
        self.kafka.create_topic("in", partitions=first)
        self.kafka.create_topic("out")
        self.app = Application(
            application_id="app",
            topology=topology or listing(),
            on=self.kafka,
            settings={"settle.ms": 0, **(settings or {})},
        )
        if grown:
            self.grow(grown)
        self.sent: dict[str, list[int]] = {}
        self.runs = 0

    def grow(self, count: int) -> None:
        self.kafka.add_partitions("in", count)
        self.count = count

    def send(self, keys: list[str], value: int, *, modulo: bool = False, timestamp_ms: int = 0) -> None:
        for key in keys:
            first = self.count if modulo else self.first
            at = partition_of_key(key.encode(), first, self.count)
            self.kafka.append(
                "in", str(value).encode(), key.encode(), partition=at, timestamp_ms=timestamp_ms
            )
            self.sent.setdefault(key, []).append(value)

    def run(self) -> Any:
        self.runs += 1
        return self.again(1)

    def again(self, try_number: int) -> Any:
        """Try the run that was begun last once more."""
        return self.app.run(f"run-{self.runs}", (0, try_number))

    @property
    def listed(self) -> dict[str, list[int]]:
        decode = serdes.json().deserialize
        return {(r.key() or b"").decode(): decode(r.value() or b"") for r in self.kafka.records("out")}

    @property
    def recorded(self) -> Any:
        coordinator = self.app.coordinator()
        try:
            ledger = coordinator.session.read_ledger()
            return ledger.assignment.subtopologies["0"]
        finally:
            coordinator.close()


def test_keys_stay_with_their_state_in_the_specifications_own_story() -> None:
    scene = Scene(10)
    for value, count in enumerate([10, 15, 15, 18, 18]):
        if count != scene.count:
            scene.grow(count)
        scene.send(KEYS, value)
        scene.run()
    scene.run()
    assert scene.listed == scene.sent
    assert scene.recorded.grown["in"].history == (10, 15, 18)
    assert len(scene.recorded.by_group) == 10


def test_keys_stay_with_their_state_when_counts_are_multiples_under_the_default_partitioner() -> None:
    scene = Scene(2)
    for value, count in enumerate([2, 4, 12]):
        if count != scene.count:
            scene.grow(count)
        scene.send(KEYS, value, modulo=True)
        scene.run()
    scene.run()
    scene.run()
    assert scene.listed == scene.sent


def test_new_partitions_wait_for_what_their_ancestors_hold_when_both_have_records() -> None:
    scene = Scene(2)
    scene.send(KEYS, 0)
    scene.run()
    scene.send(KEYS, 1)
    scene.grow(3)
    scene.send(KEYS, 2)
    moved = [key for key in KEYS if partition_of_key(key.encode(), 2, 3) == 2]
    summary = scene.run()
    spans = {(part.topic, part.partition): part for part in summary.inputs}
    assert (spans["in", 2].start_offset, spans["in", 2].stop_offset) == (0, 0)
    ahead = len([key for key in KEYS if partition_of_key(key.encode(), 2, 2) == 0])
    boundary = 2 * ahead + ahead - len(moved)
    assert scene.recorded.boundaries == {"in-2": {0: boundary}}
    assert {key for key in KEYS if scene.listed[key] != scene.sent[key]} == {*moved}
    scene.run()
    assert scene.listed == scene.sent
    assert scene.recorded.boundaries == {}


def test_new_partitions_are_read_at_once_when_their_ancestors_are_drained() -> None:
    scene = Scene(2)
    scene.send(KEYS, 0)
    scene.run()
    scene.grow(3)
    moved = [key for key in KEYS if partition_of_key(key.encode(), 2, 3) == 2]
    scene.send(moved, 1)
    scene.run()
    assert scene.listed == scene.sent


def test_order_is_kept_when_a_producer_switches_while_a_run_begins() -> None:
    """What it writes before lies below the boundary, or what it writes after lies past the end."""
    scene = Scene(2)
    scene.send(KEYS, 0)
    scene.run()
    moved = [key for key in KEYS if partition_of_key(key.encode(), 2, 3) == 2]
    scene.kafka.add_partitions("in", 3)

    class Producing:
        """Writes to the old partitions, and then to the new one, once the first end of a log is read."""

        left = 1

        def call(self, name: str, client: object, effect: Callable[[], Any], arguments: object) -> Any:
            found = effect()
            if name == "admin.end_offsets" and "in" in str(arguments) and self.left:
                self.left -= 1
                scene.send(moved, 1, timestamp_ms=20)
                scene.count = 3
                scene.send(moved, 2, timestamp_ms=10)
            return found

    scene.app.interceptor = Producing()
    for _ in range(3):
        scene.run()
    assert scene.listed == scene.sent


def test_order_is_kept_when_a_producer_switches_after_a_run_has_found_the_growth() -> None:
    """A partition is new until it holds something, however many runs have found it empty."""
    scene = Scene(2)
    scene.send(KEYS, 0)
    scene.run()
    moved = [key for key in KEYS if partition_of_key(key.encode(), 2, 3) == 2]
    stays = next(key for key in KEYS if partition_of_key(key.encode(), 2, 3) == 1)
    scene.kafka.add_partitions("in", 3)
    scene.send([stays], 1)
    assert scene.run().warnings == (), "there is nothing that could wait"
    assert scene.recorded.grown["in"].history == (2, 3)
    scene.send(moved, 1, timestamp_ms=20)
    scene.count = 3
    scene.send(moved, 2, timestamp_ms=10)
    assert "in-2 waits for in-0" in scene.run().warnings[0]
    assert scene.recorded.boundaries
    scene.send(moved, 3, timestamp_ms=5)
    scene.run()
    assert scene.listed == scene.sent
    assert scene.recorded.boundaries == {}


def test_an_empty_partition_is_bound_again_when_something_comes_to_one_that_was_gained_with_it_or_later() -> (
    None
):
    """Its keys have gone over then, and what lies where they were is older than what may come."""
    grown = GroupedPartitions(
        partitions={"in": 5},
        grown={"in": GrownTopic((2, 3, 5), (LINEAR,))},
        found_empty=("in-2", "in-3", "in-4"),
    )

    def bound(entry: GroupedPartitions, *highs: int) -> GroupedPartitions:
        partitions = [TopicPartition("in", number) for number in range(5)]
        return with_boundaries(
            {0: entry}, {0: entry}, highs=dict(zip(partitions, highs, strict=True)), position=lambda _: 0
        )[0]

    assert bound(grown, 7, 8, 0, 0, 0) == grown, "nobody writes there yet"
    first = bound(grown, 7, 8, 9, 0, 0)
    assert first.boundaries == {"in-2": {0: 7}}, "those who know three need not know five"
    assert first.found_empty == ("in-3", "in-4")
    assert bound(first, 17, 18, 19, 0, 0) == first, "a boundary does not run away"
    last = bound(first, 17, 18, 19, 0, 20)
    assert last.boundaries == {"in-2": {0: 7}, "in-3": {1: 18}, "in-4": {0: 17}}
    assert last.found_empty == ("in-3",)
    assert bound(last, 27, 28, 29, 30, 30).boundaries == {**last.boundaries, "in-3": {1: 28}}


def test_waiting_takes_more_runs_when_the_ancestors_are_cut_before_their_boundary() -> None:
    scene = Scene(1, settings={"autostop.at": "interval_end"})
    scene.send(["a"], 0, timestamp_ms=5)
    scene.app.run("run-1", interval_ms=(0, 10))
    scene.send(["a"], 1, timestamp_ms=15)
    scene.send(["a"], 2, timestamp_ms=25)
    scene.grow(2)
    keys = [key for key in KEYS if partition_of_key(key.encode(), 1, 2) == 1]
    scene.send(keys[:1], 3, timestamp_ms=15)
    scene.app.run("run-2", interval_ms=(10, 20))
    assert scene.listed == {"a": [0, 1]}
    assert scene.recorded.boundaries == {"in-1": {0: 3}}
    scene.app.run("run-3", interval_ms=(20, 30))
    assert scene.listed == {"a": [0, 1, 2]}
    scene.app.run("run-4", interval_ms=(30, 40))
    assert scene.listed == scene.sent


def test_stream_time_does_not_pass_what_waits_when_a_run_ends() -> None:
    scene = Scene(1, windowed(), settings={"autostop.at": "interval_end"})
    moved = next(key for key in KEYS if partition_of_key(key.encode(), 1, 2) == 1)
    scene.send([moved], 0, timestamp_ms=5)
    scene.app.run("run-1", interval_ms=(0, 10))
    scene.send([moved], 1, timestamp_ms=15)
    scene.grow(2)
    scene.send([moved], 2, timestamp_ms=16)
    second = scene.app.run("run-2", interval_ms=(10, 20))
    third = scene.app.run("run-3", interval_ms=(20, 30))
    assert second.counts is not None
    assert third.counts is not None
    assert (second.counts.by("late"), third.counts.by("late")) == (0, 0)


def test_stream_time_below_does_not_pass_what_waits_above_when_a_run_ends() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    totals = builder.stream("in").group_by_key().count(store="totals").to_stream()
    by_all = totals.group_by(lambda key, total: "all", name="by-all")
    counted = by_all.windowed_by(TumblingWindow(size_ms=10, grace_ms=0)).count(store="windows").suppress()
    counted.to_stream().map(lambda window, count: (window.key, [window.start_ms, count])).send_to("out")
    scene = Scene(1, builder.build(), settings={"autostop.at": "interval_end"})
    moved = next(key for key in KEYS if partition_of_key(key.encode(), 1, 2) == 1)
    scene.send([moved], 0, timestamp_ms=5)
    scene.app.run("run-1", interval_ms=(0, 10))
    assert scene.kafka.values("out") == [b"[0,1]"]
    scene.send([moved], 1, timestamp_ms=15)
    scene.grow(2)
    scene.send([moved], 2, timestamp_ms=16)
    scene.app.run("run-2", interval_ms=(10, 20))
    third = scene.app.run("run-3", interval_ms=(20, 30))
    assert scene.kafka.values("out") == [b"[0,1]", b"[10,2]"]
    assert third.counts is not None
    assert third.counts.by("late") == 0


def windowed() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    counted = builder.stream("in").group_by_key().windowed_by(TumblingWindow(size_ms=10, grace_ms=0))
    counted.count(store="counted").to_stream().map(
        lambda window, count: (window.key, [window.start_ms, count])
    ).send_to("out")
    return builder.build()


@pytest.mark.promise("nothing-is-late-when-a-partition-waits")
def test_nothing_is_late_when_a_partition_had_to_wait() -> None:
    scene = Scene(1, windowed())
    moved = next(key for key in KEYS if partition_of_key(key.encode(), 1, 2) == 1)
    stays = next(key for key in KEYS if partition_of_key(key.encode(), 1, 2) == 0)
    scene.send([moved, stays], 0, timestamp_ms=1)
    scene.run()
    scene.send([moved, stays], 0, timestamp_ms=2)
    scene.grow(2)
    scene.send([moved], 0, timestamp_ms=3)
    scene.send([stays], 0, timestamp_ms=500)  # would close the window of the record that waits
    first = scene.run()
    second = scene.run()
    assert scene.listed[moved] == [0, 3]
    assert [sum(t.records_dropped for t in each.tasks) for each in (first, second)] == [0, 0]


def test_kind_of_growth_is_found_when_keys_tell() -> None:
    scene = Scene(2)
    scene.send(KEYS, 0)
    scene.run()
    scene.grow(6)
    scene.send(KEYS, 1, modulo=True)
    scene.run()
    assert scene.recorded.grown["in"].kinds == ("linear", "modulo")
    scene.run()
    scene.send(KEYS, 2, modulo=True)
    scene.run()
    assert scene.recorded.grown["in"].kinds == ("modulo",)
    assert scene.listed == scene.sent


@pytest.mark.promise("keys-elsewhere-fail-before-state")
def test_task_fails_before_it_touches_state_when_a_key_lies_where_no_growth_puts_it() -> None:
    scene = Scene(2)
    scene.send(KEYS, 0)
    scene.run()
    scene.grow(3)
    before = scene.listed
    scene.send(KEYS, 1, modulo=True)  # three is no multiple of two
    with pytest.raises(
        TopologyError, match=r"task 0_\d: topic in grew over 2 -> 3 partitions, and the key"
    ) as e:
        scene.run()
    assert "LinearHashPartitioner" in e.value.fix
    assert all(values[0] == 0 for values in before.values())
    assert scene.listed == before, "records of the same fetch were processed before the key was looked at"


@pytest.mark.promise("keys-elsewhere-fail-before-state")
def test_last_key_of_a_fetch_is_looked_at_before_the_first_is_processed() -> None:
    scene = Scene(2)
    scene.send(KEYS, 0)
    scene.run()
    scene.grow(3)
    before = scene.listed
    moved, stays = ([k for k in KEYS if partition_of_key(k.encode(), 2, 3) == at] for at in (2, 1))
    scene.send(moved, 1)
    scene.kafka.append("in", b"1", stays[0].encode(), partition=2)
    with pytest.raises(TopologyError, match=f"and the key of in-2@{len(moved)} is in a partition that"):
        scene.run()
    assert scene.listed == before


@pytest.mark.promise("keys-elsewhere-fail-before-state")
def test_kinds_are_not_mixed_when_producers_differ() -> None:
    scene = Scene(2)
    scene.send(KEYS, 0)
    scene.run()
    scene.grow(6)
    scene.send(KEYS, 1, modulo=True)
    with pytest.raises(TopologyError, match=r"is in a partition that|lie neither"):
        for value in (2, 3):
            scene.run()
            scene.send(KEYS, value)
        scene.run()


def mixed() -> Scene:
    scene = Scene(2)
    scene.send(KEYS, 0)
    scene.run()
    scene.grow(6)
    scene.send(KEYS, 1, modulo=True)
    with pytest.raises(TopologyError):
        for value in (2, 3, 4):
            scene.run()
            scene.send(KEYS, value)
    return scene


@pytest.mark.remedy("key_check.KeyCheck._home")
@pytest.mark.parametrize("way", ["repartition", "initial.partitions"])
def test_mixed_keys_are_with_their_state_when_it_is_begun_anew_as_the_error_says(way: str) -> None:
    scene = mixed()
    if way == "repartition":
        scene.app.topology = listing(partitions=3)
    else:
        # Retention has taken all that was written before the topic grew, or by linear hashing.
        partitions = [TopicPartition("in", number) for number in range(scene.count)]
        scene.kafka.expire(scene.kafka.admin().end_offsets(partitions, isolation="read_committed"))
        scene.sent.clear()
        scene.app.settings = {**scene.app.settings, "initial.partitions": "in=6"}
        scene.send(KEYS, 9, modulo=True)
    request = ResetRequest(application_id="app", input_topics=("in",), delete_stop_offsets=True, force=True)
    with ApplicationReset(scene.kafka, request, clock=scene.kafka.clock) as reset:
        reset.run()
    scene.run()
    assert {key: sorted(values) for key, values in scene.listed.items()} == scene.sent


def test_state_begins_by_first_counts_when_a_topic_had_grown_before() -> None:
    scene = Scene(2, grown=3, settings={"initial.partitions": "in=2"})
    scene.count = 2
    scene.send(KEYS, 0)
    scene.count = 3
    scene.send(KEYS, 1)
    scene.run()
    assert len(scene.recorded.by_group) == 2
    assert [*scene.recorded.boundaries] == ["in-2"]
    scene.run()
    assert scene.listed == scene.sent


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("in=4", "'in' began|in began with 4 partitions, but it has 2"),
        ("other=1", "'other', which is no input topic"),
        ("in=0", "no topic with its first partition count"),
        ("in=1,in=1", "names a topic twice"),
        ("in", "no topic with its first partition count"),
    ],
)
def test_first_counts_are_refused_when_they_cannot_be(given: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Scene(2, settings={"initial.partitions": given}).run()


@pytest.mark.remedy("grown_groups.known_growth: write {}={} or leave it out")
@pytest.mark.parametrize("way", ["written", "left out", "start over"])
def test_first_counts_are_refused_when_state_stands_on_others(way: str) -> None:
    scene = Scene(2)
    scene.send(KEYS, 0)
    scene.run()
    scene.app.settings = {**scene.app.settings, "initial.partitions": "in=1"}
    scene.send(KEYS, 1)
    with pytest.raises(TopologyError, match="has state by 2") as refused:
        scene.run()
    if way == "start over":
        accept_in_memory(refused.value, scene.kafka)
        scene.run()  # What the topic gained waits for its ancestor.
    else:
        scene.app.settings = {"settle.ms": 0} | ({"initial.partitions": "in=2"} if way == "written" else {})
    scene.run()
    assert scene.listed == scene.sent


@pytest.mark.promise("keys-elsewhere-fail-before-state")
def test_wrong_first_count_is_found_by_the_keys() -> None:
    scene = Scene(4, grown=6, settings={"initial.partitions": "in=3"})
    scene.send(KEYS, 0)
    with pytest.raises(TopologyError, match=r"grew over 3 -> 6 partitions"):
        scene.run()
        scene.run()


def grown_and_read() -> Scene:
    """A topic that has grown from 2 to 3 partitions and was read by both counts."""
    scene = Scene(2)
    scene.send(KEYS, 0)
    scene.run()
    scene.grow(3)
    scene.send(KEYS, 1)
    for _ in range(2):
        scene.run()
    assert scene.listed == scene.sent
    return scene


def start_over(scene: Scene) -> None:
    request = ResetRequest(application_id="app", input_topics=("in",))
    with ApplicationReset(scene.kafka, request, clock=scene.kafka.clock) as reset:
        reset.run()


@pytest.mark.promise("first-counts-outlive-state")
def test_first_count_outlives_a_reset() -> None:
    scene = grown_and_read()
    start_over(scene)
    for _ in range(2):
        scene.run()
    assert scene.listed == scene.sent
    assert scene.recorded.grown["in"].history == (2, 3)


@pytest.mark.promise("first-counts-outlive-state")
def test_first_count_outlives_a_reset_in_whose_wake_the_topic_grows() -> None:
    scene = Scene(2)
    scene.send(KEYS, 0)
    scene.run()
    start_over(scene)
    scene.grow(3)
    scene.send(KEYS, 1)
    for _ in range(2):
        scene.run()
    assert scene.listed == scene.sent


@pytest.mark.promise("first-counts-outlive-state")
def test_first_count_is_handed_to_a_store_of_another_name() -> None:
    scene = grown_and_read()
    start_over(scene)
    scene.app.topology = listing("renamed")
    for _ in range(2):
        scene.run()
    assert scene.listed == scene.sent


@pytest.mark.promise("first-counts-outlive-state")
def test_first_count_is_that_of_runs_without_state_when_state_is_added() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("in").filter(lambda key, value: value is None).send_to("out")
    scene = Scene(2, builder.build())
    scene.send(KEYS, 0)
    scene.run()
    scene.grow(3)
    scene.send(KEYS, 1)
    scene.run()
    scene.app.topology = listing()
    scene.sent = {}
    scene.send(KEYS, 1)
    for _ in range(2):
        scene.run()
    assert scene.recorded.grown["in"].history == (2, 3)
    assert scene.listed == scene.sent


@pytest.mark.promise("first-counts-outlive-state")
def test_first_count_is_the_live_applications_in_a_backfill() -> None:
    scene = Scene(2)
    scene.kafka.alter_topic("out", message_timestamp_after_max_ms=str(2**63 - 1))
    scene.send(KEYS, 0, timestamp_ms=HOUR_MS)
    scene.run()
    scene.grow(3)
    scene.send(KEYS, 1, timestamp_ms=HOUR_MS + 1)
    scene.run()
    scene.kafka.admin().delete_topics(["out"])
    scene.kafka.create_topic("out", message_timestamp_after_max_ms=str(2**63 - 1))
    past = {"autostop.at": "interval", "backfill.of": "app"}
    backfill = Application(application_id="past", topology=listing(), on=scene.kafka, settings=past)
    backfill.run("again", interval_ms=(HOUR_MS, 2 * HOUR_MS))
    assert scene.listed == scene.sent


@pytest.mark.promise("first-counts-outlive-state")
def test_first_count_is_todays_when_the_topic_was_made_anew() -> None:
    scene = grown_and_read()
    scene.kafka.admin().delete_topics(["in"])
    scene.kafka.create_topic("in", partitions=5)
    scene.first = scene.count = 5
    scene.sent = {}
    start_over(scene)
    scene.send(KEYS, 7)
    scene.run()
    assert scene.recorded.grown == {}
    assert len(scene.recorded.by_group) == 5


@pytest.mark.promise("first-counts-outlive-state")
def test_state_begins_by_todays_count_when_that_is_said() -> None:
    scene = grown_and_read()
    start_over(scene)
    scene.app.settings = {**scene.app.settings, "initial.partitions": "in=3"}
    (warning,) = scene.run().warnings
    assert (
        "'initial.partitions' says that in began with 3 partitions, and runs have counted 2 -> 3" in warning
    )
    assert len(scene.recorded.by_group) == 3
    assert scene.run().warnings == ()
    del scene.app.settings["initial.partitions"]
    scene.run()
    assert scene.recorded.grown == {}


def continuously(scene: Scene, run_id: str, rounds: int = 3) -> None:
    """Run for some rounds without an end, and stop."""
    application = SwitchingApplication(
        topology=scene.app.topology,
        cluster=scene.kafka,
        clock=scene.kafka.clock,
        settings={"processing.guarantee": "exactly_once", **scene.app.settings},
    )
    running = application.run_continuously(run_id)
    for _ in range(rounds):
        running.rounds(2)
        scene.kafka.clock.sleep(application.checked.commit_interval_ms / 1000)
    running.stop()


@pytest.mark.promise("first-counts-outlive-state")
@pytest.mark.parametrize("continuous_again", [False, True])
def test_first_count_of_a_continuous_run_outlives_a_reset(continuous_again: bool) -> None:
    scene = Scene(2)
    scene.app.clock = scene.kafka.clock
    scene.send(KEYS, 0)
    continuously(scene, "c-1")
    assert scene.listed == scene.sent
    start_over(scene)
    scene.grow(3)
    scene.send(KEYS, 1)
    scene.run()
    if continuous_again:
        continuously(scene, "c-2")
    else:
        scene.run()
    assert scene.listed == scene.sent
    assert scene.recorded.grown["in"].history == (2, 3)


@pytest.mark.promise("unsaid-growth-is-asked-for")
def test_continuous_run_asks_for_the_first_count_when_keys_show_that_the_topic_has_grown() -> None:
    scene = grown_before(3)
    scene.app.clock = scene.kafka.clock
    with pytest.raises(ConfigError, match="begins to keep state by the keys of topic in"):
        continuously(scene, "c-1")
    scene.app.settings = {**scene.app.settings, "initial.partitions": "in=2"}
    with pytest.raises(TopologyError, match="let one batch run"):
        continuously(scene, "c-1")
    scene.send(KEYS, 1)
    for _ in range(2):
        scene.run()
    scene.send(KEYS, 2)
    continuously(scene, "c-1")
    assert scene.listed == scene.sent


def grown_before(count: int, *, modulo: bool = False, keys: list[str] = KEYS) -> Scene:
    """A topic that had 2 partitions, and its keys in them, before the application first reads it."""
    scene = Scene(2)
    scene.send(keys, 0)
    scene.grow(count)
    if modulo:
        scene.send(keys, 1, modulo=True)
    return scene


@pytest.mark.promise("unsaid-growth-is-asked-for")
@pytest.mark.remedy("unsaid_growth.refuse_unsaid_growth")
@pytest.mark.parametrize(("count", "modulo"), [(3, False), (4, False), (4, True)])
def test_first_start_asks_for_the_first_count_when_keys_show_that_the_topic_has_grown(
    count: int, modulo: bool
) -> None:
    scene = grown_before(count, modulo=modulo)
    with pytest.raises(ConfigError, match="begins to keep state by the keys of topic in") as caught:
        scene.run()
    assert f"initial.partitions=in={count} if it never had fewer" in caught.value.fix
    assert caught.value.fix.startswith("set initial.partitions=in=2, the count that its producers began with")
    scene.app.settings = {**scene.app.settings, "initial.partitions": "in=2"}
    for value in (2, 3):
        scene.run()
        scene.send(KEYS, value, modulo=modulo)
    scene.run()
    assert scene.listed == scene.sent


@pytest.mark.promise("unsaid-growth-is-asked-for")
def test_first_start_asks_when_one_key_lies_in_two_partitions() -> None:
    scene = Scene(3)
    for partition in (0, 2):
        scene.kafka.append("in", b"1", b"other", partition=partition)
    with pytest.raises(ConfigError, match="the key of in-0@0 is that of in-2@0, too") as caught:
        scene.run()
    assert "set initial.partitions=in=<count>" in caught.value.fix
    scene.app.settings = {**scene.app.settings, "initial.partitions": "in=3"}
    scene.run()
    assert len(scene.recorded.by_group) == 3


def placed_by_another_partitioner() -> Scene:
    """As librdkafka's default places keys."""
    scene = Scene(3)
    for key in KEYS:
        at = zlib.crc32(key.encode()) % 3
        scene.kafka.append("in", b"0", key.encode(), partition=at)
        scene.sent[key] = [0]
    return scene


def read_from_the_end() -> Scene:
    scene = grown_before(3)
    scene.app.settings = {**scene.app.settings, "first.run.offsets": "latest"}
    scene.sent.clear()
    return scene


def few_keys() -> Scene:
    return grown_before(3, keys=KEYS[:3])


@pytest.mark.promise("unsaid-growth-is-asked-for")
@pytest.mark.parametrize("make", [placed_by_another_partitioner, read_from_the_end, few_keys])
def test_first_start_asks_for_nothing_without_evidence(make: Callable[[], Scene]) -> None:
    scene = make()
    scene.run()
    assert scene.listed == scene.sent


@pytest.mark.promise("unsaid-growth-is-asked-for")
def test_subtopology_without_state_never_asks_and_one_that_gets_state_then_does() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("in").filter(lambda key, value: value is None).send_to("out")
    scene = grown_before(3)
    scene.app.topology = builder.build()
    scene.run()
    scene.app.topology = listing()
    scene.send(KEYS, 1, modulo=True)
    scene.send(KEYS, 2)
    with pytest.raises(ConfigError, match="begins to keep state"):
        scene.run()


@pytest.mark.promise("unsaid-growth-is-asked-for")
def test_backfill_without_a_live_application_looks_at_the_keys_of_its_interval_alone() -> None:
    scene = Scene(2)
    scene.send(KEYS, 0, timestamp_ms=1)
    scene.grow(3)
    scene.send(KEYS, 1, timestamp_ms=HOUR_MS, modulo=True)
    scene.sent = {key: [1] for key in KEYS}
    app = Application(
        application_id="past", topology=listing(), on=scene.kafka, settings={"autostop.at": "interval"}
    )
    app.run("second", interval_ms=(HOUR_MS, 2 * HOUR_MS))
    assert scene.listed == scene.sent
    again = Application(
        application_id="again", topology=listing(), on=scene.kafka, settings={"autostop.at": "interval"}
    )
    with pytest.raises(ConfigError, match="begins to keep state"):
        again.begin("both", interval_ms=(0, 2 * HOUR_MS))


def test_fewer_partitions_are_refused_when_there_is_state() -> None:
    scene = Scene(2)
    scene.send(KEYS, 0)
    scene.run()
    scene.grow(3)
    scene.send(KEYS, 1)
    scene.run()
    assert scene.recorded.grown["in"].history == (2, 3)
