"""A pytest plugin: in which order tests run, alone or in lanes side by side.

A lane is a worker of pytest-xdist with a broker, ports, folders and an Airflow home of its own: they come
from fixtures of session scope, which every worker makes for itself when its first test asks. A whole run
waits more than it works, so there are more lanes than processors.

Tests of one file stay in one lane, in their order. So do the folders of :data:`TOGETHER`, whose tests share
a process that is costly to start. What stays together goes to the next free lane, the longest first (as
``dev/test --record`` wrote into ``tests/times.json``), so that the short ones fill the lanes up at the end.
In a session without lanes the quick suites run first.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.support.times import recorded_seconds

#: Folders that stay together: one secured broker, one process of Java's Kafka Streams.
TOGETHER = ("tests/integration/security", "tests/integration/java")
#: Suites in the order in which they run without lanes.
SUITES = ("unit", "property", "typing", "contract", "simulation", "integration", "faults")


class Lanes(LoadScopeScheduling):  # type: ignore[misc] # it comes without types
    """Hands out what stays together, in the order of the collection."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Lanes:
    """Let files stay together, rather than single tests."""
    return Lanes(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest first in a lane, the quick suites first without; within a file the order stays."""
    if not hasattr(config, "workerinput"):
        items.sort(key=lambda item: _suite(item.nodeid))
        return
    seconds: dict[str, float] = defaultdict(float)
    for file in {item.nodeid.split("::", 1)[0] for item in items}:
        seconds[scope_of(file)] += recorded_seconds().get(file, 0.0)
    items.sort(key=lambda item: (-seconds[scope_of(item.nodeid)], scope_of(item.nodeid)))


def scope_of(nodeid: str) -> str:
    """Return what stays in one lane with a test: its file, or a folder of :data:`TOGETHER`."""
    file = nodeid.split("::", 1)[0]
    return next((folder for folder in TOGETHER if file.startswith(f"{folder}/")), file)


def _suite(nodeid: str) -> int:
    name = nodeid.split("/")[1] if nodeid.startswith("tests/") else ""
    return SUITES.index(name) if name in SUITES else len(SUITES)
