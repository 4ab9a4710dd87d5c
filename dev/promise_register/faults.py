"""Planting faults: each in a copy of the checkout, in which its test must fail.

Rule: a fault is *found* if the test that the register names passes in the copy as it is, and fails in the
copy with the fault. A test that cannot be collected, or fails because the code is no proper program, finds
nothing, and neither does one that outlasts the limit. Of a protection of the simulation, the test that
switches it off must pass.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from xml.etree import ElementTree

from dev.promise_register.planting import module_of, planted
from dev.promise_register.proofs import dying
from dev.promise_register.register import ROOT, Fault
from tests.simulation.protections import PROTECTIONS

__all__ = ["Copy", "Outcome", "Verdict", "tests_of"]

_SECONDS = 600.0
#: One failure is a verdict; a smaller example of it is not sought.
_FIRST_FAILURE = ("-x", "--no-shrinking")
#: What the checkout holds beside git's files and tests may ask for.
_LINKED = (".venv", ".kafka", ".airflow", ".setup")
#: Code that makes such a failure is a slip of the pen: the code that it stands for would not start.
_SLIPS = (
    "SyntaxError",
    "IndentationError",
    "ImportError",
    "ModuleNotFoundError",
    "NameError",
    "UnboundLocalError",
)


class Verdict(StrEnum):
    """What became of a planted fault."""

    FOUND = "found"
    SURVIVED = "survived"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A verdict, and what led to it in one line."""

    verdict: Verdict
    text: str


def tests_of(fault: Fault) -> str:
    """Return the test that finds a fault, from the root, as pytest takes it."""
    if not fault.protection:
        return f"tests/{dying(fault)}"
    scene = PROTECTIONS[fault.protection].scene
    if scene:
        return f"tests/simulation/{scene}"
    return f"tests/simulation/test_protections.py::test_missing_protection_is_noticed[{fault.protection}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Played:
    exit_code: int
    failures: tuple[tuple[str, str], ...]
    errors: tuple[str, ...]
    output: str


class Copy:
    """A copy of the checkout as it stands, in which faults are planted, one at a time."""

    def __init__(self, folder: Path) -> None:
        """Make it.

        :param folder: a new one, which goes when its owner removes it.
        """
        self._folder = folder
        # No hard links: what a test writes would be written into the checkout.
        for name in _files():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
        for name in _LINKED:
            if (ROOT / name).exists():
                (folder / name).symlink_to((ROOT / name).resolve())

    def failing(self, faults: Iterable[Fault]) -> str:
        """Run the tests of faults in the copy as it is; return what fails there, or nothing.

        The limit is one fault's; so many tests take as long as they take.
        """
        tests = sorted({tests_of(fault) for fault in faults if not fault.protection})
        if not tests:
            return ""
        played = self._play(*tests, seconds=None)
        return "" if played.exit_code == 0 else played.output

    def outcome(self, fault: Fault) -> Outcome:
        """Plant a fault, run its test, and take the fault out again."""
        with self._planted(fault):
            try:
                played = self._play(*(() if fault.protection else _FIRST_FAILURE), tests_of(fault))
            except subprocess.TimeoutExpired:
                return Outcome(verdict=Verdict.BROKEN, text=f"no end within {_SECONDS:.0f} s")
        if fault.protection:
            noticed = played.exit_code == 0
            text = "noticed" if noticed else played.output
            return Outcome(verdict=Verdict.FOUND if noticed else Verdict.SURVIVED, text=text)
        if played.exit_code == 0:
            return Outcome(verdict=Verdict.SURVIVED, text=f"{fault.dies} passes")
        slips = [text for _, text in played.failures if text.startswith(_SLIPS)]
        if played.exit_code != 1 or not played.failures or slips:
            return Outcome(verdict=Verdict.BROKEN, text="; ".join(played.errors or slips) or played.output)
        test, message = played.failures[0]
        return Outcome(verdict=Verdict.FOUND, text=f"{test}: {message}")

    @contextmanager
    def _planted(self, fault: Fault) -> Iterator[None]:
        if fault.protection:
            yield
            return
        file = self._folder / module_of(fault).relative_to(ROOT)
        source = file.read_text(encoding="utf-8")
        file.write_text(planted(fault, source), encoding="utf-8")
        _forget_compiled(file)
        try:
            yield
        finally:
            file.write_text(source, encoding="utf-8")
            _forget_compiled(file)

    def _play(self, *arguments: str, seconds: float | None = _SECONDS) -> _Played:
        report = self._folder / "report.xml"
        report.unlink(missing_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                f"--junitxml={report}",
                *arguments,
            ],
            cwd=self._folder,
            env=environment | {"PYTHONPATH": str(self._folder)},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []  # noqa: S314
        return _Played(
            exit_code=done.returncode,
            failures=tuple(_told(case, "failure") for case in cases if case.find("failure") is not None),
            errors=tuple(": ".join(_told(c, "error")) for c in cases if c.find("error") is not None),
            output=(done.stdout + done.stderr)[-4_000:],
        )


def _told(case: ElementTree.Element, outcome: str) -> tuple[str, str]:
    (element,) = case.findall(outcome)
    lines = element.get("message", "").splitlines() or [""]
    return case.get("name", ""), lines[0]


def _forget_compiled(file: Path) -> None:
    # Python tells a stale one by size and whole seconds, which a quick patch may leave as they are.
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        compiled.unlink()


def _files() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
