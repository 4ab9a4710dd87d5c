"""A whole run fails when a suite is missing, and says which, in lanes as without."""

from __future__ import annotations

import subprocess
import sys

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
    assert "no test was collected in tests/property/, tests/contract/" in said
    assert "tests/unit/," not in said
