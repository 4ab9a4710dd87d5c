"""The short form of ``dev/chaos``: each fault once, at a random moment of a run on real processes.

The seed is fixed and printed with every round. Any other seed, and any number of rounds, is ``dev/chaos``'s.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dev.chaos_rounds import log
from dev.chaos_rounds.plan import Fault

SEED = 3987
#: A bound against hanging alone: a round takes a quarter of a minute, and whoever hangs is told by its own.
_SECONDS = 1_500


@pytest.mark.timeout(_SECONDS)
def test_nothing_is_lost_or_doubled_when_each_fault_hits_a_real_run(tmp_path: Path) -> None:
    file = tmp_path / "rounds.jsonl"
    command = [sys.executable, "-m", "dev.chaos_rounds", "--rounds", str(len(Fault))]
    with subprocess.Popen(
        [*command, "--seed", str(SEED), "--log", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            output, _ = process.communicate()
        finally:
            process.terminate()  # it ends what it has started
    print(output)
    outcomes = log.read(file)
    assert [violation for one in outcomes for violation in one.violations] == []
    assert process.returncode == 0
    assert {one.fault for one in outcomes if one.hit} == set(Fault)
    assert {one.seed for one in outcomes} == {SEED}
