"""Resets of an application on the in-memory Kafka: what they leave, what becomes of runs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from airflow_kstreams.batch.ledger.facts import ResetStage
from airflow_kstreams.batch.protocol.slice.metadata import RunState
from airflow_kstreams.batch.protocol.slice.metadata_records import VERSION
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.scenario import TO_LATEST, Scenario, shift_by, to_offset
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.streams import StoreSpec
from airflow_kstreams.streams.errors import (
    ConfigError,
    DataLossError,
    KafkaClientError,
    RunBusyError,
    RunError,
    RunSupersededError,
    SuspectWriterError,
    TaskFencedError,
    TopologyError,
)
from airflow_kstreams.streams.partitioning.partition_groups import FixedGroups
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.testing import FaultyCluster
from tests.support.kafka.reset_scene import (
    APP,
    CHANGELOG,
    LEDGER,
    METADATA,
    REPARTITION,
    ResetScene,
    counting,
)
from tests.support.kafka.waiting import WaitingClock

T = TypeVar("T")
EVERYTHING: dict[str, Any] = {"inputs": "in", "intermediates": "mid"}


@pytest.fixture
def scene() -> ResetScene:
    """Three finished runs; the second had nothing new."""
    scene = ResetScene()
    scene.send("a", "b", "a")
    scene.run("r1")
    scene.run("r2")
    scene.send("a", "c")
    scene.run("r3")
    return scene


def half_way(scene: ResetScene) -> None:
    """Leave run r4 after its first subtopology and one task of the second."""
    scene.send("d", "e", "d")
    slice_ = scene.begin("r4")
    scene.tasks(slice_, [0])
    scene.task(slice_, 1, 0)


# == what a reset leaves


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_reset_claims_again_when_its_connection_is_lost_before_a_transaction(
    scene: ResetScene, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """Its writer begins no other transaction then; nothing of that was written."""
    write, steps = CoordinatorSession.write, iter(range(1, 100))

    def after_a_lost_connection(session: CoordinatorSession, *args: Any, **options: Any) -> Any:
        if next(steps) == lost:
            scene.kafka.restart()
        return write(session, *args, **options)

    monkeypatch.setattr(CoordinatorSession, "write", after_a_lost_connection)
    scene.reset(**EVERYTHING)
    assert next(steps) > 3 + 1, "three steps, one of them again"
    record = scene.ledger.reset
    assert record is not None
    assert record.stage is ResetStage.DONE
    assert scene.run("again").records_in == 5


def test_reset_gives_up_when_its_connection_is_lost_each_time(
    scene: ResetScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = CoordinatorSession.claim

    def lost(session: CoordinatorSession) -> None:
        claim(session)
        scene.kafka.restart()

    monkeypatch.setattr(CoordinatorSession, "claim", lost)
    with pytest.raises(SuspectWriterError):
        scene.reset(**EVERYTHING)


def test_same_output_comes_again_when_run_after_a_reset(scene: ResetScene) -> None:
    first = scene.counts()
    scene.reset(**EVERYTHING)
    again = scene.run("again")
    assert again.records_in == 5
    told = scene.counts()
    assert dict(told) == dict(first) == {"a": 3, "b": 1, "c": 1}
    assert sorted(told) == sorted(first)
    scene.send("a")
    scene.run("later")
    assert scene.counts() == [("a", 4)]


@pytest.mark.promise("resets-leave-users-topics")
def test_offsets_topics_and_ledger_are_told_and_left_as_told(scene: ResetScene) -> None:
    ends = scene.offsets("mid")
    plan = scene.plan_reset(**EVERYTHING)
    done = scene.reset(**EVERYTHING)
    assert done == plan
    assert [(c.partition, c.before, c.after) for c in done.offsets] == [
        (TopicPartition("in", 0), 3, 0),
        (TopicPartition("in", 1), 2, 0),
        *((TopicPartition("mid", n), ends[n], ends[n]) for n in range(2)),
    ]
    assert set(done.deleted) == {REPARTITION, CHANGELOG}
    assert not {REPARTITION, CHANGELOG} & set(scene.kafka.topics())
    assert scene.committed() == {
        "in-0": CommittedOffset(0),
        "in-1": CommittedOffset(0),
        **{f"mid-{n}": CommittedOffset(ends[n] or 0) for n in range(2)},
    }
    assert scene.state is RunState.NEW
    ledger = scene.ledger
    assert (ledger.lease, ledger.assignment.entries) == (None, ())
    counts = {topic: counted.growth.history for topic, counted in ledger.assignment.topics.items()}
    assert counts == {"in": (2,), "mid": (2,)}, "what the topics' keys lie by is no state"
    assert ledger.reset is not None and ledger.reset.stage is ResetStage.DONE
    assert scene.kafka.values("out"), "outputs stay"


def test_start_is_the_resets_when_committed_offsets_expired_before_the_next_run(scene: ResetScene) -> None:
    scene.reset(**EVERYTHING, scenario=to_offset(1))
    scene.kafka.expire_offsets(APP)
    scene.counts()
    slice_ = scene.begin("r4")
    assert [part.start_offset for part in slice_.inputs] == [1, 1]
    scene.tasks(slice_)
    assert scene.finish("r4").records_in == 3


def test_runs_stops_count_again_when_a_run_finished_after_the_reset(scene: ResetScene) -> None:
    scene.reset(**EVERYTHING)
    scene.run("r4")
    scene.kafka.expire_offsets(APP)
    assert scene.begin("r5").plan.empty
    assert scene.ledger.reset is None


def test_state_on_disk_is_not_reused_when_its_changelog_was_deleted(tmp_path: Path) -> None:
    spec = StoreSpec(name="counts", key_serde=serdes.string(), value_serde=serdes.int64(), storage="rocksdb")
    scene = ResetScene(topology=counting(spec), settings={"state.dir": str(tmp_path)})
    scene.send("a", "a")
    scene.run("r1")
    scene.send("a", "a")
    kept = scene.run("r2")
    assert sum(task.restored for task in kept.tasks) == 0, "the checkpoint is of use while nothing was reset"
    assert dict(scene.counts()) == {"a": 4}
    scene.reset(**EVERYTHING)
    scene.run("r3")
    assert dict(scene.counts()) == {"a": 4}


@pytest.mark.remedy("assignment._refuse_moved")
def test_partitions_may_be_grouped_anew_when_their_changelogs_were_deleted(scene: ResetScene) -> None:
    scene.topology = dataclasses.replace(scene.topology, partition_grouper=FixedGroups(1))
    with pytest.raises(TopologyError) as caught:
        scene.begin("r4")
    assert caught.value.fix.endswith(scene.request(**EVERYTHING).command)
    scene.reset(**EVERYTHING)
    scene.run("r4")
    assert dict(scene.counts()) == {"a": 3, "b": 1, "c": 1}


def test_positions_and_state_stay_when_only_internal_topics_are_named(scene: ResetScene) -> None:
    committed, assignment = scene.committed(), scene.ledger.assignment
    done = scene.reset(internal=REPARTITION)
    assert set(done.deleted) == {REPARTITION}
    kept = {tp: offset for tp, offset in committed.items() if not tp.startswith(REPARTITION)}
    assert scene.committed() == kept
    assert (scene.ledger.assignment, scene.ledger.taken_back) == (assignment, {})
    scene.send("a")
    scene.counts()
    scene.run("r4")
    assert scene.counts() == [("a", 4)], "the count goes on from its state"


# == which runs are still finished


@pytest.mark.promise("runs-taken-back-run-again")
@pytest.mark.parametrize(
    ("scenario", "taken_back"),
    [
        (None, ["r1", "r3"]),
        (to_offset(2), ["r3"]),
        (shift_by(-1), ["r3"]),
        (shift_by(1), []),
        (TO_LATEST, []),
    ],
    ids=lambda value: value.option if value is not None and not isinstance(value, list) else "",
)
def test_runs_may_run_again_when_records_of_theirs_are_read_again(
    scene: ResetScene, scenario: Scenario | None, taken_back: list[str]
) -> None:
    done = scene.reset(**EVERYTHING, scenario=scenario)
    assert list(done.taken_back) == taken_back
    ledger = scene.ledger
    assert sorted(ledger.taken_back) == taken_back
    assert sorted({*ledger.all_runs()} | {*ledger.taken_back}) == ["r1", "r2", "r3"], "history stays"
    coordinator = scene.coordinator()
    begun = coordinator.begin("r3", scene.topology.plan(APP), hold_lease=False)
    coordinator.close()
    assert (begun.finished is None) == bool(taken_back)
    if taken_back:
        scene.run("r3")
        assert "r3" in scene.ledger.all_runs()
    scene.counts()
    scene.send("new")
    scene.run("r4")
    assert ("new", 1) in scene.counts()


@pytest.mark.promise("runs-taken-back-run-again")
def test_run_may_run_again_when_only_its_last_records_are_read_again(scene: ResetScene) -> None:
    scene.send("a", "b", "c", "d")  # two of each partition
    scene.run("r4")
    done = scene.reset(**EVERYTHING, scenario=shift_by(-1))
    assert done.taken_back == ("r4",)


@pytest.mark.promise("runs-taken-back-run-again")
def test_runs_stay_taken_back_when_another_reset_follows(scene: ResetScene) -> None:
    scene.reset(**EVERYTHING)
    scene.kafka.compact(f"{APP}-runs")
    scene.reset(inputs="in", scenario=TO_LATEST)
    scene.kafka.compact(f"{APP}-runs")
    assert sorted(scene.ledger.taken_back) == ["r1", "r3"]


# == unfinished slices


@pytest.mark.promise("slices-are-not-dropped-by-accident")
def test_reset_is_refused_when_a_slice_is_unfinished_and_nobody_gave_it_up(scene: ResetScene) -> None:
    half_way(scene)
    before = scene.dump()
    with pytest.raises(RunError, match="run 'r4' of application 'app' is unfinished") as caught:
        scene.reset(**EVERYTHING)
    assert "--delete-stopoffsets" in caught.value.fix
    assert scene.dump() == before


def test_everything_comes_again_when_an_unfinished_slice_is_dropped_with_a_reset(scene: ResetScene) -> None:
    half_way(scene)
    done = scene.reset(**EVERYTHING, delete_stop_offsets=True)
    assert done.dropped_run == "r4"
    scene.counts()
    scene.run("r5")
    assert dict(scene.counts()) == {"a": 3, "b": 1, "c": 1, "d": 2, "e": 1}


@pytest.mark.promise("dropped-slices-lose-nothing")
def test_next_run_goes_on_with_new_stops_when_only_stop_offsets_are_deleted(scene: ResetScene) -> None:
    half_way(scene)
    scene.counts()
    before = scene.dump(without=(METADATA, LEDGER))
    done = scene.reset(delete_stop_offsets=True)
    assert (done.offsets, dict(done.deleted), done.taken_back, done.dropped_run) == ((), {}, (), "r4")
    assert scene.dump(without=(METADATA, LEDGER)) == before
    assert scene.state is RunState.NEW
    scene.send("d")
    slice_ = scene.begin("r5")
    assert sum(part.stop_offset - part.start_offset for part in slice_.inputs) == 1
    scene.tasks(slice_)
    scene.finish("r5")
    assert dict(scene.counts()) == {"d": 3, "e": 1}


def test_lost_topic_is_still_an_error_when_only_stop_offsets_were_deleted(scene: ResetScene) -> None:
    half_way(scene)
    scene.kafka.admin().delete_topics(["in"])
    scene.kafka.create_topic("in", partitions=2)
    scene.send(*"abcdefghijkl")
    with pytest.raises(DataLossError):
        scene.begin("r4", order=2)
    scene.reset(delete_stop_offsets=True)
    with pytest.raises(DataLossError, match="created again"):
        scene.begin("r5")
    scene.reset(**EVERYTHING)
    assert scene.run("r6").records_in == 12


def test_starts_of_the_first_run_stay_when_its_stop_offsets_are_deleted() -> None:
    """The second partition was not read yet, and the first-run policy must not be asked again."""
    scene = ResetScene(settings={"first.run.offsets": "latest"})
    scene.send("before", "before")
    scene.run("r1")
    scene = ResetScene(settings={"first.run.offsets": "latest"})
    scene.send("before", "before")
    slice_ = scene.begin("r1")
    scene.reset(delete_stop_offsets=True)
    scene.send("a", "b")
    second = scene.begin("r2")
    assert [p.start_offset for p in second.inputs] == [p.start_offset for p in slice_.inputs] == [1, 1]


@pytest.mark.promise("slices-are-not-dropped-by-accident")
def test_slice_is_dropped_when_another_program_wrote_it(scene: ResetScene) -> None:
    scene.kafka.append(METADATA, b"7", b"in_0")
    scene.kafka.append(METADATA, b"0", APP.encode())
    with pytest.raises(RunError, match="the run of another program"):
        scene.reset(**EVERYTHING)
    assert scene.reset(delete_stop_offsets=True).dropped_run == ""
    scene.send("a")
    assert scene.run("r4").records_in == 1


@pytest.mark.parametrize("value", [b"not json", b'{"topology": 1}'])
@pytest.mark.remedy("metadata._readable")
def test_slice_is_dropped_when_its_marker_cannot_be_read(scene: ResetScene, value: bytes) -> None:
    headers = [("kstreams.version", VERSION), ("kstreams.run", b"r9"), ("kstreams.plan", value)]
    scene.kafka.append(METADATA, b"0", APP.encode(), headers=[*headers])
    with pytest.raises(KafkaClientError) as caught:
        scene.begin("r4")
    assert caught.value.fix.endswith(scene.request(delete_stop_offsets=True).command)
    scene.reset(delete_stop_offsets=True)
    scene.send("a")
    assert scene.run("r4").records_in == 1


# == applications at work


@pytest.mark.promise("dry-runs-change-nothing")
def test_dry_run_changes_nothing_whatever_is_asked_for(scene: ResetScene) -> None:
    half_way(scene)
    driver = scene.coordinator()
    scene.begin("r4", coordinator=driver, order=2)
    scene.kafka.join_group(APP)
    before = scene.dump()
    for request in (
        EVERYTHING,
        {**EVERYTHING, "scenario": shift_by(-1), "delete_stop_offsets": True, "force": True},
        {"internal": CHANGELOG},
        {"delete_stop_offsets": True},
        {},
    ):
        plan = scene.plan_reset(**request)
        assert (plan.dropped_run, len(plan.members)) == ("r4", 1)
        assert plan.lease is not None
        assert scene.dump() == before
    driver.lease.renew()
    driver.close()


class Asked:
    """Notes what every client is asked."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        self.names.add(name)
        return effect()


@pytest.mark.promise("dry-runs-change-nothing")
def test_dry_run_claims_nothing(scene: ResetScene) -> None:
    asked = Asked()
    request = scene.request(**EVERYTHING)
    with ApplicationReset(FaultyCluster(scene.kafka, asked), request, clock=scene.clock) as tool:
        assert tool.plan().offsets
    assert not {name for name in asked.names if name.startswith("writer.")}


@pytest.mark.promise("applications-at-work-are-left-alone")
def test_application_at_work_is_left_alone_unless_forced(scene: ResetScene) -> None:
    driver = scene.coordinator()
    scene.send("a")
    scene.begin("r4", coordinator=driver)
    before = scene.dump(without=(LEDGER,))
    scene.clock = WaitingClock(scene.clock, driver.lease.renew)  # type: ignore[assignment]
    for request in (EVERYTHING, {"delete_stop_offsets": True}, {}):
        with pytest.raises(RunBusyError, match="driver of r4 works on run 'r4'") as caught:
            scene.reset(**request)
        assert "--force" in caught.value.fix
        assert scene.dump(without=(LEDGER,)) == before
    driver.lease.renew()
    driver.close()


@pytest.mark.promise("forced-resets-fence")
def test_driver_is_superseded_and_writes_nothing_more_when_a_reset_is_forced(scene: ResetScene) -> None:
    driver = scene.coordinator()
    scene.send("d", "d")
    slice_ = scene.begin("r4", coordinator=driver)
    scene.reset(**EVERYTHING, delete_stop_offsets=True, force=True)
    after = scene.dump()
    for late in (
        driver.lease.renew,
        driver.lease.release,
        lambda: driver.finish("r4"),
        lambda: scene.task(slice_, 0, 0),
    ):
        with pytest.raises((RunSupersededError, RunError, TaskFencedError)):
            late()
            raise RunSupersededError("release is silent", run_id="r4")
    driver.close()
    assert scene.dump(without=(LEDGER, METADATA)) == without(after, LEDGER, METADATA)
    assert (scene.state, scene.ledger.lease) == (RunState.NEW, None)
    scene.counts()
    scene.run("r5")
    assert dict(scene.counts()) == {"a": 3, "b": 1, "c": 1, "d": 2}


@pytest.mark.promise("forced-resets-fence")
@pytest.mark.parametrize("call", ["writer.produce", "writer.send_offsets", "writer.commit"])
@pytest.mark.parametrize("subtopology", [0, 1, 2])
def test_task_at_work_commits_nothing_when_a_reset_is_forced(
    scene: ResetScene, call: str, subtopology: int
) -> None:
    scene.send("d", "d")
    slice_ = scene.begin("r4")
    scene.tasks(slice_, range(subtopology))
    steps = OneStep(call, lambda: scene.reset(**EVERYTHING, delete_stop_offsets=True, force=True))
    group = next(group for group in range(2) if works(scene, slice_, subtopology, group))
    # Topics that the reset deleted are gone for who meets that before it meets the fence.
    with pytest.raises((TaskFencedError, KafkaClientError, DataLossError)):
        scene.task(slice_, subtopology, group, cluster=FaultyCluster(scene.kafka, steps))
    assert steps.result is not None and steps.result.dropped_run == "r4"
    assert scene.offsets("in") == [0, 0]
    scene.counts()
    scene.run("r5")
    assert dict(scene.counts()) == {"a": 3, "b": 1, "c": 1, "d": 2}


@pytest.mark.promise("dropped-slices-lose-nothing")
def test_offsets_are_shifted_from_where_a_task_left_them_when_it_was_at_work_until_it_was_fenced(
    scene: ResetScene,
) -> None:
    scene.send("d", "d", "d", "d")
    slice_ = scene.begin("r4")
    steps = OneStep("writer.begin", lambda: scene.task(slice_, 0, 0))
    scene.reset(
        FaultyCluster(scene.kafka, steps),
        inputs="in",
        scenario=shift_by(-1),
        delete_stop_offsets=True,
        force=True,
    )
    assert steps.taken
    assert scene.offsets("in") == [5 - 1, 2 - 1]


@pytest.mark.promise("applications-at-work-are-left-alone")
def test_group_with_members_is_left_alone_unless_forced(scene: ResetScene) -> None:
    scene.kafka.join_group(APP, "a-consumer")
    before = scene.dump()
    with pytest.raises(RunBusyError, match=r"1 member: a-consumer at 127\.0\.0\.1"):
        scene.reset(**EVERYTHING)
    assert scene.dump() == before
    done = scene.reset(**EVERYTHING, force=True)
    assert [member.client_id for member in done.members] == ["a-consumer"]
    assert scene.offsets("in") == [0, 0]


def test_member_that_moves_offsets_again_is_told_when_forced(scene: ResetScene) -> None:
    scene.kafka.join_group(APP, "a-consumer")
    member = scene.kafka.reader(group_id=APP)
    steps = OneStep(
        "admin.delete_topics", lambda: member.commit({TopicPartition("in", 1): CommittedOffset(2)})
    )
    with pytest.raises(RunBusyError, match="a member of its consumer group has moved in-1 from 0 to 2"):
        scene.reset(FaultyCluster(scene.kafka, steps), **EVERYTHING, force=True)


def test_run_that_begins_meanwhile_wins_when_the_reset_was_not_forced(scene: ResetScene) -> None:
    """The reset has looked already, and finds its claim fenced when it writes."""
    scene.send("a")
    driver = scene.coordinator()
    steps = OneStep("writer.begin", lambda: scene.begin("r4", coordinator=driver))
    with pytest.raises(RunBusyError, match="driver of r4 works on run 'r4'"):
        scene.reset(FaultyCluster(scene.kafka, steps), **EVERYTHING)
    assert scene.offsets("in") == [3, 2]
    driver.lease.renew()
    driver.close()


# == which topics


@pytest.mark.promise("topics-of-others-stay")
def test_topics_of_others_stay_when_their_names_begin_alike(scene: ResetScene) -> None:
    others = {
        "app-eu-counts-changelog": 1,  # of an application with a ledger
        "app-eu-runs": 1,
        "app-us-counts-changelog": 1,  # of a Kafka Streams application
        "ap-counts-changelog": 1,
        "app-dead-letter": 1,
        "app-changelog": 1,
        "mine-changelog": 1,
    }
    for topic in others:
        scene.kafka.create_topic(topic)
    scene.kafka.create_topic("app-old-counts-changelog", partitions=3)
    scene.kafka.reader(group_id="app-us").commit({TopicPartition("in", 0): CommittedOffset(1)})
    done = scene.reset(**EVERYTHING)
    assert dict(done.deleted) == {REPARTITION: 2, CHANGELOG: 2, "app-old-counts-changelog": 3}
    assert dict(done.ambiguous) == {"app-eu-counts-changelog": "app-eu", "app-us-counts-changelog": "app-us"}
    assert {*others} <= {*scene.kafka.topics()}
    done = scene.reset(internal="app-us-counts-changelog")
    assert dict(done.deleted) == {"app-us-counts-changelog": 1}


@pytest.mark.promise("topics-of-others-stay")
def test_own_topics_go_when_they_look_like_anothers(scene: ResetScene) -> None:
    scene.kafka.create_topic("app-counts-runs")
    scene.kafka.reader(group_id="app-counts").commit({TopicPartition("in", 0): CommittedOffset(1)})
    assert {REPARTITION, CHANGELOG} == {*scene.reset(**EVERYTHING).deleted}


@pytest.mark.promise("resets-leave-users-topics")
def test_users_topics_stay_when_they_are_named_like_internal_ones() -> None:
    scene = ResetScene()
    scene.kafka.create_topic("app-in-changelog", partitions=2)
    scene.run("r1")
    plan = scene.plan_reset(internal="app-in-changelog")
    assert "app-in-changelog" in plan.deleted, "nothing tells that it is the user's"
    with pytest.raises(ConfigError, match="does not read topic 'app-in-changelog'"):
        scene.reset(inputs="app-in-changelog")
    scene.kafka.reader(group_id=APP).commit({TopicPartition("app-in-changelog", 0): CommittedOffset(0)})
    assert "app-in-changelog" not in scene.reset(inputs="app-in-changelog").deleted
    assert "app-in-changelog" in scene.kafka.topics()


@pytest.mark.promise("refused-resets-do-nothing")
@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"inputs": "inn"}, "topic 'inn' does not exist"),
        ({"inputs": "in", "intermediates": "inn"}, "topic 'inn' does not exist"),
        ({"inputs": "out"}, "does not read topic 'out': its last run had the inputs in and the intermediate"),
        ({"inputs": "mid"}, "--input-topics names topic 'mid', which application"),
        ({"intermediates": "in"}, "--intermediate-topics names topic 'in', which application"),
        ({"inputs": "in", "intermediates": "in"}, "topic 'in' is named as input and as intermediate topic"),
        ({"internal": "out"}, "there is no internal topic 'out' of application 'app'"),
        ({"internal": METADATA}, "there is no internal topic 'app-metadata'"),
        ({"internal": "other-x-changelog"}, "there is no internal topic 'other-x-changelog'"),
        ({"scenario": TO_LATEST}, "--to-latest says where to set the offsets of input topics, and none"),
    ],
    ids=str,
)
@pytest.mark.parametrize("dry", [True, False])
def test_request_is_refused_when_it_does_not_fit_the_application(
    scene: ResetScene, request_: dict[str, Any], message: str, dry: bool
) -> None:
    before = scene.dump()
    with pytest.raises(ConfigError, match=re.escape(message)):
        (scene.plan_reset if dry else scene.reset)(**request_)
    assert scene.dump() == before


def test_unknown_application_is_an_error_when_nothing_of_it_exists() -> None:
    scene = ResetScene()
    before = scene.dump()
    with pytest.raises(ConfigError, match="there is no application 'app' on this cluster"):
        scene.reset(inputs="in")
    assert scene.dump() == before
    scene.kafka.reader(group_id=APP).commit({TopicPartition("in", 0): CommittedOffset(0)})
    assert scene.reset(inputs="in").offsets[1].before is None


def works(scene: ResetScene, slice_: Slice, subtopology: int, group: int) -> bool:
    """Whether a task will have records to read."""
    topic = ("in", "mid", REPARTITION)[subtopology]
    committed = scene.offsets(topic)[group] or 0
    records = scene.kafka.records(topic)
    return any(r.partition() == group and r.offset() >= committed for r in records)


def without(dump: dict[str, Any], *topics: str) -> dict[str, Any]:
    """The dump without some topics."""
    by_topic = {
        kind: {name: found for name, found in dump[kind].items() if name not in topics}
        for kind in ("topics", "configs", "logs")
    }
    ends = {tp: end for tp, end in dump["ends"].items() if tp.topic not in topics}
    return {**dump, **by_topic, "ends": ends}


class OneStep:
    """An interceptor that does something before the first call of a name."""

    def __init__(self, call: str, action: Callable[[], object]) -> None:
        self.taken = False
        self.result: Any = None
        self._call = call
        self._action = action

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        if name == self._call and not self.taken:
            self.taken = True
            self.result = self._action()
        return effect()
