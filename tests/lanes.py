"""The lanes in which a whole run's tests go side by side: which tests stay together, and which begin first.

A lane is a worker of pytest-xdist, with a broker, ports, folders and an Airflow home of its own: all of them are made
by fixtures of session scope, which each worker makes for itself when its first test asks. A run waits more than it
works, so there are more lanes than processors.

Tests of one file stay in one lane, in their order. So do folders whose tests share a costly process (:data:`TOGETHER`).
Files go to whichever lane is free, those that took longest first (``tests/times.json``, which ``dev/test --record``
writes): the short ones fill the lanes up at the end.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

TESTS = Path(__file__).parent
TIMES = TESTS / "times.json"
#: Folders whose tests share one process that is costly to start: a secured broker, Java's Kafka Streams.
TOGETHER = ("tests/integration/security", "tests/integration/java")


def in_lanes(config: pytest.Config) -> bool:
    """Whether this process runs the tests of one lane, or hands them out to lanes."""
    return hasattr(config, "workerinput") or bool(config.getoption("tx"))


def scope_of(nodeid: str) -> str:
    """What stays in one lane with this test: its file, or a folder of :data:`TOGETHER`."""
    file = nodeid.split("::", 1)[0]
    return next((folder for folder in TOGETHER if file.startswith(f"{folder}/")), file)


@cache
def recorded_seconds() -> Mapping[str, float]:
    """Seconds that each file's tests took when they were last recorded, by file."""
    return json.loads(TIMES.read_text()) if TIMES.exists() else {}


def longest_first(items: list[pytest.Item]) -> None:
    """Order tests by what stays together, the longest first; within that the order stays."""
    seconds: dict[str, float] = defaultdict(float)
    for file in {item.nodeid.split("::", 1)[0] for item in items}:
        seconds[scope_of(file)] += recorded_seconds().get(file, 0.0)
    items.sort(key=lambda item: (-seconds[scope_of(item.nodeid)], scope_of(item.nodeid)))


class Lanes(LoadScopeScheduling):
    """Hands out what stays together, in the order of the collection."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def missing_folders(nodeids: Sequence[str], expected: Sequence[str]) -> list[str]:
    """Those of the expected folders that hold no test."""
    return [folder for folder in expected if not any(nodeid.startswith(f"tests/{folder}/") for nodeid in nodeids)]
