"""Every protection is needed, and the simulation notices when it is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation.protections import PROTECTIONS
from tests.simulation.scenario import landing_of, scenario_of, simulate, simulate_landing


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name, found in PROTECTIONS.items() if not found.scene])
def test_missing_protection_is_noticed(name: str, tell: Callable[[str], None]) -> None:
    protection = PROTECTIONS[name]
    tried = range(protection.first, protection.first + protection.seeds)
    draw, simulated = (landing_of, simulate_landing) if protection.lands else (scenario_of, simulate)
    seeds = (seed for seed in tried if protection.concerns(draw(seed)))
    with protection.missing():
        outcome = next((found for seed in seeds if (found := simulated(seed)).violation), None)
    assert outcome is not None, f"{protection.seeds} seeds without {name!r}, and nobody noticed"
    tell(f"without {name!r}: seed {outcome.seed}: {outcome.violation.splitlines()[0][:150]}")
    assert not simulated(outcome.seed).violation, "with the protection the same seed is fine"


def test_protections_are_thirty_or_more() -> None:
    assert len(PROTECTIONS) >= 30


def test_scene_is_there_when_no_seed_needs_a_protection() -> None:
    scenes = {found.scene for found in PROTECTIONS.values() if found.scene}
    assert scenes
    assert all((Path(__file__).parent / scene).is_file() for scene in scenes)
