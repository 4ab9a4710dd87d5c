"""``airflow-kstreams doctor`` without a broker: what the command line itself refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_kstreams.batch.inspect.doctor import Finding
from airflow_kstreams.launch import installation
from tests.support.command_line import json_of
from tests.unit.cli.test_app import FLIGHTS, invoke

pytestmark = pytest.mark.promise("doctor-finds-settings")


@pytest.mark.parametrize("setting", ["commit.interval.ms", "=5"])
def test_setting_is_refused_when_it_is_no_pair(setting: str) -> None:
    result = invoke("doctor", FLIGHTS, "--application-id", "app", "--setting", setting)
    assert result.exit_code == 2
    assert "is not NAME=VALUE" in result.stderr


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
    def no_other(*_: object) -> list[Finding]:
        return []

    monkeypatch.setattr("airflow_kstreams.batch.inspect.doctor.diagnose", no_other)
    file = tmp_path / "client.properties"
    file.write_text(
        "bootstrap.servers=kafka:1\nsecurity.protocol=SSL\nenable.ssl.certificate.verification=false\n"
    )
    weak = invoke("doctor", FLIGHTS, "--application-id", "app", "--config-file", str(file))
    assert weak.exit_code == 0
    assert "warning, client settings: what to do: remove the setting" in " ".join(weak.stdout.split())
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


@pytest.mark.remedy("doctor._of_releases")
def test_releases_are_findings_when_they_lie_outside_of_what_is_proven(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_other(*_: object) -> list[Finding]:
        return []

    def here(**versions: str) -> list[tuple[str, str]]:
        monkeypatch.setattr(installation, "version_of", lambda name: versions.get(name.replace("-", "_")))
        told = invoke("doctor", FLIGHTS, "--application-id", "app", "--config-file", str(file), "--json")
        found = json_of(told, "doctor")["findings"]
        return [(one["level"], one["text"]) for one in found if one["check"] == "releases"]

    monkeypatch.setattr("airflow_kstreams.batch.inspect.doctor.diagnose", no_other)
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=kafka:1\n")
    ((level, text),) = here(pyspark="4.3.0")
    assert level == "warning"
    assert text.startswith("pyspark 4.3.0 is installed, and this package is proven with ")
    ((level, text),) = here(pyspark="4.2.0")
    assert (level, text.rpartition(", ")[2]) == ("ok", "pyspark 4.2.0")
