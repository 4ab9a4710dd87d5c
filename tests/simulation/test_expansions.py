"""Seeds of an application that grows beside its runs (``expansions.py``)."""

from __future__ import annotations

import pytest

from tests.simulation.expansions import STATES, simulate_expansions

pytestmark = pytest.mark.promise(
    "keys-follow-to-new-processors", "catch-ups-go-on-where-they-were", "expansions-can-be-given-up"
)
SEEDS = 10
#: Seeds that come to where a mistake in the product shows, by the mistake.
TELLING = {
    "copied entries are dated now": 0,
    "a stale copy goes on": 6,
    "an abort writes no proof": 11,
    "leftovers of a broken abort stay": 14,
}


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(2_000, marks=pytest.mark.prove)])
def test_keys_have_their_state_however_an_application_grows_beside_its_runs(seeds: int) -> None:
    reached: set[str] = set()
    for seed in range(seeds):
        outcome = simulate_expansions(seed)
        assert not outcome.violation, f"seed {seed}: {outcome.violation}"
        reached |= outcome.reached
    assert not {*STATES} - reached


@pytest.mark.parametrize("seed", TELLING.values(), ids=[name.replace(" ", "-") for name in TELLING])
def test_seed_comes_to_where_a_mistake_shows(seed: int) -> None:
    assert not simulate_expansions(seed).violation


def test_seed_gives_the_same_run_twice() -> None:
    first, second = simulate_expansions(3), simulate_expansions(3)
    assert (first.fired, first.reached, first.world_seconds) == (
        second.fired,
        second.reached,
        second.world_seconds,
    )
