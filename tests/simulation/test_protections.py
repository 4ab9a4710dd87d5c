"""Every protection is needed, and the simulation notices when it is missing."""

from __future__ import annotations

import pytest

from tests.simulation.protections import PROTECTIONS
from tests.simulation.scenario import simulate

SEEDS = 1_000


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PROTECTIONS)
def test_missing_protection_is_noticed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with PROTECTIONS[name].off():
        outcome = next((found for seed in range(SEEDS) if (found := simulate(seed)).violation), None)
    assert outcome is not None, f"{SEEDS} seeds without {name!r}, and nobody noticed"
    with capsys.disabled():
        print(f"\nwithout {name!r}: seed {outcome.seed}: {outcome.violation.splitlines()[0][:150]}", end="")
    assert not simulate(outcome.seed).violation, "with the protection the same seed is fine"


def test_protections_are_twelve_or_more() -> None:
    assert len(PROTECTIONS) >= 12
