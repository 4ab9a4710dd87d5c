"""A pytest plugin: how long tests take, recorded by ``dev/test --record``.

``tests/times.json`` holds the seconds of each file that takes a second or more, and of the slowest tests;
``docs/internals/test-times.md`` shows them. ``dev/prove --record`` writes ``tests/proof_times.json`` alike,
without a page. The lanes plan with them (``lanes.py``); nothing is judged by it.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

TESTS = Path(__file__).parents[1]
FILE = TESTS / "times.json"
PROOF_FILE = TESTS / "proof_times.json"
PAGE = TESTS.parent / "docs" / "internals" / "test-times.md"
#: Suites as the page adds them up; the first that a file begins with counts.
SUITES = (
    *(
        f"tests/integration/{name}/"
        for name in ("airflow", "kafka", "spark", "process", "recipes", "security", "java")
    ),
    "tests/integration/",
    *(f"tests/{name}/" for name in ("unit", "property", "typing", "contract", "simulation", "faults")),
)
_SLOWEST = 40


def pytest_addoption(parser: pytest.Parser) -> None:
    """Define ``--record``."""
    parser.addoption(
        "--record", action="store_true", help=f"write the tests' times to {FILE.name} and its page"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Record, in the process that gets all reports."""
    if config.getoption("--record") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(config), "times-recorder")


@cache
def recorded_seconds(*, proof: bool = False) -> Mapping[str, float]:
    """Return the seconds of each file, as last recorded; files that took less than a second are left out.

    :param proof: in ``dev/prove``, not in ``dev/test``.
    """
    file = PROOF_FILE if proof else FILE
    return json.loads(file.read_text())["files"] if file.exists() else {}


class _Recorder:
    def __init__(self, config: pytest.Config) -> None:
        self._lanes = len(config.getoption("tx", None) or ()) or 1
        self._proof = config.getoption("--prove", default=False)
        self._began = datetime.now(UTC)
        self._tests: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        files: dict[str, float] = defaultdict(float)
        for nodeid, seconds in self._tests.items():
            files[nodeid.split("::", 1)[0]] += seconds
        wall = (datetime.now(UTC) - self._began).total_seconds()
        times = {
            "machine": f"{os.cpu_count()} cores, {self._lanes} lanes",
            "day": f"{self._began:%Y-%m-%d}",
            "wall_seconds": round(wall),
            "tests": len(self._tests),
            "suites": _suites(files, self._tests),
            "files": _largest(files, len(files), least=1.0),
            "slowest": _largest(self._tests, _SLOWEST, least=0.0),
        }
        (PROOF_FILE if self._proof else FILE).write_text(json.dumps(times, indent=1) + "\n")
        if not self._proof:
            PAGE.write_text(page(times))


def _suites(files: Mapping[str, float], tests: Mapping[str, float]) -> dict[str, Any]:
    seconds: dict[str, float] = dict.fromkeys(SUITES, 0.0)
    counts = dict.fromkeys(SUITES, 0)
    for file, took in files.items():
        seconds[_suite(file)] += took
    for nodeid in tests:
        counts[_suite(nodeid)] += 1
    return {name: [counts[name], round(seconds[name], 1)] for name in SUITES if counts[name]}


def _suite(nodeid: str) -> str:
    return next((suite for suite in SUITES if nodeid.startswith(suite)), SUITES[-1])


def _largest(seconds: Mapping[str, float], count: int, *, least: float) -> dict[str, float]:
    ordered = sorted(seconds.items(), key=lambda item: (-item[1], item[0]))
    return {name: round(took, 1) for name, took in ordered[:count] if took >= least}


def page(times: Mapping[str, Any]) -> str:
    """Return the page that shows recorded times, as Markdown."""
    suites = sorted(times["suites"].items(), key=lambda item: -item[1][1])
    lines = [
        "# Where the time of the tests goes",
        "",
        f"Written by `dev/test --record` on {times['day']}, {times['machine']}: {times['tests']} tests in "
        f"{times['wall_seconds'] / 60:.1f} minutes. The minutes of a suite add up those of its tests, which "
        "run beside others.",
        "",
        "| suite | tests | minutes |",
        "| --- | ---: | ---: |",
        *(f"| {name.rstrip('/')} | {count} | {took / 60:.1f} |" for name, (count, took) in suites),
        "",
        "The slowest tests:",
        "",
        "| seconds | test |",
        "| ---: | --- |",
        *(
            f"| {took:.1f} | {name.removeprefix('tests/').replace('|', '/')} |"
            for name, took in times["slowest"].items()
        ),
    ]
    return "\n".join(lines) + "\n"
