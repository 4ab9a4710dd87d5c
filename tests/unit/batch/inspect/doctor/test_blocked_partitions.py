"""The doctor looks at gained partitions that wait for several runs."""

from __future__ import annotations

import pytest

from airflow_kstreams.batch.inspect.doctor import Finding, Level, Subject, diagnose
from airflow_kstreams.streams.partitioning import partition_of_key
from tests.unit.batch.growing.test_partition_growth import KEYS, Scene

pytestmark = pytest.mark.promise("blocked-partitions-are-said")


def findings(scene: Scene) -> list[Finding]:
    subject = Subject(plan=scene.app.topology.plan("app"), settings=scene.app.checked)
    found = diagnose(scene.kafka, subject, clock=scene.kafka.clock)
    return [each for each in found if each.check == "blocked partitions"]


def run(scene: Scene, number: int) -> None:
    scene.app.run(f"run-{number}", interval_ms=(number * 10, number * 10 + 10))


def test_waiting_is_a_warning_when_it_lasts_for_several_runs() -> None:
    scene = Scene(2, settings={"autostop.at": "interval_end"})
    held, flows, moved = "k3", "k0", "k8"
    assert [partition_of_key(key.encode(), 2, 3) for key in (held, flows, moved)] == [0, 1, 2]
    scene.send(KEYS, 0, timestamp_ms=5)
    run(scene, 0)
    assert findings(scene) == []
    scene.send([held], 1, timestamp_ms=25)
    scene.send([held], 2, timestamp_ms=55)
    scene.grow(3)
    scene.send([moved], 3, timestamp_ms=15)
    for number, level in enumerate([Level.OK, Level.OK, Level.WARNING, Level.WARNING], start=1):
        scene.send([flows], 3, timestamp_ms=number * 10 + 5)
        run(scene, number)
        (found,) = findings(scene)
        assert found.level is level, number
        assert "in-2 waits for in-0 (at " in found.text
    assert "the last 3 runs have not come past that" in found.text
    assert "autostop.at=eol" in found.fix
    run(scene, 5)
    assert findings(scene) == []
    assert scene.recorded.boundaries


def test_waiting_is_no_matter_when_the_next_run_reads_what_waited() -> None:
    scene = Scene(2)
    scene.send(KEYS, 0)
    scene.run()
    scene.send(KEYS, 1)
    scene.grow(3)
    scene.send(KEYS, 2)
    scene.run()
    assert findings(scene) == []
    assert scene.recorded.boundaries
