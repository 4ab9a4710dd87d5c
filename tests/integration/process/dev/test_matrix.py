"""Each corner of the table of releases, made from nothing (``dev/matrix``)."""

from __future__ import annotations

import subprocess

import pytest

from dev.installations.__main__ import NOT_RUN, PASSED
from dev.installations.corners import CORNERS
from dev.installations.environment import ROOT


@pytest.mark.prove
@pytest.mark.timeout(5_400)
@pytest.mark.parametrize("corner", [corner.name for corner in CORNERS])
def test_corner_passes_when_it_is_installed_from_nothing(corner: str) -> None:
    ended = subprocess.run(
        [str(ROOT / "dev" / "matrix"), corner], capture_output=True, text=True, check=False
    )

    print(ended.stdout)
    if ended.returncode == NOT_RUN:
        pytest.skip(ended.stdout.strip().splitlines()[-1])
    assert ended.returncode == PASSED, ended.stdout + ended.stderr
