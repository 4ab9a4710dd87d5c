"""``airflow-kstreams prepare-spark`` where Java does not start; what it makes: integration/spark."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from tests.unit.cli.test_app import invoke

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


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
