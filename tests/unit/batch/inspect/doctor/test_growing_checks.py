"""The doctor looks at processors that are on their way and do not arrive."""

from __future__ import annotations

from unittest import mock

import pytest

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.growing import takeover
from airflow_kstreams.batch.inspect.doctor import Finding, Level, Subject, diagnose
from airflow_kstreams.streams.errors import AccessDeniedError
from airflow_kstreams.streams.naming.permissions import Operation, Permission, Resource
from airflow_kstreams.testing import ManualClock
from tests.unit.batch.expand.test_processor_expansion import begin_to_copy, expand, grown
from tests.unit.batch.growing.test_partition_growth import KEYS, Scene

pytestmark = pytest.mark.promise("expansions-that-do-not-arrive-are-said")

_HOUR_MS = 3_600_000


def findings(scene: Scene, check: str = "more processors", *, hours: int = 0) -> list[Finding]:
    """Look some hours from now."""
    subject = Subject(plan=scene.app.topology.plan("app"), settings=scene.app.checked)
    clock = ManualClock(now_ms=SystemClock().now_ms() + hours * _HOUR_MS)
    found = diagnose(scene.kafka, subject, clock=clock)
    return [each for each in found if each.check == check]


def run(scene: Scene) -> None:
    """A run whose records make the changelogs longer."""
    scene.send(KEYS, scene.runs)
    scene.run()


def test_expansion_is_no_matter_while_it_goes_on() -> None:
    scene = grown()
    assert findings(scene) == []
    begin_to_copy(scene, 4, records=20)
    (found,) = findings(scene)
    assert (found.level, found.text) == (
        Level.OK,
        "subtopology 0 is on its way from 2 to 4 processors",
    )
    expand(scene, 4)
    assert [each.level for each in findings(scene)] == [Level.OK]
    scene.run()
    assert findings(scene) == []


def test_copy_that_was_left_alone_is_a_warning_once_deletions_may_be_gone() -> None:
    """Changelogs keep them for a week."""
    scene = grown()
    begin_to_copy(scene, 4, records=20)
    assert [each.level for each in findings(scene, hours=83)] == [Level.OK]
    (found,) = findings(scene, hours=85)
    assert found.level is Level.WARNING
    assert "app-listed-changelog-0 has made no step for 3 days 13 h" in found.text
    assert "expand processors" in found.fix
    assert "expand abort" in found.fix


def test_expansion_of_which_a_source_is_not_copied_is_a_warning_after_several_runs() -> None:
    scene = grown()
    begin_to_copy(scene, 4, records=20)
    for level in (Level.OK, Level.OK, Level.WARNING):
        run(scene)
        (found,) = findings(scene)
        assert found.level is level
    assert "nothing is copied of app-listed-changelog-1 yet, and the last 3 runs went on" in found.text


def test_expansion_is_a_warning_when_copies_stay_behind_for_several_runs() -> None:
    scene = grown()
    scene.app.settings = {**scene.app.settings, "acceptable.recovery.lag": 5}
    begin_to_copy(scene, 4, records=20, sources=2)
    for level in (Level.OK, Level.OK, Level.WARNING):
        run(scene)
        (found,) = findings(scene)
        assert found.level is level
    assert "records behind, acceptable.recovery.lag is 5, and the last 3 runs went on" in found.text


def test_expansion_is_a_warning_when_runs_leave_it_for_another_reason() -> None:
    scene = grown()
    with mock.patch.object(takeover, "under_way", return_value=None):
        begin_to_copy(scene, 4, records=10_000, sources=2)
        for _ in range(3):
            run(scene)
        (found,) = findings(scene)
    assert found.level is Level.WARNING
    assert "the last 3 runs went on without the new ones" in found.text
    assert "the warnings of the last run" in found.fix


def test_doctor_says_that_it_may_not_see_new_processors() -> None:
    scene = grown()
    group = Permission(operation=Operation.DESCRIBE, resource=Resource.GROUP, name="app-catchup")
    denied = AccessDeniedError(what="asking", where="here", permission=group, principal="", kafka_code="X")
    with mock.patch("airflow_kstreams.batch.inspect.doctor.growing_checks.expansions", side_effect=denied):
        (found,) = (each for each in findings(scene, "permissions") if each.level is Level.UNSEEN)
    assert "processors that are on their way" in found.text
