"""A pytest plugin: in which order tests run, alone or in lanes side by side.

A lane is a worker of pytest-xdist with a broker, ports, folders and an Airflow home of its own: they come
from fixtures of session scope, which every worker makes for itself when its first test asks. A whole run
waits more than it works, so there are more lanes than processors.

Tests of one file stay in one lane, in their order. So do the folders of :data:`TOGETHER`, whose tests share
a process that is costly to start; the files of :data:`APART` are long and have tests that share little, so
only those stay together whose parameters differ by a number at the end. What stays together goes to the next
free lane, the longest first (as ``--record`` wrote into ``tests/times.json``, or ``tests/proof_times.json``
for the long proof), so that the short ones fill the lanes up at the end. In a session without lanes the quick
suites run first.

What a test has to tell, as the seed that repeats it, goes by the fixture :func:`tell`: a lane has no
terminal.

A worker that dies (a library aborts, the kernel runs out of memory) fails the test that it was at, whose name
the report gives; the tests it had not begun go to the others, and the run ends with a failure even when the
worker had none left. pytest-xdist alone would wait for ever: it hands the dead worker's finished files out
again, of which no worker ever reports anything, and the test that killed it, too; it gives the worker that
comes instead a single test, which that does not begin; and it does not notice a death while a fork of the
worker still holds the pipe between them, which forks therefore leave.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.support.times import recorded_seconds

#: Folders that stay together: one secured broker, one process of Java's Kafka Streams.
TOGETHER = ("tests/integration/security", "tests/integration/java")
#: The planted faults of each promise, and each corner of the table of releases, go to a lane by themselves.
APART = (
    "tests/integration/process/dev/test_planted_faults.py",
    "tests/integration/process/dev/test_matrix.py",
)
_NUMBER_AT_THE_END = re.compile(r"-\d++\]$")
_TOLD = "told"
#: Suites in the order in which they run without lanes.
SUITES = ("unit", "property", "typing", "contract", "simulation", "integration", "faults")


class Lanes(LoadScopeScheduling):  # type: ignore[misc] # it comes without types
    """Hands out what stays together, in the order of the collection."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def remove_node(self, node: Any) -> str | None:
        """Forget a worker that has ended, and hand out what it had not begun.

        :return: the test that it was at when it died; None if it had finished all.
        """
        waiting = {
            scope: dict.fromkeys((test for test, done in tests.items() if not done), False)
            for scope, tests in self.assigned_work.pop(node).items()
        }
        waiting = {scope: tests for scope, tests in waiting.items() if tests}
        if not waiting:
            return None
        scope, tests = next(iter(waiting.items()))
        killer: str = next(iter(tests))
        del tests[killer]
        if not tests:
            del waiting[scope]
        self.workqueue.update(waiting)
        for other in self.nodes:
            if other in self.registered_collections:
                self._reschedule(other)
        return killer

    def _reschedule(self, node: Any) -> None:
        super()._reschedule(node)
        # It begins a test only when it knows the next one, or that there is none.
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


class _Deaths:
    """Fails a run whose worker has died, and names the worker."""

    def __init__(self) -> None:
        self._dead: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        if error:
            self._dead.append(f"worker {node.gateway.id} died: {error}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._dead and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self._dead:
            terminalreporter.write_line(line, red=True)


class _Told:
    """Prints what tests of lanes had to tell, each when it has ended."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            terminal = self._config.pluginmanager.get_plugin("terminalreporter")
            for name, text in report.user_properties:
                if name == _TOLD and terminal is not None:
                    terminal.write_line(str(text))


def pytest_configure(config: pytest.Config) -> None:
    """Have the process that hands out tests notice the death of a worker, and what its tests tell."""
    if hasattr(config, "workerinput"):
        os.register_at_fork(after_in_child=partial(_leave, _pipe(config)))
        return
    config.pluginmanager.register(_Deaths(), "deaths-of-workers")
    if config.getoption("tx", None) and config.getoption("--prove", default=False):
        config.pluginmanager.register(_Told(config), "told-by-tests")


@pytest.fixture
def tell(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """``tell(text)`` prints for whoever watches: at once without lanes, in lanes when the test has ended.

    Lanes of ``dev/test`` print no such text: theirs comes from seeds that stay.
    """

    def say(text: str) -> None:
        if hasattr(request.config, "workerinput"):
            request.node.user_properties.append((_TOLD, text))
            return
        with capsys.disabled():
            print(f"\n{text}", end="", flush=True)

    return say


def _pipe(config: pytest.Config) -> tuple[int, int]:
    """Return the files through which a worker hears and answers."""
    interactor: Any = next(
        plugin for plugin in config.pluginmanager.get_plugins() if hasattr(plugin, "torun")
    )
    io = interactor.channel.gateway._io
    return io.infile.fileno(), io.outfile.fileno()


def _leave(files: tuple[int, int]) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for file in files:
        os.dup2(nothing, file, inheritable=False)
    os.close(nothing)


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
    recorded = recorded_seconds(proof=config.getoption("--prove", default=False))
    seconds: dict[str, float] = defaultdict(float)
    for file in {item.nodeid.split("::", 1)[0] for item in items}:
        seconds[_costly_of(file)] += recorded.get(file, 0.0)
    items.sort(key=lambda item: (-seconds[_costly_of(item.nodeid)], scope_of(item.nodeid)))


def scope_of(nodeid: str) -> str:
    """Return what stays in one lane with a test: its file, a folder of :data:`TOGETHER`, or less of a file
    of :data:`APART`.
    """
    if nodeid.startswith(APART):
        return _NUMBER_AT_THE_END.sub("]", nodeid)
    return _costly_of(nodeid)


def _costly_of(nodeid: str) -> str:
    file = nodeid.split("::", 1)[0]
    return next((folder for folder in TOGETHER if file.startswith(f"{folder}/")), file)


def _suite(nodeid: str) -> int:
    name = nodeid.split("/")[1] if nodeid.startswith("tests/") else ""
    return SUITES.index(name) if name in SUITES else len(SUITES)
