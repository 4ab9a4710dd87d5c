"""Runs that leave records parked, and the runs after them."""

from __future__ import annotations

import msgspec
import pytest

from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.slice.metadata import RunState
from airflow_kstreams.batch.report.counts import finished_text
from airflow_kstreams.batch.report.lineage import event_extra
from airflow_kstreams.streams.errors import OrphanedRecordsError, RunError, TopologyError
from airflow_kstreams.streams.partitioning.partition_groups import FixedGroups
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.testing import FaultyCluster
from tests.support.crash import Crash
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.support.kafka.interception import CrashingAt, Once
from tests.support.kafka.parking_scene import APP, DUE_MS, RETRY, ParkingScene, parking_scene
from tests.support.kafka.printed_commands import accept_at

pytestmark = pytest.mark.promise("parked-records-come-first", "parked-records-are-not-orphaned")

scene = pytest.fixture(parking_scene)


def left_parked(scene: ParkingScene) -> RunSummary:
    """Run once; two records of one key are left parked in partition 1, none in partition 0."""
    scene.down = {"bad"}
    scene.send("a", "b")
    scene.send("bad", "behind", key="p", partition=1)
    return scene.run("r1")


# == the number travels


def test_summary_ledger_and_offsets_say_what_is_parked_when_a_run_leaves_some(scene: ParkingScene) -> None:
    summary = left_parked(scene)

    assert summary.state == "completed_with_parked(2)"
    assert (summary.parked, summary.parked_due_ms) == ({"enrich": 2}, DUE_MS)
    assert {task.task_id: task.parked for task in summary.tasks} == {"0_0": {}, "0_1": {"enrich": 2}}
    assert scene.parked == {"enrich": {1: 2}}, "for the next begin, by task"
    assert (scene.beside_offset(0), scene.beside_offset(1)) == ({}, {"enrich": 2})
    stored = scene.ledger.find("r1")
    detailed = scene.ledger.detailed(summary)
    assert detailed.tasks == summary.tasks
    assert stored is not None and (stored.parked, stored.parked_due_ms) == ({"enrich": 2}, DUE_MS)
    assert scene.status.parked == scene.parked and scene.status.parked_due_ms == DUE_MS
    assert "  completed_with_parked(2): 2 at enrich; the first is due at 2027-" in finished_text(summary)
    assert event_extra(summary)["parked"] == {"enrich": 2}


def test_nothing_is_said_of_parked_records_when_there_are_none(scene: ParkingScene) -> None:
    scene.send("a")
    summary = scene.run("r1")
    assert (summary.state, summary.parked, summary.parked_due_ms) == ("completed", {}, None)
    assert "parked" not in finished_text(summary) and "parked" not in event_extra(summary)
    assert b"parked" not in msgspec.json.encode(msgspec.structs.replace(summary, tasks=()))
    assert (scene.parked, scene.status.parked) == ({}, {})


# == the next run


def test_only_the_tasks_with_parked_records_run_when_nothing_else_is_new(scene: ParkingScene) -> None:
    left_parked(scene)
    scene.down = set()

    summary = scene.run("r2")

    assert not summary.empty
    assert scene.launched == ["0_1"]
    assert scene.out == ["a", "b", "bad", "behind"]
    assert (summary.state, scene.parked) == ("completed", {})
    assert scene.run("r3").empty, "and once nothing is parked, there is nothing to do"
    assert scene.launched == []


def test_results_of_parked_records_pass_the_subtopologies_below_when_nothing_else_is_new(
    scene: ParkingScene,
) -> None:
    scene.down = {"bad"}
    scene.send("a", "bad", partition=1)
    scene.run("r1", scene.topology(through=True))
    assert scene.out == ["a"]
    scene.down = set()
    assert scene.run("r2", scene.topology(through=True)).state == "completed"
    assert scene.out == ["a", "bad"]


def test_number_is_kept_from_run_to_run_when_the_service_stays_down(scene: ParkingScene) -> None:
    left_parked(scene)
    for run_id in ("r2", "r3"):
        assert scene.run(run_id).state == "completed_with_parked(2)"
        assert scene.launched == ["0_1"]
    scene.send("c")
    assert scene.run("r4").parked == {"enrich": 2}
    assert sorted(scene.launched) == ["0_0", "0_1"]
    scene.down = set()
    assert scene.run("r5").parked == {}
    assert sorted(scene.out) == ["a", "b", "bad", "behind", "c"]


@pytest.mark.remedy("finish._refuse_owing")
def test_run_is_not_finished_before_tasks_with_parked_records_have_run(scene: ParkingScene) -> None:
    left_parked(scene)
    application = scene.application()
    application.begin("r2")
    with pytest.raises(RunError, match="task 0_1 has retry topics and has not made its last commit"):
        application.finish("r2")
    scene.down = set()
    assert scene.run("r2").parked == {}, "the run goes on, and finishes"
    assert scene.out == ["a", "b", "bad", "behind"]


def test_task_is_done_once_when_it_has_looked_at_its_parked_records(scene: ParkingScene) -> None:
    left_parked(scene)
    application = scene.application()
    slice_ = application.begin("r2")
    assert application.task(slice_, 0, 1).outcome == "done"
    assert application.task(slice_, 0, 1).outcome == "already_done"
    assert application.task(slice_, 0, 0).outcome == "already_done", "it has none, and nothing to read"
    assert application.finish("r2").parked == {"enrich": 2}


@pytest.mark.usefixtures("scene")
@pytest.mark.parametrize("after", [False, True])
def test_nothing_is_lost_or_doubled_when_a_task_dies_at_any_call(after: bool) -> None:
    number, died = 0, True
    while died:
        scene = ParkingScene()
        left_parked(scene)
        scene.down, died = set(), False
        try:
            scene.run("r2", on=FaultyCluster(scene.kafka, CrashingAt(number, after=after)))
        except Crash:
            died = True
            scene.run("r2")
        assert scene.out == ["a", "b", "bad", "behind"]
        assert (scene.parked, scene.beside_offset(1)) == ({}, {})
        number += 1
    assert number > 10


def test_ledger_says_what_is_parked_when_committed_offsets_have_expired(scene: ParkingScene) -> None:
    left_parked(scene)
    scene.down = set()
    scene.kafka.expire_offsets(APP)
    assert scene.run("r2").parked == {}
    assert scene.launched == ["0_1"]
    assert scene.out == ["a", "b", "bad", "behind"]


def test_ledger_says_what_is_parked_when_a_person_sets_an_offset(scene: ParkingScene) -> None:
    left_parked(scene)
    scene.down = set()
    scene.kafka.reader(group_id=APP).commit({TopicPartition("in", 1): CommittedOffset(2)})
    scene.run("r2")
    assert scene.launched == ["0_1"]
    assert scene.out == ["a", "b", "bad", "behind"]


def test_every_task_that_may_have_some_runs_when_it_is_not_known_what_is_parked(scene: ParkingScene) -> None:
    """A run was under way, and a person set all offsets: what its tasks have parked, nothing says."""
    scene.send("a", partition=1)
    scene.run("r1")
    scene.down = {"bad"}
    scene.send("bad", partition=1)
    application = scene.application()
    application.task(application.begin("r2"), 0, 1)
    scene.kafka.admin().delete_topics([f"{APP}-metadata"])
    accept_at(scene.kafka, {TopicPartition("in", number): end for number, end in enumerate((0, 2))}, APP)
    scene.down = set()
    assert scene.run("r3").parked == {}
    assert sorted(scene.launched) == ["0_0", "0_1"]
    assert scene.out == ["a", "bad"]


# == a topology that would leave them behind


def refused(scene: ParkingScene, **topology: object) -> OrphanedRecordsError:
    before = scene.kafka.topics()
    with pytest.raises(OrphanedRecordsError) as caught:
        scene.run("r2", scene.topology(**topology))  # type: ignore[arg-type]
    assert scene.kafka.topics() == before, "nothing was created"
    assert scene.status.state is RunState.FINISHED, "nor begun"
    error = caught.value
    assert (error.node, error.count) == ("enrich", 2)
    assert f"node 'enrich' of application 'app' has parked 2 records, in {RETRY} partition 1" in str(error)
    assert "run the topology of run 'r1'" in error.fix and f"--internal-topics {RETRY}" in error.fix
    return error


@pytest.mark.remedy("parked_before._orphaned")
def test_topology_is_refused_when_the_node_with_parked_records_is_gone(scene: ParkingScene) -> None:
    left_parked(scene)
    assert "no node 'enrich'" in refused(scene, parks=False).cause
    scene.down = set()
    scene.run("r2")
    assert scene.run("r3", scene.topology(parks=False)).empty, "it is not once nothing is parked"
    scene.send("c")
    scene.run("r4", scene.topology(parks=False))
    scene.send("d")
    scene.run("r5")
    assert sorted(scene.out) == ["a", "b", "bad", "behind", "c", "d"], "and the node may come back"


def test_topology_is_refused_when_the_node_has_another_name(scene: ParkingScene) -> None:
    left_parked(scene)
    scene.node = "called"
    refused(scene)


def test_topology_is_refused_when_no_task_would_read_parked_records(scene: ParkingScene) -> None:
    left_parked(scene)
    assert "would leave out task 0_1" in refused(scene, grouper=FixedGroups(1)).cause


def test_topology_is_refused_when_keys_of_parked_records_would_come_to_other_tasks(
    scene: ParkingScene,
) -> None:
    class Crossed(FixedGroups):
        """Equal ids, the other way round."""

        def group(self, partitions_per_topic):  # type: ignore[no-untyped-def]
            return list(reversed(super().group(partitions_per_topic)))

    left_parked(scene)
    assert "in-1 would move" in refused(scene, grouper=Crossed(2)).cause


def test_parked_records_are_found_when_the_subtopology_has_another_number(scene: ParkingScene) -> None:
    left_parked(scene)
    scene.down = set()
    assert scene.run("r2", scene.topology(before="other")).parked == {}
    assert scene.out == ["a", "b", "bad", "behind"]


@pytest.mark.error_example("KS-APP-004")
def test_topology_is_refused_when_a_task_parks_its_first_record_while_begin_looks(
    scene: ParkingScene,
) -> None:
    """Tasks of a continuous run whose driver is gone go on until begin fences them."""
    scene.down = {"bad"}
    application = SwitchingApplication(
        topology=scene.topology(), cluster=scene.kafka, clock=scene.kafka.clock, settings={"lease.ms": 3_000}
    )
    running = application.run_continuously("c")
    running.rounds(2)
    scene.send("bad")
    running.coordinator.close()

    def parks() -> None:
        for _ in range(3):
            scene.kafka.clock.sleep(10.0)  # longer than the interval of commits
            running.thread.round()

    before_fencing = Once("admin.delete_records", 1, parks)
    begun = scene.application(scene.topology(parks=False))
    begun.interceptor = before_fencing
    with pytest.raises(OrphanedRecordsError, match="has parked 1 record"):
        begun.begin("r1")
    assert before_fencing.left == 0
    running.close()


def test_retry_topic_is_not_shared_when_two_applications_would_give_it_the_same_name(
    scene: ParkingScene,
) -> None:
    other = scene.application()
    other.application_id = f"{APP}-x"
    scene.send("a")
    other.run("r1")
    scene.node = "x-enrich"
    with pytest.raises(TopologyError, match=f"{APP}-x-enrich-retry .* also belongs to application '{APP}-x'"):
        scene.run("r1")


@pytest.mark.usefixtures("scene")
def test_begin_asks_for_no_more_offsets_when_no_node_has_a_retry_topic() -> None:
    def asked(*, parks: bool) -> int:
        own = ParkingScene()
        own.run("r1", own.topology(parks=parks))
        own.send("a")
        own.run("r2", own.topology(parks=parks))
        calls = CrashingAt(None)
        begun = own.application(own.topology(parks=parks))
        begun.interceptor = calls
        begun.begin("r3")
        return calls.calls.count("reader.committed")

    assert asked(parks=True) == asked(parks=False) + 1
