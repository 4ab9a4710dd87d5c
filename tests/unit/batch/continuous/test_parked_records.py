"""Parked records when an application runs continuously and in batches in turns."""

from __future__ import annotations

import pytest

from airflow_kstreams.streams import Topology
from airflow_kstreams.streams.errors import OrphanedRecordsError
from airflow_kstreams.streams.ports import TopicPartition
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.support.kafka.parking_scene import APP, ParkingScene, parking_scene
from tests.support.kafka.printed_commands import accept_at

pytestmark = pytest.mark.promise("parked-records-come-first")

scene = pytest.fixture(parking_scene)


def run_continuously(scene: ParkingScene, topology: Topology | None = None) -> None:
    """Run until everything there is was read, and stop."""
    application = SwitchingApplication(
        topology=topology or scene.topology(), cluster=scene.kafka, clock=scene.kafka.clock
    )
    running = application.run_continuously("c")
    running.rounds(4)
    running.stop()


def test_continuous_run_goes_on_with_what_a_batch_left_parked_and_the_next_batch_finds_none(
    scene: ParkingScene,
) -> None:
    scene.down = {"bad"}
    scene.send("a", "bad", partition=1)
    scene.run("r1")
    scene.down = set()

    run_continuously(scene)

    assert scene.out == ["a", "bad"]
    assert scene.parked == {"enrich": {1: 1}}, "the ledger speaks of the last batch"
    assert scene.status.parked == {}, "the offsets are newer"
    assert scene.run("r2").empty


def test_batch_goes_on_with_what_a_continuous_run_left_parked(scene: ParkingScene) -> None:
    scene.down = {"bad"}
    scene.send("a", "bad", partition=1)
    run_continuously(scene)
    assert (scene.parked, scene.status.parked) == ({}, {"enrich": {1: 1}})
    scene.down = set()

    assert scene.run("r1").state == "completed"

    assert scene.launched == ["0_1"]
    assert scene.out == ["a", "bad"]


def test_every_task_runs_when_a_person_sets_the_offsets_that_a_continuous_run_left(
    scene: ParkingScene,
) -> None:
    scene.down = {"bad"}
    scene.send("a", "bad", partition=1)
    run_continuously(scene)
    accept_at(scene.kafka, {TopicPartition("in", 0): 0, TopicPartition("in", 1): 2}, APP)
    assert scene.status.parked == {"enrich": {0: None, 1: None}}, "unknown, not none"
    with pytest.raises(
        OrphanedRecordsError,
        match="has parked an unknown number of records, in app-enrich-retry partition 0, 1,",
    ):
        scene.run("r1", scene.topology(parks=False))
    scene.down = set()

    assert scene.run("r1").parked == {}

    assert sorted(scene.launched) == ["0_0", "0_1"]
    assert scene.out == ["a", "bad"]


def test_continuous_run_is_refused_when_its_topology_would_leave_parked_records(scene: ParkingScene) -> None:
    scene.down = {"bad"}
    scene.send("bad")
    scene.run("r1")
    with pytest.raises(OrphanedRecordsError, match="no node 'enrich'"):
        run_continuously(scene, scene.topology(parks=False))
    assert scene.ledger.current_continuous is None
