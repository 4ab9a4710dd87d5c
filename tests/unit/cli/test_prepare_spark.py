"""``airflow-kstreams prepare-spark`` where it cannot do its work; what it makes: integration/spark."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from airflow_kstreams.launch.jvm_options import ARCHIVE_VARIABLE, quick_start_options
from tests.unit.cli.test_app import invoke


def made(command: list[str], env: dict[str, str], **_: object) -> subprocess.CompletedProcess[str]:
    """End as a driver does that wrote its archive."""
    Path(env[ARCHIVE_VARIABLE]).touch()
    return subprocess.CompletedProcess(command, 0, "", "")


@pytest.mark.remedy("class_archive._unwritable")
def test_archive_is_not_tried_when_it_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()

    result = invoke("prepare-spark", "--output", str(file / "spark.jsa"))

    assert result.exit_code == 1
    assert "spark.jsa' cannot be written: " in result.stderr
    assert f"by --output, and in {ARCHIVE_VARIABLE}" in " ".join(result.stderr.split())
    monkeypatch.setattr(subprocess, "run", made)
    assert invoke("prepare-spark", "--output", str(tmp_path / "spark.jsa")).exit_code == 0
    started = quick_start_options({ARCHIVE_VARIABLE: str(tmp_path / "spark.jsa")})
    assert str(tmp_path / "spark.jsa") in " ".join(started.values())


@pytest.mark.remedy("class_archive._run_driver")
def test_archive_is_refused_when_spark_ended_well_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 0, "", "one line\n\nthe last line\n\n")

    monkeypatch.setattr(subprocess, "run", ended)

    result = invoke("prepare-spark", "--output", str(tmp_path / "spark.jsa"))

    assert result.exit_code == 1
    assert "the last line" in result.stderr
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(subprocess, "run", made)
    assert invoke("prepare-spark", "--output", str(tmp_path / "spark.jsa")).exit_code == 0
    assert (tmp_path / "spark.jsa").exists()
