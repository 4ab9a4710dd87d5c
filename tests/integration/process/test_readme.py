"""The test that the README shows, run as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fresh_python import ROOT
from tests.support.topology.examples import write_project


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder that holds the README's files."""
    return write_project((ROOT / "README.md").read_text(encoding="utf-8"), tmp_path)


def test_test_passes_when_copied_from_the_readme(project: Path) -> None:
    path = os.pathsep.join([str(ROOT), str(project / "spark_apps")])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "1 passed" in done.stdout
