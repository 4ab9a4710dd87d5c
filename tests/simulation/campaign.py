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

from tests.simulation.faults import CELLS, Fault, port_calls, possible
from tests.simulation.protections import PROTECTIONS
from tests.simulation.scenario import Outcome, simulate
from tests.simulation.sometimes import STATES

_CHUNK = 25
#: Protections that are switched off in this worker, for as long as it lives.
_OFF = ExitStack()


@dataclass(slots=True, kw_only=True)
class Campaign:
    """What many seeds gave.

    :ivar seeds: how many were run.
    :ivar counted: how many had a fault that happened.
    :ivar violations: by seed.
    :ivar reached: how many seeds came to each rare state.
    """

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
            self.violations[outcome.seed] = outcome.violation

    @property
    def holes(self) -> list[str]:
        """Cells of the matrix that no seed filled."""
        return [f"{call} x {fault.value}" for call, fault in CELLS if not self.fired[(call, fault)]]

    @property
    def whole(self) -> bool:
        """Whether every cell of the matrix was filled, and every rare state reached."""
        return not self.holes and not self.never

    @property
    def never(self) -> list[str]:
        """Rare states that no seed came to."""
        return [state for state in STATES if not self.reached[state]]

    def sometimes(self) -> str:
        """Return the rare states, and how often seeds came to each, per 1,000."""
        lines = [f"{'of 1,000 runs':>13}  sometimes"]
        for state in STATES:
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
    most_runs: int | None = None,
    first_seed: int = 0,
    workers: int | None = None,
    most_violations: int = 3,
    without: Sequence[str] = (),
    progress: Callable[[Campaign], None] | None = None,
) -> Campaign:
    """Run seeds until so many runs had a fault, or too many violations were found.

    :param runs: how many runs must have had a fault.
    :param most_runs: given, so many follow at most while the matrix has a hole, or a rare state was not
        reached.
    :param workers: processes; one per core unless given.
    :param without: names of protections that are switched off.
    :param progress: called now and then.
    """
    campaign = Campaign()
    started = time.monotonic()
    count = workers or os.cpu_count() or 1
    most = most_runs or runs
    with multiprocessing.get_context("spawn").Pool(count, _prepare, (tuple(without),)) as pool:
        for outcomes in pool.imap(_simulate_some, _chunks(first_seed, most)):
            for outcome in outcomes:
                campaign.add(outcome)
            campaign.seconds = time.monotonic() - started
            if progress is not None:
                progress(campaign)
            enough = runs if campaign.whole else most
            if campaign.counted >= enough or len(campaign.violations) >= most_violations:
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
    return [simulate(seed) for seed in seeds]
