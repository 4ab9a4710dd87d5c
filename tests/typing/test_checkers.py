"""mypy and pyright see the types of a topology flow, and object to the same mistakes.

The files below ``cases`` are read by the checkers and run by nothing. In them, ``assert_type`` says what is
inferred, and a line marked ``# error: TEXT`` must be objected to by both with a message that holds the text;
``# error[pyright]: TEXT`` by that one alone. Any other complaint is a failure. Each checker runs once, over
all files.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CASES = sorted((Path(__file__).parent / "cases").glob("*.py"))
CHECKERS = ("mypy", "pyright")
_MARK = re.compile(r"# error(?:\[(?P<checker>\w+)\])?(?:: (?P<text>.+))?$")
_MYPY = re.compile(r"(?P<file>[^:]+):(?P<line>\d+): (?P<kind>error|note): (?P<text>.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What is to be said of a line.

    :param text: that some message holds; None for any.
    """

    text: str | None
    checkers: tuple[str, ...]


#: Line -> what a checker says of it.
Said = Mapping[int, list[str]]


def marks(file: Path) -> Iterator[tuple[int, Mark]]:
    """Yield the marks of a file, by line."""
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        found = _MARK.search(line)
        if found is not None:
            checker = found["checker"]
            yield number, Mark(text=found["text"], checkers=CHECKERS if checker is None else (checker,))


@cache
def said_by(checker: str) -> Mapping[str, Said]:
    """Run a checker on all cases; return file name -> what it says."""
    said: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for file, line, text in _mypy() if checker == "mypy" else _pyright():
        said[Path(file).name][line].append(text)
    return said


def _mypy() -> Iterator[tuple[str, int, str]]:
    output = run_checker("mypy", "--no-pretty", "--no-error-summary", *map(str, CASES))
    for line in output.splitlines():
        found = _MYPY.match(line)
        assert found is not None, f"mypy says: {output}"
        if found["kind"] == "error":
            yield found["file"], int(found["line"]), found["text"]


def _pyright() -> Iterator[tuple[str, int, str]]:
    folder = str(Path(__file__).parent)
    output = run_checker("basedpyright", "--project", folder, "--pythonpath", sys.executable, "--outputjson")
    for each in json.loads(output)["generalDiagnostics"]:
        if each["severity"] == "error":
            yield each["file"], each["range"]["start"]["line"] + 1, each["message"]


def run_checker(program: str, *arguments: str) -> str:
    """Return what a program prints; it comes from the environment that this one runs in."""
    folders = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    found = shutil.which(program, path=folders)
    assert found is not None, f"{program} is missing: dev/setup installs it"
    ended = subprocess.run(
        [found, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert ended.returncode in (0, 1), f"{program}: {ended.stdout}{ended.stderr}"
    return ended.stdout


def test_cases_hold_what_is_right_and_what_is_wrong() -> None:
    assert sum(1 for file in CASES for _ in marks(file)) >= 100
    assert sum(file.read_text().count("assert_type(") for file in CASES) >= 100


@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_checker_objects_to_marked_lines_and_no_others(checker: str, file: Path) -> None:
    said = said_by(checker).get(file.name, {})
    expected = {line: mark for line, mark in marks(file) if checker in mark.checkers}
    unexpected = {line: texts for line, texts in said.items() if line not in expected}
    silent = sorted(expected.keys() - said.keys())
    other = {
        line: said[line]
        for line, mark in expected.items()
        if line in said and mark.text is not None and not any(mark.text in text for text in said[line])
    }
    assert (unexpected, silent, other) == ({}, [], {}), f"{checker} on {file.name}: unexpected, silent, other"
