"""What the doctor finds of an application's runs before the code that comes next is deployed."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.batch.inspect.doctor import Finding, Level, Subject, diagnose
from airflow_kstreams.streams import Topology
from airflow_kstreams.streams.ports import ReaderPort
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.reset_scene import ResetScene
from tests.unit.batch.run.test_unread_records import APP, Scene, changed, new_code, old_code


def _found(
    kafka: InMemoryKafka,
    topology: Topology,
    check: str,
    application_id: str = APP,
    *,
    first_run: bool = False,
) -> list[Finding]:
    settings = ApplicationSettings.parse(application_id, {})
    subject = Subject(plan=topology.plan(application_id), settings=settings, first_run=first_run)
    return [found for found in diagnose(kafka, subject, clock=kafka.clock) if found.check == check]


@pytest.mark.promise("misspelt-applications-are-refused")
@pytest.mark.remedy("run_checks._known")
def test_unknown_id_is_an_error_unless_its_first_run_is_to_come() -> None:
    scene = ResetScene()
    scene.send("a")
    scene.run("one")

    assert not _found(scene.kafka, scene.topology, "application", "app")
    (misspelt,) = _found(scene.kafka, scene.topology, "application", "apq")
    assert (misspelt.level, misspelt.text) == (
        Level.ERROR,
        "no run of application 'apq' has begun on this cluster",
    )
    assert misspelt.fix.startswith("correct --application-id (did you mean 'app'?) or")
    (new,) = _found(scene.kafka, scene.topology, "application", "apq", first_run=True)
    assert (new.level, new.fix) == (Level.OK, "")


def test_looks_open_as_few_readers_after_many_runs_as_after_one(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = ResetScene()
    opened: list[str] = []
    reader = InMemoryKafka.reader

    def counted(kafka: InMemoryKafka, **options: Any) -> ReaderPort:
        opened.append(options["group_id"])
        return reader(kafka, **options)

    monkeypatch.setattr(InMemoryKafka, "reader", counted)
    counts = []
    for runs in (1, 30):
        for number in range(runs):
            scene.run(f"{runs}-{number}")
        opened.clear()
        assert _found(scene.kafka, scene.topology, "offsets retention", "app")
        counts.append(len(opened))
    assert counts[0] == counts[1]


UNREAD = "records between subtopologies"


@changed
@pytest.mark.promise("records-between-are-not-left-behind")
def test_records_that_the_new_code_would_leave_are_found_before_it_is_deployed(
    code: Topology, left: set[str]
) -> None:
    scene = Scene()
    scene.send()
    scene.half_a_run()
    (finding,) = _found(scene.kafka, code, UNREAD)
    refused = scene.refused(code)

    assert (finding.level, finding.text, finding.fix) == (Level.ERROR, refused.cause, refused.fix)
    assert all(f"5 in {topic}" in finding.text for topic in left)
    assert [found.level for found in _found(scene.kafka, old_code(), UNREAD)] == [Level.OK]
    scene.give_up(refused)
    assert [found.level for found in _found(scene.kafka, code, UNREAD)] == [Level.OK]


@pytest.mark.promise("records-between-are-not-left-behind")
def test_records_that_a_continuous_run_is_to_read_are_a_warning() -> None:
    scene = Scene()
    scene.send()
    scene.half_a_run()
    running = scene.app(old_code()).run_continuously("on")
    assert [found.level for found in _found(scene.kafka, new_code(), UNREAD)] == [Level.WARNING]
    running.rounds(20)
    assert [found.level for found in _found(scene.kafka, new_code(), UNREAD)] == [Level.OK]
    running.stop()
