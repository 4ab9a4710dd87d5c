"""Stops of intermediate topics: frozen once, for all partitions or none, when all tasks have notified."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from airflow_kstreams.batch.protocol.slice.metadata import read_metadata
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.streams.errors import KafkaClientError, RunSupersededError, UpstreamNotDoneError
from airflow_kstreams.streams.ports import ClusterPort, TopicPartition
from airflow_kstreams.testing import FaultyCluster
from tests.support.crash import Crash
from tests.support.kafka.interception import CrashingAt, Once
from tests.support.kafka.reset_scene import APP, METADATA, ResetScene

T = TypeVar("T")

MID = [TopicPartition("mid", number) for number in range(2)]


@pytest.fixture
def scene() -> ResetScene:
    """``in`` (2 partitions) -> ``mid`` (2) -> counted; three records arrived, one of an outsider."""
    made = ResetScene()
    made.send("a", "b", "a")
    made.kafka.append("mid", b"x", b"k", partition=1)
    return made


def begun(
    scene: ResetScene, cluster: ClusterPort | None = None, *, order: int = 1
) -> tuple[Coordinator, Slice]:
    driver = scene.coordinator(cluster)
    return driver, scene.begin("r1", coordinator=driver, order=order)


def frozen(scene: ResetScene) -> dict[TopicPartition, int]:
    return dict(read_metadata(scene.kafka, APP, clock=scene.clock).intermediate_stops)


def ends(scene: ResetScene) -> dict[TopicPartition, int]:
    return scene.kafka.admin().end_offsets(MID, isolation="read_uncommitted")


def test_stops_are_the_ends_of_the_log_when_all_tasks_have_notified(scene: ResetScene) -> None:
    driver, slice_ = begun(scene)
    scene.tasks(slice_, [0])
    assert frozen(scene) == {}, "no task writes them"
    wanted = ends(scene)
    (first, second) = driver.unfinished(slice_, 1)
    assert frozen(scene) == wanted
    assert [(share.group, [span.stop_offset for span in share.spans]) for share in (first, second)] == [
        (0, [wanted[MID[0]]]),
        (1, [wanted[MID[1]]]),
    ]
    driver.close()


def test_stops_are_written_in_one_transaction_of_the_coordinator(scene: ResetScene) -> None:
    driver, slice_ = begun(scene)
    scene.tasks(slice_, [0])
    commits: list[Any] = []
    scene.kafka.observe(commits.append)
    driver.unfinished(slice_, 1)
    (commit,) = commits
    assert commit.transactional_id == f"{APP}-coordinator"
    told = [(r.key(), r.value(), dict(r.headers())["kstreams.kind"]) for r in commit.records]
    assert told == [
        (f"mid_{n}".encode(), str(ends(scene)[tp]).encode(), b"intermediate stop") for n, tp in enumerate(MID)
    ]
    headers = dict(commit.records[1].headers())
    ids = scene.kafka.admin().describe_topics(["mid"])
    assert headers["kstreams.topic.id"].decode() == ids["mid"].topic_id
    assert headers["kstreams.start.offset"] == b"0"
    driver.close()


@pytest.mark.error_example("KS-RUN-007")
def test_nothing_is_frozen_when_a_task_has_not_notified(scene: ResetScene) -> None:
    driver, slice_ = begun(scene)
    scene.task(slice_, 0, 1)
    with pytest.raises(UpstreamNotDoneError, match=r"no done notification of task 0_0 \[KS-RUN-007\]\n"):
        driver.unfinished(slice_, 1)
    assert frozen(scene) == {}
    driver.close()


def test_stops_stay_when_outsiders_write_more_and_another_driver_resumes(scene: ResetScene) -> None:
    driver, slice_ = begun(scene)
    scene.tasks(slice_, [0])
    driver.unfinished(slice_, 1)
    driver.close()
    before = frozen(scene)
    scene.kafka.append("mid", b"late", b"k", partition=0)
    resumed, taken = begun(scene, order=2)
    assert taken.generation == 2
    shares = resumed.unfinished(taken, 1)
    assert frozen(scene) == before
    assert [share.spans[0].stop_offset for share in shares] == [before[tp] for tp in MID]
    for subtopology in (1, 2):
        scene.tasks(taken, [subtopology])
        resumed.unfinished(taken, subtopology)
    resumed.finish("r1")
    resumed.close()
    assert dict(scene.counts()) == {"a": 2, "b": 1, "x": 1}
    scene.run("r2")
    assert dict(scene.counts()) == {"late": 1}


@pytest.mark.parametrize("after", [False, True], ids=["before it took effect", "after"])
def test_stops_are_all_there_or_none_when_the_driver_dies_at_any_port_call(after: bool) -> None:
    seen: set[tuple[int, ...]] = set()
    for number in range(100):
        scene = ResetScene()
        scene.send("a", "b", "a")
        driver, slice_ = begun(scene)
        scene.tasks(slice_, [0])
        crashing = CrashingAt(number, after=after)
        dying = Coordinator(FaultyCluster(scene.kafka, crashing), scene.checked, clock=scene.clock)
        driver.close()
        dying_slice = slice_
        try:
            dying_slice = scene.begin("r1", coordinator=dying, order=2)
            dying.unfinished(dying_slice, 1)
        except Crash:
            scene.clock.sleep(60)  # an open transaction of the dead one is over
        else:
            break
        wanted = ends(scene)
        found = frozen(scene)
        assert found in ({}, wanted)
        scene.kafka.append("mid", b"late", b"k", partition=0)
        resumed, taken = begun(scene, order=3)
        resumed.unfinished(taken, 1)
        assert frozen(scene) == (found or ends(scene))
        seen.add((len(found),))
        for subtopology in (1, 2):
            resumed.unfinished(taken, subtopology)
            scene.tasks(taken, [subtopology])
        resumed.finish("r1")
        resumed.close()
    assert seen == {(0,), (2,)}


class FailsAt:
    """Fails one call of a name, after it took effect, and does something then."""

    def __init__(self, name: str, then: Callable[[], object]) -> None:
        self.name, self.then, self.armed = name, then, False

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        result = effect()
        if self.armed and name == self.name:
            self.armed = False
            self.then()
            raise KafkaClientError("no answer", fix="retry", kafka_code="_TIMED_OUT", retriable_code=True)
        return result


def test_stops_do_not_move_when_it_is_not_known_whether_they_were_written(scene: ResetScene) -> None:
    failing = FailsAt("writer.commit", lambda: scene.kafka.append("mid", b"late", b"k", partition=0))
    driver, slice_ = begun(scene, FaultyCluster(scene.kafka, failing))
    scene.tasks(slice_, [0])
    wanted = ends(scene)
    failing.armed = True
    shares = driver.unfinished(slice_, 1)
    assert not failing.armed
    assert frozen(scene) == wanted != ends(scene)
    assert [share.spans[0].stop_offset for share in shares] == [wanted[tp] for tp in MID]
    written = [r for r in scene.kafka.records(METADATA) if (r.key() or b"").startswith(b"mid_")]
    assert len(written) == 2, "they were written once"
    driver.close()


def test_stops_are_frozen_when_another_coordinator_only_looked(scene: ResetScene) -> None:
    looking = scene.coordinator()
    steps = Once("writer.begin", 1, looking.session.claim)
    driver, slice_ = begun(scene)
    driver.close()
    scene.tasks(slice_, [0])
    driver = scene.coordinator(FaultyCluster(scene.kafka, steps))
    steps.left = 0
    slice_ = scene.begin("r1", coordinator=driver, order=2)
    steps.left = 1
    assert len(driver.unfinished(slice_, 1)) == 2
    assert steps.left < 1
    assert frozen(scene) == ends(scene)
    driver.close()
    looking.close()


def test_superseded_driver_freezes_nothing(scene: ResetScene) -> None:
    old, slice_ = begun(scene)
    scene.tasks(slice_, [0])
    new, _ = begun(scene, order=2)
    with pytest.raises(RunSupersededError):
        old.unfinished(slice_, 1)
    assert frozen(scene) == {}
    new.close()
    old.close()


def test_task_only_notifies_when_its_notification_is_missing_and_it_is_at_its_stop(scene: ResetScene) -> None:
    driver, slice_ = begun(scene)
    scene.tasks(slice_, [0])
    key = f"{APP}-0_1".encode()
    scene.kafka.append(METADATA, None, key)  # somebody deleted it
    offsets, written = scene.committed(), scene.kafka.records("mid")
    (share,) = driver.unfinished(slice_, 0)
    assert (share.group, share.notify) == (1, True)
    report = scene.application().launched(slice_, share)
    assert report.outcome == "already_done"
    assert (scene.committed(), scene.kafka.records("mid")) == (offsets, written)
    assert driver.unfinished(slice_, 0) == []
    assert [record.value() for record in scene.kafka.records(METADATA) if record.key() == key][-1] == b"done"
    driver.close()


def test_task_with_nothing_to_read_notifies(scene: ResetScene) -> None:
    scene.run("r0")
    scene.counts()
    scene.kafka.append("in", b"c", b"k", partition=0)
    driver = scene.coordinator()
    slice_ = scene.begin("r1", coordinator=driver)
    busy, idle = driver.unfinished(slice_, 0)
    assert [span.stop_offset - span.start_offset for span in (*busy.spans, *idle.spans)] == [1, 0]
    scene.application().launched(slice_, busy)
    assert [share.group for share in driver.unfinished(slice_, 0)] == [1]
    scene.application().launched(slice_, idle)
    assert driver.unfinished(slice_, 0) == []
    driver.close()
