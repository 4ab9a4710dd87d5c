"""The tutorial prints what it says, from an empty folder and home, with what pip installs of the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.airflow.python_environment import build_wheel
from tests.support.fresh_python import ROOT

#: On two busy cores. The tutorial ends by itself after half an hour, with its broker and its Airflow.
_INSTALL_SECONDS, _TUTORIAL_SECONDS = 900, 2_100


@pytest.mark.prove
@pytest.mark.snippets("docs/tutorials/first-hour.md")
@pytest.mark.timeout(_INSTALL_SECONDS + _TUTORIAL_SECONDS)
def test_each_step_of_the_tutorial_prints_what_the_page_says_when_pip_installs_the_wheel(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    # What is downloaded is kept where pip keeps it for everybody; nothing else of this checkout is passed on.
    cache = os.environ.get("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))
    ours = ("PYTHON", "VIRTUAL_ENV", "AIRFLOW", "SPARK", "PYSPARK", "KSTREAMS_DEV_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environment |= {"HOME": str(home), "PIP_CACHE_DIR": cache}
    python = str(tmp_path / "v" / "bin" / "python")
    wheel = build_wheel(tmp_path)

    _run([sys.executable, "-m", "venv", str(tmp_path / "v")], tmp_path, environment, seconds=120)
    install = [python, "-m", "pip", "install", "--quiet", f"{wheel}[all]"]
    _run(install, tmp_path, environment, seconds=_INSTALL_SECONDS)
    tutorial = [python, str(ROOT / "docs" / "tutorials" / "run_tutorial.py")]
    _run(tutorial, tmp_path, environment, seconds=_TUTORIAL_SECONDS)


def _run(command: list[str], folder: Path, environment: Mapping[str, str], *, seconds: int) -> None:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-6000:]}{done.stderr[-3000:]}"
