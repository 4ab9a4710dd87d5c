"""``dev/matrix``: makes corners of the table of releases from nothing, runs demo and suites in each."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator

from dev.installations.corners import CORNERS, Corner, corner_of, table
from dev.installations.environment import ROOT, Environment, NotRunError, StepError

PASSED, FAILED, NOT_RUN = 0, 1, 3
_FOLDER = ROOT / ".matrix"
#: Days of flights that the demo publishes, in three increments.
_DAYS = "9"
#: Tests of this checkout's own tools, which need all of them.
_OF_TOOLS = ("unit/dev", "unit/docs/test_site.py", "unit/test_conformance.py")


def main(arguments: list[str]) -> int:
    """Run corners; 0 when all passed, 1 when one failed, 3 when one could not run and none failed."""
    options = _parser().parse_args(arguments)
    if options.list or not options.corners:
        print("\n".join(table()))
        return PASSED
    results = {name: run(corner_of(name)) for name in options.corners}
    print()
    for name, (_, text) in results.items():
        print(f"{name}: {text}")
    codes = {code for code, _ in results.values()}
    return FAILED if FAILED in codes else NOT_RUN if NOT_RUN in codes else PASSED


def run(corner: Corner) -> tuple[int, str]:
    """Make and try one corner; return its exit code and what it came to."""
    print(f"\n== {corner.name}: {corner.row}", flush=True)
    environment = Environment(corner=corner, folder=_FOLDER / corner.name)
    started = time.monotonic()
    try:
        environment.make()
        print(f"installed in {time.monotonic() - started:.0f} s: {environment.folder}", flush=True)
        for path, reason in corner.left_out.items():
            print(f"left out: tests/{path}: {reason}", flush=True)
        if corner.airflow:
            environment.start_empty_airflow()
        failed = [
            step
            for step, command in _steps(corner, str(environment.python))
            if not _passes(environment, step, command)
        ]
    except NotRunError as missing:
        return NOT_RUN, f"NOT RUN: {missing}"
    except StepError as error:
        print(error, flush=True)
        return FAILED, f"FAILED: {str(error).splitlines()[0]}"
    if failed:
        return FAILED, f"FAILED: {', '.join(failed)}"
    return PASSED, f"passed in {time.monotonic() - started:.0f} s"


def _passes(environment: Environment, step: str, command: list[str]) -> bool:
    """Run a step and tell whether it passed; those after it are run either way."""
    started = time.monotonic()
    try:
        said = environment.run(step, command).strip().splitlines()
    except StepError as failed:
        print(failed, flush=True)
        return False
    print(f"{step}: passed in {time.monotonic() - started:.0f} s: {said[-1] if said else ''}", flush=True)
    return True


def _steps(corner: Corner, python: str) -> Iterator[tuple[str, list[str]]]:
    """Yield what a corner runs: three increments, the unit and property suites, a suite on Spark."""
    by_hand = [] if corner.airflow else ["--without-airflow"]
    yield "demo", [python, "-m", "dev.flight_demo", "--days", _DAYS, *by_hand]
    suites = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    left_out = [
        f"--{'deselect' if '::' in path else 'ignore'}=tests/{path}"
        for path in (*_OF_TOOLS, *corner.left_out)
    ]
    lanes = ["-n", os.environ.get("KSTREAMS_TEST_LANES", "2"), "--no-loadscope-reorder"]
    yield "unit and property", [*suites, "--quick", *lanes, *left_out, "tests/unit", "tests/property"]
    yield "spark", [*suites, "tests/integration/spark/test_run.py"]


def _parser() -> argparse.ArgumentParser:
    names = [corner.name for corner in CORNERS]
    parser = argparse.ArgumentParser(prog="dev/matrix", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the table, run nothing")
    parser.add_argument("corners", nargs="*", type=_known, metavar="CORNER", help=", ".join(names))
    return parser


def _known(name: str) -> str:
    try:
        return corner_of(name).name
    except KeyError:
        raise argparse.ArgumentTypeError(
            f"no corner {name!r}: {', '.join(corner.name for corner in CORNERS)}"
        ) from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
