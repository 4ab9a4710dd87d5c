"""A run that is refused does as the error says, and its results are right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from airflow_kstreams.batch.ledger.writes import LedgerChange
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.streams import FixedGroups, KStreamBuilder, PartitionGrouper, Topology, serdes
from airflow_kstreams.streams.errors import (
    ConfigError,
    DataLossError,
    KafkaClientError,
    KStreamsError,
    RunError,
    TaskFencedError,
    TopologyError,
    UpstreamNotDoneError,
)
from airflow_kstreams.streams.partitioning import partition_of_key
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import accept_in_memory

APP = "app"
TEXT = serdes.string()
HOUR_MS = 3_600_000
START_MS = 1_700_000_400_000


def counting(
    *,
    seen: str = "seen",
    out: str = "out",
    grouper: PartitionGrouper | None = None,
    partitions: int | None = None,
    also: str = "",
) -> Topology:
    """``in`` -> counted by key -> ``out``.

    :param also: another topic that is copied to ``out``.
    """
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT, partition_grouper=grouper)
    stream = builder.stream("in")
    if partitions is not None:
        stream = stream.repartition(partitions, name="again")
    counted = stream.group_by_key().count(store="counts")
    counted.to_stream().peek(lambda key, value: None, name=seen).send_to(out, value_serde=serdes.int64())
    if also:
        builder.stream(also).send_to(out)
    return builder.build()


class Scene:
    """An application that counts what lies in ``in``."""

    def __init__(
        self, topology: Topology | None = None, *, partitions: int = 2, topics: Iterable[str] = ()
    ) -> None:
        self.kafka = InMemoryKafka(clock=ManualClock(now_ms=START_MS))
        for topic, count in {"in": partitions, "out": 1, **dict.fromkeys(topics, 1)}.items():
            self.kafka.create_topic(topic, partitions=count)
        self.partitions = partitions
        self.topology = topology or counting()
        self.settings: Mapping[str, object] = {}
        self.application_id = APP
        self.sent: dict[str, int] = {}

    @property
    def app(self) -> Application:
        return Application(
            application_id=self.application_id,
            topology=self.topology,
            on=self.kafka,
            clock=self.kafka.clock,
            settings={"settle.ms": 0, **self.settings},
        )

    def grow(self, partitions: int) -> None:
        self.kafka.add_partitions("in", partitions)
        self.partitions = partitions

    def send(self, *keys: str) -> None:
        """Write a record of each key where Kafka's default partitioner puts it."""
        for key in keys:
            at = partition_of_key(key.encode(), self.partitions, self.partitions)
            self.kafka.append("in", b"v", key.encode(), partition=at, timestamp_ms=START_MS)
            self.sent[key] = self.sent.get(key, 0) + 1

    def refused(self, kind: type[KStreamsError] = TopologyError, run: str = "again") -> KStreamsError:
        with pytest.raises(kind) as caught:
            self.app.run(run)
        return caught.value

    @property
    def counted(self) -> dict[str, int]:
        """The last count of each key."""
        return {
            (record.key() or b"").decode(): int.from_bytes(record.value() or b"", "big")
            for record in self.kafka.records("out")
        }


KEYS = [f"k{number}" for number in range(20)]


# == another topology, with a slice that is not finished


def left_by_other_code() -> Scene:
    scene = Scene()
    scene.send("a", "b")
    scene.app.run("first")
    scene.send("a")
    slice_ = scene.app.begin("second")
    scene.app.task(slice_, 0, 0)
    scene.topology = counting(seen="other")
    return scene


@pytest.mark.remedy("lease.refuse_other_topology")
def test_old_code_finishes_its_run_and_the_new_code_goes_on() -> None:
    scene = left_by_other_code()
    scene.refused(run="second")
    scene.topology = counting()
    scene.app.run("second", (0, 2))
    scene.topology = counting(seen="other")
    scene.send("a", "b")
    scene.app.run("third")
    assert scene.counted == scene.sent


@pytest.mark.remedy("lease.refuse_other_topology")
def test_new_code_goes_on_where_the_old_one_stopped_when_its_slice_is_dropped() -> None:
    scene = left_by_other_code()
    accept_in_memory(scene.refused(run="second"), scene.kafka)
    scene.app.run("second", (0, 2))
    assert scene.counted == scene.sent


# == topics


@pytest.mark.remedy("source_topics._refuse_missing")
def test_run_goes_on_when_the_missing_topics_were_created() -> None:
    scene = Scene()
    scene.kafka.admin().delete_topics(["in", "out"])
    error = scene.refused()
    assert error.fix.startswith("create them with: airflow-kstreams topics create in out ")
    assert len(accept_in_memory(error, scene.kafka)) == 1
    scene.partitions = 1
    scene.send("a", "a")
    scene.app.run("first")
    assert scene.counted == scene.sent


@pytest.mark.remedy("topics._ensure_protocol")
@pytest.mark.parametrize("way", ["another id", "deleted"])
def test_run_goes_on_beside_a_topic_with_many_partitions(way: str) -> None:
    scene = Scene()
    scene.kafka.create_topic("app-metadata", partitions=2)
    scene.send("a")
    scene.refused(ConfigError)
    if way == "deleted":
        scene.kafka.admin().delete_topics(["app-metadata"])
    else:
        scene.application_id = "other"
    scene.app.run("first")
    assert scene.counted == scene.sent


@pytest.mark.remedy("topics.refuse_harmful_settings")
def test_run_goes_on_with_all_state_when_the_settings_are_mended_by_the_commands() -> None:
    scene = Scene()
    scene.send("a", "b")
    scene.app.run("first")
    for topic in ("app-counts-changelog", "app-metadata", "app-runs"):
        scene.kafka.alter_topic(topic, cleanup_policy="delete")
    commands = accept_in_memory(scene.refused(ConfigError), scene.kafka)
    assert [words[1:3] for words in commands] == [["topics", "set"]] * 3
    scene.send("a")
    scene.app.run("second")
    assert scene.counted == scene.sent


@pytest.mark.remedy("source_topics._refuse_other_count")
@pytest.mark.parametrize("way", ["grouped so", "start over"])
def test_run_goes_on_when_a_changelog_was_made_for_other_tasks(way: str) -> None:
    scene = Scene(partitions=3)
    scene.kafka.create_topic("app-counts-changelog", partitions=2, cleanup_policy="compact")
    scene.send(*KEYS)
    error = scene.refused()
    if way == "start over":
        accept_in_memory(error, scene.kafka)
    else:
        scene.topology = counting(grouper=FixedGroups(2))
    scene.app.run("first")
    assert scene.counted == scene.sent


@pytest.mark.remedy("topic_growth.partition_counts")
@pytest.mark.parametrize("also", ["", "more"], ids=["", "a topic more"])
@pytest.mark.parametrize("way", ["the old count", "start over"])
def test_run_goes_on_when_a_repartition_topic_is_asked_for_with_another_count(way: str, also: str) -> None:
    scene = Scene(counting(partitions=3), topics=["more"])
    scene.send(*KEYS)
    scene.app.run("first")
    scene.topology = counting(partitions=2, also=also)
    scene.send(*KEYS)
    error = scene.refused()
    assert error.fix.endswith("--input-topics in")
    if way == "start over":
        accept_in_memory(error, scene.kafka)
    else:
        scene.topology = counting(partitions=3, also=also)
    scene.app.run("second")
    assert scene.counted == scene.sent


# == partition groups


@pytest.mark.remedy("assignment._refuse_moved")
@pytest.mark.parametrize("way", ["grouped so", "start over"])
def test_run_goes_on_when_partitions_would_have_left_their_state(way: str) -> None:
    class Crossed(FixedGroups):
        """The same groups, the other way round."""

        def group(self, partitions_per_topic):  # type: ignore[no-untyped-def]
            return list(reversed(super().group(partitions_per_topic)))

    scene = Scene(counting(grouper=FixedGroups(2)))
    scene.send(*KEYS)
    scene.app.run("first")
    scene.topology = counting(grouper=Crossed(2))
    scene.send(*KEYS)
    error = scene.refused()
    if way == "start over":
        accept_in_memory(error, scene.kafka)
    else:
        scene.topology = counting(grouper=FixedGroups(2))
    scene.app.run("second")
    assert scene.counted == scene.sent


@pytest.mark.remedy("assignment._refuse_other_number")
@pytest.mark.parametrize("way", ["joined", "through repartition"])
def test_run_goes_on_when_new_partitions_would_have_opened_groups(way: str) -> None:
    scene = Scene(counting(grouper=FixedGroups(2)))
    scene.send(*KEYS)
    scene.app.run("first")
    scene.grow(4)
    scene.topology = counting(grouper=FixedGroups(4))
    scene.send(*KEYS)
    error = scene.refused()
    if way == "through repartition":
        scene.topology = counting(partitions=3)
        accept_in_memory(error, scene.kafka)
    else:
        scene.topology = counting(grouper=FixedGroups(2))
    scene.app.run("second")
    assert scene.counted == scene.sent


@pytest.mark.remedy("assignment._refuse_moved_keys")
@pytest.mark.parametrize("way", ["a multiple", "through repartition"])
def test_run_goes_on_when_keys_would_have_left_their_state(way: str) -> None:
    scene = Scene(counting(grouper=FixedGroups(2)))
    scene.send(*KEYS)
    scene.app.run("first")
    scene.grow(3)
    error = scene.refused()
    if way == "a multiple":
        scene.grow(4)
        scene.send(*KEYS)
    else:
        scene.send(*KEYS)
        scene.topology = counting(partitions=3)
        accept_in_memory(error, scene.kafka)
    scene.app.run("second")
    assert scene.counted == scene.sent


# == what a caller of the coordinator does


@pytest.mark.remedy("run_finish.RunFinish._finish_claimed")
def test_run_is_finished_when_it_was_begun_first() -> None:
    scene = Scene()
    scene.send("a")
    with pytest.raises(RunError):
        scene.app.finish("first")
    scene.app.run("first")
    assert scene.counted == scene.sent


@pytest.mark.remedy("finish._refuse_unfinished")
def test_run_is_finished_when_the_topology_ran_again() -> None:
    scene = Scene()
    scene.send(*KEYS)
    slice_ = scene.app.begin("first")
    scene.app.task(slice_, 0, 0)
    with pytest.raises(RunError):
        scene.app.finish("first")
    scene.app.run("first", (0, 2))
    assert scene.counted == scene.sent


@pytest.mark.remedy("lease.refuse_other_application")
def test_plan_of_the_same_application_is_taken() -> None:
    scene = Scene()
    scene.send("a")
    coordinator = scene.app.coordinator()
    with pytest.raises(ConfigError):
        coordinator.begin("first", scene.topology.plan("other"), hold_lease=False)
    coordinator.close()
    scene.app.run("first")
    assert scene.counted == scene.sent


@pytest.mark.remedy("log_read.refuse_unfit_timeouts: set commit.interval.ms")
@pytest.mark.parametrize("mended", [{"commit.interval.ms": 5_000}, {"transaction.timeout.ms": 40_000}])
def test_run_goes_on_when_its_transactions_have_room_for_a_commit(mended: Mapping[str, object]) -> None:
    scene = Scene()
    scene.settings = {"commit.interval.ms": 20_000, "transaction.timeout.ms": 10_000}
    scene.send("a")
    assert (
        "set commit.interval.ms to 5000 or less, or transaction.timeout.ms to 40000"
        in scene.refused(ConfigError).fix
    )
    scene.settings = {**scene.settings, **mended}
    scene.app.run("first")
    assert scene.counted == scene.sent


@pytest.mark.remedy("log_read.refuse_unfit_timeouts: set transaction.timeout.ms")
def test_run_goes_on_when_its_transactions_are_no_longer_than_the_broker_allows() -> None:
    scene = Scene()
    scene.settings = {"transaction.timeout.ms": 1_000_000}
    scene.send("a")
    limit = scene.refused(ConfigError).fix.split()[3]
    scene.settings = {"transaction.timeout.ms": limit}
    scene.app.run("first")
    assert scene.counted == scene.sent


@pytest.mark.remedy("work.TaskAssignment.refuse_unless_in_force: nothing if the application was reset")
def test_run_goes_on_by_the_command_of_its_begin_when_the_ledger_was_deleted_under_a_task() -> None:
    scene = Scene()
    scene.send("a", "b")
    slice_ = scene.app.begin("first")
    scene.kafka.admin().delete_topics(["app-runs"])
    with pytest.raises(TaskFencedError):
        scene.app.task(slice_, 0, 0)
    accept_in_memory(scene.refused(DataLossError, "first"), scene.kafka)
    scene.app.run("first", (0, 2))
    assert scene.counted == scene.sent


@pytest.mark.remedy("source_topics._refuse_missing")
def test_nothing_is_made_before_the_missing_topics_were_created() -> None:
    scene = Scene()
    scene.kafka.admin().delete_topics(["out"])
    before = scene.kafka.topics()
    error = scene.refused()
    assert set(scene.kafka.topics()) - set(before) <= {"app-metadata", "app-runs"}
    assert error.fix.startswith("create it with: airflow-kstreams topics create out ")
    accept_in_memory(error, scene.kafka)
    scene.send("a")
    scene.app.run("first")
    assert scene.counted == scene.sent


@pytest.mark.remedy("assignment.group_sources")
def test_run_goes_on_when_begin_is_given_the_groups_of_the_grouper() -> None:
    scene = Scene(counting(grouper=FixedGroups(2)))
    scene.send(*KEYS)
    coordinator = scene.app.coordinator()
    with pytest.raises(ConfigError, match="without a way to ask it"):
        coordinator.begin("first", scene.topology.plan(APP), hold_lease=False)
    coordinator.close()
    scene.app.run("first")
    assert scene.counted == scene.sent


@pytest.mark.remedy("intermediate_stops._refuse_other_slice")
@pytest.mark.parametrize("fault", ["taken over", "dropped"])
def test_run_is_finished_once_when_its_driver_met_another_slice(fault: str) -> None:
    scene = Scene(counting(partitions=2))
    scene.send(*KEYS)
    driver = scene.app.coordinator()
    slice_ = scene.app.begin("first", coordinator=driver)
    scene.app.tasks(slice_, [0])
    if fault == "taken over":
        scene.app.run("first", (0, 2))
        scene.app.begin("second")
    else:
        ours = scene.app.coordinator()
        ours.begin("first", scene.topology.plan(APP), order=(0, 2), hold_lease=True)
        ours.close()
        start = ResetRequest(application_id=APP, delete_stop_offsets=True, force=True)
        with ApplicationReset(scene.kafka, start, clock=scene.kafka.clock) as command:
            command.run()
    with pytest.raises(UpstreamNotDoneError, match="but the metadata topic holds"):
        driver.unfinished(slice_, 1)
    driver.close()
    scene.app.run("first" if fault == "dropped" else "second", (0, 3))
    assert scene.counted == scene.sent


@pytest.mark.remedy("coordinator_session.CoordinatorSession.write")
@pytest.mark.remedy("coordinator_session.CoordinatorSession._in_ledger")
def test_coordinator_writes_when_its_id_was_claimed_and_its_ledger_read() -> None:
    scene = Scene()
    scene.send("a")
    coordinator = scene.app.coordinator()
    with pytest.raises(KafkaClientError, match="is not claimed"):
        coordinator.session.write(())
    slice_ = scene.app.begin("first", coordinator=coordinator)
    coordinator.session.claim()
    ledger = coordinator.session.read_ledger()
    coordinator.session.claim()
    with pytest.raises(KafkaClientError, match="was not read since"):
        coordinator.session.write((), ledger=LedgerChange(ledger=ledger))
    scene.app.tasks(slice_)
    coordinator.finish("first")
    coordinator.close()
    assert scene.counted == scene.sent


# == a slice of another program


@pytest.mark.remedy("freeze._with_foreign_stops")
def test_run_goes_on_behind_a_slice_that_names_a_partition_that_is_not_there() -> None:
    scene = Scene()
    scene.send("a", "b")
    scene.app.run("first")
    for key, value in ((b"in_2", b"7"), (APP.encode(), b"0")):
        scene.kafka.append("app-metadata", value, key)
    scene.send("a", "b")
    accept_in_memory(scene.refused(DataLossError, "second"), scene.kafka)
    scene.app.run("second")
    assert scene.counted == scene.sent
