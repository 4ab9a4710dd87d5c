"""What a protection is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario

SwitchedOff = AbstractContextManager[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """One protection.

    :param name: what it says.
    :param section: of DESIGN.md.
    :param off: switches it off.
    :param seeds: among the first so many some seed must miss it.
    :param concerns: whether it stands behind anything in a seed; the others need not be run.
    :param scene: the test that misses it where seeds do not: another protection covers what they draw.
    """

    name: str
    section: str
    off: Callable[[], SwitchedOff]
    seeds: int = 1_000
    concerns: Callable[[Scenario], bool] = lambda scenario: True
    scene: str = ""
