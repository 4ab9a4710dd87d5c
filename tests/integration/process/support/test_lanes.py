"""Lanes, ``tests/support/lanes.py``, in a pytest of its own: workers that die, tests that have to tell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import TESTS
from tests.support.lanes import APART, scope_of

_ENDS_SECONDS = 60.0
_LANES = ("-n", "1", "--no-loadscope-reorder")
_PASSING = "def test_passes(): pass\n"
_ABORTS = """
import os
def test_before(): pass
def test_aborts(): os.abort()
def test_after(): pass
"""
_ABORTS_WITH_A_CHILD = """
import os, time
def test_before(): pass
def test_aborts():
    if os.fork() == 0:
        time.sleep(600)
    os.abort()
def test_after(): pass
"""
_ABORTS_AT_THE_END = """
import os, pytest
@pytest.fixture(scope="session")
def server():
    yield
    os.abort()
def test_aborts(server): pass
"""
_TELLS = """
def test_tells(tell):
    tell("again: with seed 7")
    print("not for everybody")
"""
_PROOF = """
def pytest_addoption(parser):
    parser.addoption("--prove", action="store_true")
"""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A run of pytest that has ended."""

    code: int
    output: str


def run(folder: Path, text: str, *options: str) -> Ended:
    """Run pytest in one lane, which all is up to, over a file of tests between others that pass."""
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    for name in ("a", "b", "d", "e"):
        (folder / f"test_{name}.py").write_text(_PASSING, encoding="utf-8")
    (folder / "test_c.py").write_text(text, encoding="utf-8")
    output = folder / "output.txt"
    with output.open("w", encoding="utf-8") as file:  # a pipe would be open until the last child ends
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "tests.support.lanes", *_LANES, *options],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(TESTS.parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(_ENDS_SECONDS)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the run did not end: {output.read_text(encoding='utf-8')}")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
    return Ended(code=code, output=output.read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", [_ABORTS, _ABORTS_WITH_A_CHILD], ids=["alone", "leaving a child"])
def test_run_ends_and_names_the_test_when_it_kills_its_worker(tmp_path: Path, text: str) -> None:
    ended = run(tmp_path, text)
    assert ended.code == pytest.ExitCode.TESTS_FAILED, ended.output
    assert "crashed while running 'test_c.py::test_aborts'" in ended.output
    # The others run, the one that died does not run again.
    assert "1 failed, 6 passed" in ended.output


def test_run_fails_when_a_worker_dies_after_its_last_test(tmp_path: Path) -> None:
    ended = run(tmp_path, _ABORTS_AT_THE_END)
    assert ended.code == pytest.ExitCode.TESTS_FAILED, ended.output
    assert "5 passed" in ended.output
    assert "died" in ended.output


@pytest.mark.parametrize(("options", "printed"), [(("--prove",), True), ((), False)])
def test_proof_prints_what_a_test_has_to_tell(
    tmp_path: Path, options: tuple[str, ...], printed: bool
) -> None:
    (tmp_path / "conftest.py").write_text(_PROOF, encoding="utf-8")

    ended = run(tmp_path, _TELLS, *options)

    assert ended.code == pytest.ExitCode.OK, ended.output
    assert ("again: with seed 7" in ended.output) is printed
    assert "not for everybody" not in ended.output


def test_faults_of_a_promise_and_single_corners_go_to_a_lane_by_themselves() -> None:
    faults, corners = APART
    first, second, other = (
        f"{faults}::test_fault[{name}]" for name in ("rows-once-1", "rows-once-12", "order")
    )
    assert scope_of(first) == scope_of(second) != scope_of(other)
    assert scope_of(f"{corners}::test_corner[oldest]") != scope_of(f"{corners}::test_corner[newest]")
    assert scope_of("tests/unit/test_a.py::test_one[1-2]") == "tests/unit/test_a.py"
    assert scope_of("tests/integration/java/test_a.py::test_one") == "tests/integration/java"
