"""``airflow-kstreams prepare-spark`` where it cannot do its work; what it makes: integration/spark."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests.unit.cli.test_app import invoke

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_archive_is_not_tried_when_it_could_not_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    result = invoke("prepare-spark", "--output", str(file / "spark.jsa"))

    assert result.exit_code == 1
    assert "spark.jsa' cannot be written: " in result.stderr
    assert "KSTREAMS_SPARK_CLASSES" in result.stderr


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
