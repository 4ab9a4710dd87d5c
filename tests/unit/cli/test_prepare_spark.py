"""``airflow-kstreams prepare-spark`` where it cannot do its work; what it makes: integration/spark."""

from __future__ import annotations

import stat
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


def test_archive_is_refused_when_sparks_launcher_would_split_its_name(tmp_path: Path) -> None:
    result = invoke("prepare-spark", "--output", str(tmp_path / "two words.jsa"))

    assert result.exit_code == 1
    assert "splits its options at spaces -- what to do: name a file without spaces" in result.stderr


def test_old_archive_stays_and_nothing_else_is_left_when_java_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary = tmp_path / "java" / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text("#!/bin/sh\necho no java today >&2\nexit 3\n", encoding="utf-8")
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("JAVA_HOME", str(binary.parents[1]))
    old = tmp_path / "kept" / "spark.jsa"
    old.parent.mkdir()
    old.write_text("old", encoding="utf-8")

    result = invoke("prepare-spark", "--output", str(old))

    assert result.exit_code == 1
    assert "Spark ended without an archive of its classes" in result.stderr
    assert "Java 17" in result.stderr
    assert [(path.name, path.read_text(encoding="utf-8")) for path in old.parent.iterdir()] == [
        ("spark.jsa", "old")
    ]


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
