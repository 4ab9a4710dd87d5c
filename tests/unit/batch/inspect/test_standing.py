"""What ``status`` says of a run on which no driver works: why, since when, and how it goes on."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from typer.testing import CliRunner

from airflow_kstreams.batch.inspect.standing import earlier_attempts
from airflow_kstreams.batch.inspect.status import RunStatus, read_status
from airflow_kstreams.streams.errors import ConfigError, TopologyError
from tests.support.kafka.attempts_scene import AttemptsScene, copying
from tests.support.kafka.ledger_history import APP

pytestmark = pytest.mark.promise("failures-are-kept")
MINUTES = 60.0


def look(scene: AttemptsScene) -> RunStatus:
    return read_status(scene.kafka, APP, clock=scene.kafka.clock)


def said(scene: AttemptsScene) -> str:
    standing = look(scene).standing
    return "" if standing is None else standing.text


def test_failed_run_is_never_running_and_names_cause_remedy_and_command() -> None:
    scene = AttemptsScene()
    scene.fail(1, ConfigError("in-0@7 holds no number", fix="mend the producer"))
    scene.kafka.clock.sleep(12 * MINUTES)
    standing = look(scene).standing
    assert standing is not None
    assert standing.text == "failed 12 min ago, no driver works on it: in-0@7 holds no number [KS-APP-001]"
    assert standing.failure is not None
    assert standing.failure.remedy == "mend the producer"
    assert standing.command.startswith("airflow-kstreams run ")
    assert standing.command.endswith(f"--application-id {APP} --run-id r")
    scene.fail(2, ConfigError("x"))
    assert earlier_attempts(look(scene).histories.of("r")) == "1 failed"
    scene.finish(3)
    assert look(scene).standing is None


def test_run_of_a_dag_goes_on_in_airflow() -> None:
    scene = AttemptsScene()
    scene.fail(1, ConfigError("x"), dag_id="orders hourly")
    standing = look(scene).standing
    assert standing is not None
    assert standing.command == "airflow dags clear 'orders hourly' --run-id r --only-failed"


def test_driver_is_running_as_long_as_it_renews_its_lease() -> None:
    scene = AttemptsScene()
    driver = scene.coordinator()
    scene.begin(driver, 1)
    scene.kafka.clock.sleep(20)
    assert said(scene) == "running: try 1, begun 20 s ago"
    scene.kafka.clock.sleep(10 * MINUTES)
    assert said(scene).startswith("went silent 10 min ago, no driver works on it: try 1 has not renewed")
    driver.lease.renew()
    assert said(scene) == "running: try 1, begun 10 min ago"
    driver.close()
    assert said(scene).startswith("its driver has done its part just now")


def test_slice_without_a_driver_waits() -> None:
    scene = AttemptsScene()
    scene.begin(scene.coordinator(), 0, hold_lease=False)
    scene.kafka.clock.sleep(3_600 * 3)
    assert said(scene) == "begun 3 h ago, no driver works on it yet"


def test_begin_that_failed_is_told_until_a_run_finishes() -> None:
    scene = AttemptsScene()
    coordinator = scene.coordinator()
    with pytest.raises(TopologyError):
        scene.begin(coordinator, 1, topology=copying("absent"))
    coordinator.close()
    scene.kafka.clock.sleep(50 * 3_600)
    assert said(scene).startswith("failed 2 days ago, no driver works on it: ")
    assert "absent" in said(scene)
    scene.finish(run_id="other")
    assert said(scene) == ""


def test_command_prints_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_kstreams.batch.inspect import status
    from airflow_kstreams.cli.app import app

    scene = AttemptsScene()
    scene.fail(1, ConfigError("in-0@7 holds no number", fix="mend the producer"))
    found = look(scene)
    found = dataclasses.replace(found, histories=msgspec.structs.replace(found.histories, unreadable=2))
    monkeypatch.setattr(status, "read_status", lambda *_, **__: found)
    given = ["status", "--bootstrap-server", "none:9092", "--application-id", APP]
    shown = " ".join(CliRunner().invoke(app, given).output.split())
    assert "state failed just now, no driver works on it: in-0@7 holds no number" in shown
    assert "what to do mend the producer" in shown
    assert "could not be read 2x" in shown
    as_json = CliRunner().invoke(app, [*given, "--json"]).output
    assert '"cause": "in-0@7 holds no number"' in as_json.replace('":"', '": "')
