"""What the doctor finds of an application's runs before the code that comes next is deployed."""

from __future__ import annotations

import pytest

from airflow_kstreams.batch.inspect.doctor import Finding, Level, Subject, diagnose
from airflow_kstreams.streams.settings import ApplicationSettings
from tests.support.kafka.reset_scene import ResetScene


def _found(scene: ResetScene, check: str, application_id: str) -> list[Finding]:
    settings = ApplicationSettings.parse(application_id, {})
    subject = Subject(plan=scene.topology.plan(application_id), settings=settings)
    return [found for found in diagnose(scene.kafka, subject, clock=scene.clock) if found.check == check]


@pytest.mark.promise("misspelt-applications-are-refused")
@pytest.mark.remedy("run_checks._known")
def test_id_that_may_be_misspelt_is_warned_of_and_a_new_one_is_said() -> None:
    scene = ResetScene()
    scene.send("a")
    scene.run("one")

    assert not _found(scene, "application", "app")
    (misspelt,) = _found(scene, "application", "apq")
    assert misspelt.level is Level.WARNING
    assert misspelt.text.startswith("no run of application 'apq' has begun on this cluster")
    assert misspelt.fix.endswith("else correct --application-id (did you mean 'app'?)")
    (new,) = _found(scene, "application", "orders")
    assert (new.level, new.fix) == (Level.OK, "")
