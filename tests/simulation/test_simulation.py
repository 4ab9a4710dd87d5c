"""Thousands of seeded runs, each with a fault that happened, judged by checkers apart from the engine."""

from __future__ import annotations

import hashlib
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation.applications import APPLICATIONS
from tests.simulation.called_applications import INSTEAD, INSTEAD_AGAIN
from tests.simulation.campaign import Campaign, run_campaign
from tests.simulation.faults import CELLS, CYCLE, TABLE_CELLS, UNCALLED, port_calls
from tests.simulation.landing_applications import LANDINGS
from tests.simulation.scenario import landing_of, scenario_of, simulate, simulate_landing
from tests.simulation.table_applications import TABLES

pytestmark = pytest.mark.promise(
    "exactly-once",
    "every-run-ends",
    "parked-records-come-first",
    "calls-change-no-result",
    "calls-of-a-key-in-order",
    "calls-keep-their-key",
    "retries-keep-order",
    "parked-records-end-no-run-late",
    "rows-land-once",
)

#: In ``dev/test``.
RUNS = 250
#: In ``dev/prove``, from a seed that is drawn anew: the matrix of calls and faults has no hole then.
PROOF_RUNS = 20_000
_ROOT = Path(__file__).parents[2]


def _shown(tell: Callable[[str], None], *, runs: int, first_seed: int = 0) -> Campaign:
    """Run a campaign, and show how far it is, and its matrix."""
    shown = time.monotonic()

    def progress(campaign: Campaign) -> None:
        nonlocal shown
        if time.monotonic() - shown > 20:
            shown = time.monotonic()
            tell(campaign.summary())

    campaign = run_campaign(runs=runs, first_seed=first_seed, progress=progress)
    tell(f"{campaign.matrix()}\n{campaign.sometimes()}\n{campaign.summary()}; {os.cpu_count()} cores")
    return campaign


def _refuse_violations(campaign: Campaign) -> None:
    assert not campaign.violations, "\n".join(story for _, story in sorted(campaign.violations.items()))


@pytest.mark.timeout(1_500)
def test_nothing_is_lost_or_doubled_and_every_run_ends_when_anything_fails(
    tell: Callable[[str], None],
) -> None:
    campaign = _shown(tell, runs=RUNS)

    _refuse_violations(campaign)
    assert campaign.counted >= RUNS
    uncalled = {call for call in port_calls() if not campaign.calls[call]}
    assert uncalled == UNCALLED


@pytest.mark.prove
@pytest.mark.timeout(7_200)  # half an hour of a core, which lanes share
def test_nothing_is_lost_or_doubled_in_seeds_that_were_never_run(tell: Callable[[str], None]) -> None:
    first_seed = secrets.randbelow(2**40)
    tell(f"again: dev/simulate --from-seed {first_seed} --seeds {PROOF_RUNS}")

    campaign = _shown(tell, runs=PROOF_RUNS, first_seed=first_seed)

    _refuse_violations(campaign)
    assert campaign.counted >= PROOF_RUNS
    assert not campaign.holes, "no seed made these happen: " + ", ".join(campaign.holes)
    assert not campaign.never, "no seed came to these: " + "; ".join(campaign.never)


def test_every_scenario_has_two_subtopologies_and_two_partitions_or_more() -> None:
    every = [*APPLICATIONS.values(), *TABLES, *LANDINGS]
    assert all(len(application.subtopologies) >= 2 for application in every)
    for seed in range(500):
        scenario = scenario_of(seed)
        assert min(scenario.partitions.values()) >= 2
        assert scenario.plan
    drawn = {scenario_of(seed).application.name for seed in range(500)}
    others = [*INSTEAD.values(), *INSTEAD_AGAIN.values(), *TABLES]
    assert drawn == {*APPLICATIONS, *(application.name for application in others)}
    assert {landing_of(seed).application for seed in range(50)} == set(LANDINGS)
    assert {
        (landing_of(seed).plan[0].call, landing_of(seed).plan[0].fault) for seed in range(len(TABLE_CELLS))
    } == set(TABLE_CELLS)
    assert {
        (scenario_of(seed).plan[0].call, scenario_of(seed).plan[0].fault) for seed in range(len(CYCLE))
    } == set(CELLS)


def traces(seeds: range) -> str:
    """A hash over everything that happens in some seeds."""
    digest = hashlib.sha256()
    for seed in seeds:
        for simulated in (simulate, simulate_landing) if seed % 4 == 0 else (simulate,):
            outcome = simulated(seed, trace=lambda line: digest.update(line.encode()))
            digest.update(outcome.fingerprint.encode())
    return digest.hexdigest()


def test_seed_gives_the_same_run_in_any_process() -> None:
    program = "from tests.simulation.test_simulation import traces; print(traces(range(4)))"
    found = {
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program],
            cwd=_ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(_ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(found) == 1
    assert found == {traces(range(4)) + "\n"}
