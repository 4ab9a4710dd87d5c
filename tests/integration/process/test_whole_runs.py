"""A whole run fails when a suite is missing, and says which, in lanes as without."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import TESTS


@pytest.mark.parametrize(
    "lanes", [["-n", "2", "--no-loadscope-reorder"], ["-p", "no:xdist"]], ids=["lanes", "alone"]
)
def test_missing_suites_are_named_when_a_whole_run_lacks_them(lanes: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--all-suites", *lanes, "tests/unit/test_links.py"],
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )

    said = done.stdout + done.stderr
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, said
    assert "no test was collected in tests/property/, tests/typing/, tests/contract/" in said
    assert "tests/unit/," not in said


def test_only_marked_tests_are_the_long_proof_when_the_checkout_is_called_prove(tmp_path: Path) -> None:
    checkout = tmp_path / "prove"
    for name in ("tests/unit/test_links.py", "tests/conftest.py", "tests/support", "dev", "pyproject.toml"):
        target = checkout / name
        target.parent.mkdir(parents=True, exist_ok=True)
        source = TESTS.parent / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--prove", "--collect-only", "-q", "tests/unit/test_links.py"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stdout + done.stderr
