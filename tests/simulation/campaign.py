"""Runs many seeds on all cores and adds up what happened."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from tests.simulation.faults import CELLS, TABLE_CELLS, Fault, port_calls, possible
from tests.simulation.protections import PROTECTIONS
from tests.simulation.scenario import Outcome, lands, simulate, simulate_landing
from tests.simulation.sometimes import LANDING_STATES, STATES

_CHUNK = 25
#: Protections that are switched off in this worker, for as long as it lives.
_OFF = ExitStack()


@dataclass(slots=True, kw_only=True)
class Campaign:
    """What many seeds gave.

    :ivar seeds: how many were run.
    :ivar counted: how many had a fault that happened.
    :ivar tables: whether seeds write to tables of a lakehouse alone.
    :ivar violations: by seed, each with its story.
    :ivar reached: how many seeds came to each rare state.
    """

    tables: bool = False
    seeds: int = 0
    counted: int = 0
    violations: dict[int, str] = field(default_factory=dict)
    fired: Counter[tuple[str, Fault]] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def add(self, outcome: Outcome) -> None:
        """Take one seed's outcome."""
        self.seeds += 1
        self.counted += bool(outcome.fired)
        self.fired += outcome.fired
        self.calls += outcome.calls
        self.reached.update(outcome.reached)
        if outcome.violation:
            self.violations[outcome.seed] = outcome.story

    @property
    def holes(self) -> list[str]:
        """Cells of the matrix that no seed filled."""
        cells = TABLE_CELLS if self.tables else CELLS + TABLE_CELLS
        return [f"{call} x {fault.value}" for call, fault in cells if not self.fired[(call, fault)]]

    @property
    def never(self) -> list[str]:
        """Rare states that no seed came to."""
        return [state for state in self._states if not self.reached[state]]

    @property
    def _states(self) -> tuple[str, ...]:
        return LANDING_STATES if self.tables else STATES

    def sometimes(self) -> str:
        """Return the rare states, and how often seeds came to each, per 1,000."""
        lines = [f"{'of 1,000 runs':>13}  sometimes"]
        for state in self._states:
            lines.append(f"{1_000 * self.reached[state] / max(1, self.seeds):>13.1f}  {state}")
        return "\n".join(lines)

    def matrix(self) -> str:
        """Return the port calls, the faults that happened at them, and how often."""
        width = max(map(len, port_calls()))
        faults = [fault for fault in Fault if any(fault in possible(call) for call in port_calls())]
        lines = [f"{'':<{width}} {'calls':>9} " + " ".join(f"{fault.value:>12}" for fault in faults)]
        for call in port_calls():
            cells = [str(self.fired[(call, f)]) if f in possible(call) else "-" for f in faults]
            lines.append(f"{call:<{width}} {self.calls[call]:>9} " + " ".join(f"{c:>12}" for c in cells))
        return "\n".join(lines)

    def summary(self) -> str:
        """Return one line."""
        return (
            f"{self.counted} runs with a fault ({self.seeds} seeds) in {self.seconds:.0f} s, "
            f"{sum(self.calls.values())} port calls, {sum(self.fired.values())} faults, "
            f"{len(self.violations)} violations, {len(self.holes)} holes"
        )


def run_campaign(
    *,
    runs: int,
    first_seed: int = 0,
    workers: int | None = None,
    most_violations: int = 3,
    without: Sequence[str] = (),
    tables: bool = False,
    progress: Callable[[Campaign], None] | None = None,
) -> Campaign:
    """Run seeds until so many runs had a fault, or too many violations were found.

    :param runs: how many runs must have had a fault.
    :param workers: processes; one per core unless given.
    :param without: names of protections that are switched off.
    :param tables: whether seeds write to tables of a lakehouse alone.
    :param progress: called now and then.
    """
    campaign = Campaign(tables=tables)
    simulated = _landed_some if tables else _simulate_some
    started = time.monotonic()
    count = workers or os.cpu_count() or 1
    with multiprocessing.get_context("spawn").Pool(count, _prepare, (tuple(without),)) as pool:
        for outcomes in pool.imap(simulated, _chunks(first_seed, runs)):
            for outcome in outcomes:
                campaign.add(outcome)
            campaign.seconds = time.monotonic() - started
            if progress is not None:
                progress(campaign)
            if campaign.counted >= runs or len(campaign.violations) >= most_violations:
                break
        pool.terminate()
    return campaign


def _chunks(first_seed: int, runs: int) -> Iterator[range]:
    # Some planned faults lie beyond the end of their run: not every seed counts.
    for start in range(first_seed, first_seed + 2 * runs + 10 * _CHUNK, _CHUNK):
        yield range(start, start + _CHUNK)


def _prepare(without: tuple[str, ...]) -> None:
    for name in without:
        _OFF.enter_context(PROTECTIONS[name].missing())
    gc.freeze()


def _simulate_some(seeds: range) -> list[Outcome]:
    return [_simulated(seed) for seed in seeds]


def _simulated(seed: int) -> Outcome:
    outcome = simulate(seed)
    if lands(seed):
        outcome.add(simulate_landing(seed))
    return outcome


def _landed_some(seeds: range) -> list[Outcome]:
    return [simulate_landing(seed) for seed in seeds]
