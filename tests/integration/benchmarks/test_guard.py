"""The engine is no slower beside the hand-written loop than ``docs/benchmarks.json`` says.

Nothing is timed against the clock: both sides run in turn, and the median of the rounds' ratios is compared.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import TESTS


@pytest.mark.timeout(600)
def test_engine_keeps_up_with_the_hand_written_loop_as_it_did() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dev.benchmarks", "--guard"],
        cwd=TESTS.parent,
        check=False,
        capture_output=True,
        text=True,
    )

    said = done.stdout.splitlines()
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert [line.rpartition(": ")[2] for line in said if "stored" in line] == ["good"] * 2
