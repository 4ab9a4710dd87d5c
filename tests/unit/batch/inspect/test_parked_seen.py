"""What sensors see of records that runs have left parked."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.batch.inspect.cluster_view import ClusterView
from airflow_kstreams.batch.inspect.conditions import Condition, NewData, StopOffsetsReached
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.support.kafka.parking_scene import APP, DUE_MS, RETRY, ParkingScene, parking_scene

scene = pytest.fixture(parking_scene)


def seen(scene: ParkingScene, condition: Condition) -> Any:
    with ClusterView(scene.kafka, clock=scene.kafka.clock) as view:
        return condition.evaluate(view)


def wait_until_due(scene: ParkingScene) -> None:
    scene.kafka.clock.sleep((DUE_MS - scene.kafka.clock.now_ms()) / 1000)


def test_parked_records_are_something_new_once_they_are_due(scene: ParkingScene) -> None:
    enough = NewData(application_id=APP, min_records=100)
    scene.down = {"bad"}
    scene.send("bad", "behind")
    scene.run("r1")
    assert seen(scene, enough) is None, "a run now would come too early"

    wait_until_due(scene)

    found = seen(scene, enough)
    assert (found["records"], found["records_per_topic"]) == (2, {RETRY: 2})
    scene.send("c")
    assert seen(scene, enough)["records_per_topic"] == {RETRY: 2, "in": 1}
    scene.application().begin("r2")
    assert seen(scene, enough) is None, "the run that has begun works on them"
    scene.down = set()
    scene.run("r2")
    assert seen(scene, enough) is None


def test_parked_records_are_a_continuous_runs_own_while_it_lasts(scene: ParkingScene) -> None:
    scene.down = {"bad"}
    scene.send("bad")
    scene.run("r1")
    wait_until_due(scene)
    running = SwitchingApplication(
        topology=scene.topology(), cluster=scene.kafka, clock=scene.kafka.clock
    ).run_continuously("c")
    assert seen(scene, NewData(application_id=APP)) is None
    running.close()


def test_subtopology_is_not_at_its_stops_before_its_parked_records_were_looked_at(
    scene: ParkingScene,
) -> None:
    scene.down = {"bad"}
    scene.send("bad")
    scene.run("r1")
    reached = StopOffsetsReached(application_id=APP, run_id="r2", subtopology=0)
    application = scene.application()
    slice_ = application.begin("r2")
    assert seen(scene, reached) is None
    application.task(slice_, 0, 0)
    assert seen(scene, reached) is not None
