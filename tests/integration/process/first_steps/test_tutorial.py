"""The tutorial prints what it says, from an empty folder and home."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.fresh_python import ROOT


@pytest.mark.prove
def test_each_step_of_the_tutorial_prints_what_the_page_says() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs/run_tutorial.py")],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
