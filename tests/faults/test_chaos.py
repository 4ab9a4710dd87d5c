"""Runs on real processes, each hit by a fault at a random moment, verified by a separate program.

In ``dev/prove`` sixty rounds, each fault five times, and 24 with tables, from seeds that are drawn anew. In
``dev/test`` one round, from a fixed seed, of each fault that no cheaper test guards. The seed is printed with
every round. Any other is ``dev/chaos``'s.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dev.chaos_rounds import log
from dev.chaos_rounds.plan import Fault
from dev.chaos_rounds.tables.plan import TableFault
from tests.conftest import TESTS

pytestmark = pytest.mark.promise("exactly-once", "one-owner")

SEED = 3987
PROOF_ROUNDS, PROOF_TABLE_ROUNDS = 60, 24
#: Faults whose harm a cheaper test brings about at a known moment of a run.
GUARDED_ELSEWHERE = {
    Fault.WORKER_KILLED: "faults/test_kill.py::"
    "test_nothing_is_lost_or_doubled_when_a_python_worker_is_killed",
    Fault.EXECUTOR_KILLED: "faults/test_executors.py::"
    "test_run_ends_exactly_when_its_executors_are_killed_again_and_again",
    Fault.DRIVER_KILLED: "faults/test_kill.py::test_nothing_is_lost_or_doubled_when_the_driver_is_killed",
    Fault.DRIVER_JVM_KILLED: "integration/airflow/test_driver_killed.py::"
    "test_airflows_retry_resumes_the_subtopology_when_its_driver_was_killed",
    Fault.BROKER_KILLED: "faults/test_broker_killed.py::"
    "test_nothing_is_lost_or_doubled_when_the_broker_is_killed_under_each_subtopology",
    Fault.STOPPED: "faults/test_stopped_tasks.py::"
    "test_zombies_change_nothing_when_they_wake_up_after_their_retry",
    Fault.SECOND_DRIVER: "integration/spark/test_run.py::"
    "test_older_driver_leaves_when_a_newer_attempt_takes_the_run_over",
    Fault.END_DROPPED: "faults/test_lost_answers.py::"
    "test_results_are_exact_when_a_request_or_its_answer_is_harmed",
    Fault.ANSWER_DELAYED: "faults/test_lost_answers.py::"
    "test_results_are_exact_when_a_request_or_its_answer_is_harmed",
    Fault.ANSWER_DROPPED: "faults/test_lost_answers.py::"
    "test_results_are_exact_when_a_request_or_its_answer_is_harmed",
}
#: A bound against hanging alone: a round takes a quarter of a minute, and what hangs is found by its own.
_SECONDS = 1_500
_PROOF_SECONDS = 5_400


@pytest.mark.timeout(_SECONDS)
def test_nothing_is_lost_or_doubled_when_a_fault_hits_a_real_run(tmp_path: Path) -> None:
    faults = [fault for fault in Fault if fault not in GUARDED_ELSEWHERE]

    outcomes = _played(
        tmp_path / "rounds.jsonl", "--seed", str(SEED), "--faults", *faults, rounds=len(faults)
    )

    assert {one.fault for one in outcomes if one.hit} == set(faults)


@pytest.mark.parametrize("fault", GUARDED_ELSEWHERE)
def test_cheaper_test_is_there_when_a_fault_has_no_round(fault: Fault) -> None:
    file, _, name = GUARDED_ELSEWHERE[fault].partition("::")

    assert f"def {name}(" in (TESTS / file).read_text()


@pytest.mark.prove
@pytest.mark.timeout(_PROOF_SECONDS)
def test_nothing_is_lost_or_doubled_in_rounds_that_were_never_played(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    seed = secrets.randbelow(2**40)
    tell(f"again: dev/chaos --seed {seed} --rounds {PROOF_ROUNDS}")

    outcomes = _played(tmp_path / "rounds.jsonl", "--seed", str(seed), rounds=PROOF_ROUNDS)

    assert {one.fault for one in outcomes if one.hit} == set(Fault)


@pytest.mark.prove
@pytest.mark.timeout(_PROOF_SECONDS)
def test_each_run_lands_once_in_tables_in_rounds_that_were_never_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = secrets.randbelow(2**40)
    with capsys.disabled():
        print(f"\nagain: dev/chaos --faults table --seed {seed} --rounds {PROOF_TABLE_ROUNDS}")

    outcomes = _played(
        tmp_path / "rounds.jsonl", "--faults", "table", "--seed", str(seed), rounds=PROOF_TABLE_ROUNDS
    )

    assert {one.fault for one in outcomes if one.hit} == set(TableFault)


def _played(file: Path, *options: str, rounds: int) -> list[log.Outcome]:
    """Play rounds in a process of their own, and return what became of them: nothing that must not happen."""
    command = [sys.executable, "-m", "dev.chaos_rounds", "--rounds", str(rounds), "--log", str(file)]
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            output, _ = process.communicate()
        finally:
            process.terminate()  # it ends what it has started
    print(output)
    outcomes = log.read(file)
    assert [violation for one in outcomes for violation in one.violations] == []
    assert process.returncode == 0
    return outcomes
