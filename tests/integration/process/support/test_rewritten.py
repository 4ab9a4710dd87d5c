"""Lanes share the rewriting of assertions: ``tests/support/rewritten.py`` in a pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import TESTS

_NAMES = ("a", "b", "c")


def test_each_file_is_rewritten_once_when_lanes_start(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    for name in _NAMES:
        text = f"def test_it():\n    {name} = 1\n    assert {name} == 2\n"
        (tmp_path / f"test_{name}.py").write_text(text, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "tests.support.rewritten", "-n", "2", "."],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(TESTS.parent),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONDONTWRITEBYTECODE": "1",  # of pytest itself, so that what is kept is the plugin's
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert "3 failed" in done.stdout, done.stdout + done.stderr
    # A rewritten assertion says what it compared.
    assert done.stdout.count("E       assert 1 == 2") == len(_NAMES)
    kept = sorted(file.name.partition(".")[0] for file in (tmp_path / "__pycache__").iterdir())
    assert kept == [f"test_{name}" for name in _NAMES]
