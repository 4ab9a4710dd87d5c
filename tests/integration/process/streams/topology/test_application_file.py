"""An application file that another process builds from its text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from airflow_kstreams.streams.topology.application_file import ApplicationFile
from tests.support.fresh_python import ROOT
from tests.support.topology.application_files import SHIPPED, load, write_application


@pytest.fixture
def application(tmp_path: Path) -> ModuleType:
    return load(write_application(tmp_path, SHIPPED, "shipped_application.py"))


def test_hash_is_equal_when_another_process_builds_from_the_text(
    application: ModuleType, tmp_path: Path
) -> None:
    source = ApplicationFile.of(application.topology)
    here = source.topology().topology_hash()
    script = tmp_path / "other.py"
    script.write_text(
        "from airflow_kstreams.streams.topology.application_file import ApplicationFile\n"
        f"source = ApplicationFile(filename='/nowhere/shipped_application.py', text={source.text!r}, "
        f"function={source.function!r})\nprint(source.topology().topology_hash())\n"
    )
    other = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert other.stdout.strip() == here
