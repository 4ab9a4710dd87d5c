"""``dev/simulate``: run seeds of the simulation, or one of them again with every port call shown."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack

from tests.simulation.campaign import Campaign, run_campaign
from tests.simulation.protections import PROTECTIONS
from tests.simulation.scenario import landing_of, scenario_of, simulate, simulate_landing

_PROGRESS_SECONDS = 5.0


def main(arguments: list[str]) -> int:
    """Run the command; the exit code is 1 when something must not have happened."""
    options = _parser().parse_args(arguments)
    if options.protections:
        for protection in PROTECTIONS.values():
            print(f"{protection.name:<32} DESIGN {protection.section}")
        return 0
    if options.seed is not None:
        return _one(options.seed, trace=options.trace, without=options.without, tables=options.tables)
    return _many(options.seeds, first_seed=options.from_seed, without=options.without, tables=options.tables)


def _one(seed: int, *, trace: bool, without: list[str], tables: bool) -> int:
    with ExitStack() as off:
        for name in without:
            off.enter_context(PROTECTIONS[name].missing())
        print(landing_of(seed) if tables else scenario_of(seed))
        outcome = (simulate_landing if tables else simulate)(seed, trace=print if trace else None)
    for (call, fault), count in sorted(outcome.fired.items(), key=str):
        print(f"happened: {fault.value} at {call}{f', {count} times' if count > 1 else ''}")
    print(f"world time {outcome.world_seconds:.3f} s, fingerprint {outcome.fingerprint}")
    for state in sorted(outcome.reached):
        print(f"came to: {state}")
    print(outcome.violation or "no violation")
    return 1 if outcome.violation else 0


def _many(runs: int, *, first_seed: int, without: list[str], tables: bool) -> int:
    shown = time.monotonic()

    def progress(campaign: Campaign) -> None:
        nonlocal shown
        if time.monotonic() - shown > _PROGRESS_SECONDS:
            shown = time.monotonic()
            print(campaign.summary(), flush=True)

    campaign = run_campaign(
        runs=runs, first_seed=first_seed, without=without, tables=tables, progress=progress
    )
    print(campaign.matrix())
    print(campaign.sometimes())
    print(campaign.summary())
    for hole in campaign.holes:
        print(f"never happened: {hole}")
    for state in campaign.never:
        print(f"never came to: {state}")
    for _, story in sorted(campaign.violations.items()):
        print(f"\n{story}")
    return 1 if campaign.violations else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dev/simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="runs in which a fault must happen")
    parser.add_argument("--from-seed", type=int, default=0, help="where to begin")
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument("--tables", action="store_true", help="only what writes to tables of a lakehouse")
    parser.add_argument("--trace", action="store_true", help="with --seed: print every port call")
    parser.add_argument("--without", action="append", default=[], choices=sorted(PROTECTIONS), metavar="NAME")
    parser.add_argument("--protections", action="store_true", help="list what --without takes")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
