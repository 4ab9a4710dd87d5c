"""Resets, when records are parked."""

from __future__ import annotations

import pytest

from airflow_kstreams.batch.report.results import reset_result
from airflow_kstreams.streams.errors import OrphanedRecordsError
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from tests.support.kafka.parking_scene import APP, RETRY, ParkingScene, parking_scene
from tests.support.kafka.printed_commands import accept_in_memory
from tests.unit.cli.test_app import invoke

pytestmark = pytest.mark.promise("parked-records-come-first", "parked-records-are-not-orphaned")

empty_scene = pytest.fixture(parking_scene)


@pytest.fixture
def scene(empty_scene: ParkingScene) -> ParkingScene:
    """A record is parked."""
    empty_scene.down = {"bad"}
    empty_scene.send("a", "bad", partition=1)
    empty_scene.run("r1")
    return empty_scene


def set_all_offsets(scene: ParkingScene, *ends: int) -> None:
    """Set the offsets of the input as a person does, who leaves nothing beside them."""
    scene.kafka.reader(group_id=APP).commit(
        {TopicPartition("in", number): CommittedOffset(end) for number, end in enumerate(ends)}
    )


@pytest.mark.parametrize("by_hand", [False, True])
def test_parked_records_are_kept_as_the_dropped_run_left_them_when_its_slice_is_dropped(
    scene: ParkingScene, by_hand: bool
) -> None:
    scene.send("bad", key="other", partition=0)
    scene.send("bad", key="third", partition=1)
    application = scene.application()
    application.task(application.begin("r2"), 0, 0)  # the other task did not come to its turn

    done = scene.reset(delete_stop_offsets=True)

    assert (done.dropped_run, dict(done.given_up)) == ("r2", {})
    assert scene.parked == {"enrich": {0: 1, 1: 1}}
    if by_hand:
        set_all_offsets(scene, 1, 2)
    assert scene.run("r3").parked == {"enrich": 3}
    scene.down = set()
    scene.run("r4")
    assert sorted(scene.out) == ["a", "bad", "bad", "bad"]


def test_parked_records_go_with_their_topic_when_the_application_is_reset(scene: ParkingScene) -> None:
    done = scene.reset(input_topics=("in",))

    assert done.given_up == {"enrich": {1: 1}} and RETRY in done.deleted
    assert reset_result(done)["parked_given_up"] == 1
    assert (scene.parked, scene.status.parked) == ({}, {})
    scene.down = set()
    assert scene.run("r1").parked == {}, "all is read again"
    assert scene.out == ["a", "a", "bad"]


def test_parked_records_are_given_up_by_the_command_that_the_refusal_names(scene: ParkingScene) -> None:
    with pytest.raises(OrphanedRecordsError) as caught:
        scene.run("r2", scene.topology(parks=False))
    accept_in_memory(caught.value, scene.kafka)
    assert (scene.parked, scene.status.parked) == ({}, {}), "whatever stands beside the offsets"
    assert scene.run("r2", scene.topology(parks=False)).empty
    scene.send("b")
    scene.run("r3", scene.topology(parks=False))
    assert scene.out == ["a", "b"]


def test_reset_says_what_is_given_up(scene: ParkingScene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_kstreams.kafka.cluster.KafkaCluster", lambda config, **_: scene.kafka)
    options = ("--application-id", APP, "--bootstrap-server", "m:1", "--input-topics", "in")
    for dry, verb in ((("--dry-run",), "would be given up"), ((), "was given up")):
        shown = invoke("reset", *options, *dry)
        assert (shown.exit_code, shown.stderr) == (0, "")
        assert "records parked at node enrich: 1" in shown.stdout and verb in shown.stdout


def test_topic_of_a_users_own_stays_when_it_is_named_as_retry_topics_are(scene: ParkingScene) -> None:
    scene.kafka.create_topic(f"{APP}-mine-retry")
    scene.reset(input_topics=("in",))
    assert f"{APP}-mine-retry" in scene.kafka.topics() and RETRY not in scene.kafka.topics()
