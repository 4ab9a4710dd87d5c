"""Tasks that a driver launched and that begin late, when it does not own the slice any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.batch.continuous.start import begin_continuous
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import TaskShare
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.streams.errors import KStreamsError, TaskFencedError
from tests.simulation.protections import PROTECTIONS
from tests.support.kafka.reset_scene import APP, ResetScene


def takes_over(scene: ResetScene, driver: Coordinator, slice_: Slice) -> None:
    scene.begin("r1", coordinator=scene.coordinator(), order=2)


def lets_go(scene: ResetScene, driver: Coordinator, slice_: Slice) -> None:
    driver.close()


def resets(scene: ResetScene, driver: Coordinator, slice_: Slice) -> None:
    scene.reset(inputs="in", intermediates="mid", delete_stop_offsets=True, force=True)


def runs_continuously(scene: ResetScene, driver: Coordinator, slice_: Slice) -> None:
    driver.close()
    begin_continuous(scene.coordinator(), "c1", scene.topology.plan(APP))


def runs_on(scene: ResetScene, driver: Coordinator, slice_: Slice) -> None:
    """The run ends, and the next one begins."""
    driver.close()
    scene.tasks(slice_)
    scene.finish("r1")
    scene.send("c")
    scene.begin("r2", coordinator=scene.coordinator())


def captures_the_next(scene: ResetScene, driver: Coordinator, slice_: Slice) -> None:
    """The driver is killed when all is done; the next capture lets its lease go."""
    scene.tasks(slice_)
    scene.finish("r1")
    scene.send("c")
    capture = scene.coordinator()
    capture.begin("r2", scene.topology.plan(APP), hold_lease=False)
    capture.close()


EVENTS: dict[str, tuple[Callable[[ResetScene, Coordinator, Slice], None], str]] = {
    "another driver takes over": (takes_over, "is held by driver of r1 for 'r1' generation 2"),
    "its driver lets go": (lets_go, "was released by driver of r1"),
    "a reset drops the slice": (resets, "is held by no driver"),
    "the application runs continuously": (runs_continuously, "is held by c1 for 'c1'"),
    "the next run begins": (runs_on, "is held by driver of r2 for 'r2'"),
    "the next run is captured": (captures_the_next, "was released by driver of r1"),
}


def everything(scene: ResetScene) -> dict[str, Any]:
    logs = {topic: scene.kafka.records(topic, isolation="read_uncommitted") for topic in scene.kafka.topics()}
    return {**logs, "offsets": scene.committed()}


def late(event: str) -> tuple[KStreamsError | None, bool]:
    """Launch a task, let something happen before it begins; return its error, and whether it wrote."""
    scene = ResetScene()
    scene.send("a", "b", "a")
    driver = scene.coordinator()
    slice_ = scene.begin("r1", coordinator=driver)
    share: TaskShare = driver.unfinished(slice_, 0)[0]
    EVENTS[event][0](scene, driver, slice_)
    before = everything(scene)
    try:
        scene.application().launched(slice_, share)
    except KStreamsError as error:
        return error, everything(scene) != before
    return None, everything(scene) != before


@pytest.mark.parametrize("event", EVENTS)
def test_task_writes_nothing_when_it_begins_late(event: str) -> None:
    error, wrote = late(event)
    assert isinstance(error, TaskFencedError)
    assert EVENTS[event][1] in error.cause
    assert not wrote


@pytest.mark.parametrize("event", EVENTS)
def test_late_task_writes_when_it_does_not_look_at_the_lease(event: str) -> None:
    with PROTECTIONS["tasks look at the lease"].missing():
        error, wrote = late(event)
    assert wrote or "committed by" in str(error)
