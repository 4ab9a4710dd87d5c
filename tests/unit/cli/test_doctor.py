"""``airflow-kstreams doctor`` without a broker: what the command line itself refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_kstreams.batch.inspect.diagnosis import Diagnosis
from airflow_kstreams.batch.inspect.doctor import Subject
from airflow_kstreams.batch.inspect.doctor.looks import side_by_side
from airflow_kstreams.inspect.surroundings import Surroundings, examination
from airflow_kstreams.launch import installation
from tests.support.command_line import json_of
from tests.unit.cli.test_app import FLIGHTS, invoke

#: Looks that start no process and open no connection.
LIGHT = ("client settings", "releases")


def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command look at what surrounds an application, and at no cluster."""

    def surroundings(_: object, subject: Subject, around: Surroundings) -> Diagnosis:
        looks = [one for one in examination._looks(subject, around) if one.check in LIGHT]
        found = side_by_side(looks, seconds=around.seconds)
        return Diagnosis(application_id=subject.plan.application_id, findings=tuple(found))

    monkeypatch.setattr("airflow_kstreams.inspect.surroundings.examine", surroundings)


pytestmark = pytest.mark.promise("doctor-finds-settings")


@pytest.mark.parametrize("setting", ["commit.interval.ms", "=5"])
def test_setting_is_refused_when_it_is_no_pair(setting: str) -> None:
    result = invoke("doctor", FLIGHTS, "--application-id", "app", "--setting", setting)
    assert result.exit_code == 2
    assert "is not NAME=VALUE" in result.stderr


@pytest.mark.error_example("KS-APP-001")
def test_error_is_one_line_when_a_setting_is_unknown() -> None:
    result = invoke("doctor", FLIGHTS, "--application-id", "app", "--setting", "commit.intervall.ms=5")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: unknown setting 'commit.intervall.ms'")
    assert result.stderr.count("\n") == 1


def test_error_is_one_line_when_nobody_says_where_the_broker_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke("doctor", FLIGHTS, "--application-id", "app")
    assert result.exit_code == 1
    assert "bootstrap.servers" in result.stderr


@pytest.mark.promise("weak-settings-are-found")
def test_client_settings_are_findings_when_they_weaken_a_connection(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    alone(monkeypatch)
    file = tmp_path / "client.properties"
    file.write_text(
        "bootstrap.servers=kafka:1\nsecurity.protocol=SSL\nenable.ssl.certificate.verification=false\n"
    )
    weak = invoke("doctor", FLIGHTS, "--application-id", "app", "--config-file", str(file))
    assert weak.exit_code == 0
    assert "warning, client settings (weak-client-setting): what to do: remove the setting" in " ".join(
        weak.stdout.split()
    )
    found = json_of(
        invoke("doctor", FLIGHTS, "--application-id", "app", "--config-file", str(file), "--json"), "doctor"
    )
    levels = [finding["level"] for finding in found["findings"] if finding["check"] == "client settings"]
    assert levels == ["warning"]
    file.write_text("bootstrap.servers=kafka:1\nsecurity.protocol=SSL\n")
    assert (
        "what to do"
        not in invoke("doctor", FLIGHTS, "--application-id", "app", "--config-file", str(file)).stdout
    )


@pytest.mark.remedy("machine_checks.look_at_releases")
def test_releases_are_findings_when_they_lie_outside_of_what_is_proven(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def here(**versions: str) -> list[tuple[str, str]]:
        monkeypatch.setattr(installation, "version_of", lambda name: versions.get(name.replace("-", "_")))
        told = invoke("doctor", FLIGHTS, "--application-id", "app", "--config-file", str(file), "--json")
        found = json_of(told, "doctor")["findings"]
        return [(one["level"], one["text"]) for one in found if one["check"] == "releases"]

    alone(monkeypatch)
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=kafka:1\n")
    ((level, text),) = here(pyspark="4.3.0")
    assert level == "warning"
    assert text.startswith("pyspark 4.3.0 is installed, and this package is proven with ")
    ((level, text),) = here(pyspark="4.2.0")
    assert (level, text.rpartition(", ")[2]) == ("ok", "pyspark 4.2.0")
