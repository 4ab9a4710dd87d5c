"""This engine beside its peers: the same reads, the same outputs, and as fast beside them as it was.

Part of the long proof: a ratio needs the machine for itself, and ``dev/test`` fills it with lanes. Nothing is
timed against the clock: both sides run in turn, and the median of the rounds' ratios is compared.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from dev.bounded_reads.page import READERS
from tests.conftest import TESTS

pytestmark = [pytest.mark.prove, pytest.mark.timeout(3_600)]


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=TESTS.parent,
        check=False,
        capture_output=True,
        text=True,
    )


def test_engine_keeps_up_with_the_hand_written_loop_as_it_did() -> None:
    done = run("dev.benchmarks", "--guard")

    said = done.stdout.splitlines()
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert [line.rpartition(": ")[2] for line in said if "stored" in line] == ["good"] * 2


@pytest.mark.parametrize(
    "workload",
    ["stateless", "sum-50k", "join", "empty", "padded-100-1-zstd", "table-append", "table-upsert"],
)
def test_peers_write_the_same_when_they_process_the_same(workload: str, tell: Callable[[str], None]) -> None:
    done = run("dev.benchmarks", "--workload", workload, "--records", "1000000", "--rounds", "1")

    tell(done.stdout)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "FAILED" not in done.stdout


def test_every_bounded_read_is_right_where_the_peers_are_asked_too(
    tell: Callable[[str], None],
) -> None:
    done = run("dev.bounded_reads", "--readers", *READERS)

    tell(done.stdout)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
