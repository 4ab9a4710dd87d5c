"""What a protection is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest import mock

from airflow_kstreams.batch.invariants import TaskInvariants

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario

SwitchedOff = AbstractContextManager[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """One protection.

    :param name: what it says.
    :param section: of DESIGN.md.
    :param off: switches it off.
    :param first: the seed to begin with: where seeds that miss it are rare or wait long, one that did soon.
    :param seeds: among so many some seed must miss it.
    :param concerns: whether it stands behind anything in a seed; the others need not be run.
    :param lands: whether it guards tables of a lakehouse, which seeds write to in a scenario of their own.
    :param scene: the test that misses it where seeds do not: another protection covers what they draw.
    """

    name: str
    section: str
    off: Callable[[], SwitchedOff]
    first: int = 0
    seeds: int = 1_000
    concerns: Callable[[Scenario], bool] = lambda scenario: True
    lands: bool = False
    scene: str = ""

    @contextmanager
    def missing(self) -> Iterator[None]:
        """Switch it off, and the product's checks of commits, which would notice before the simulation."""
        with (
            self.off(),
            mock.patch.multiple(
                TaskInvariants,
                check=_nothing,
                logged=_nothing,
                delivered=_nothing,
                _stops_are_frozen=_nothing,
            ),
            mock.patch("airflow_kstreams.batch.run.coordinator.check_begin", _nothing),
            mock.patch("airflow_kstreams.batch.run.run_finish.check_finish", _nothing),
        ):
            yield


def _nothing(*_: Any, **__: Any) -> None:
    """Check nothing."""
