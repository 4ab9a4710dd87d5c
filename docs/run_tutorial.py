"""Runs the commands of ``docs/tutorial.md`` in an empty folder and home, and compares what they print.

usage: python docs/run_tutorial.py [--write]

A command is a line of a block ``console`` that begins with ``$ ``; lines that begin with ``> `` go on with
it, and what follows is what it prints. All commands share one shell. Times, speeds, ports, paths, versions
and ids may differ: both sides are compared with placeholders in their place. ``--write`` puts what the
commands print into the page.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).with_name("tutorial.md")
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: What may differ, the longer forms first.
_PLACEHOLDERS = (
    (re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?)?([.,]\d+)?(Z| UTC|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\b\d\d:\d\d:\d\d(\.\d+)?( UTC)?"), "<time>"),
    (re.compile(r"[\d,.]+/s\b"), "<rate>"),
    (re.compile(r"\b\d+(\.\d+)? ?(ms|µs|s|seconds|minutes|min)\b"), "<seconds>"),
    (re.compile(r"\b127\.0\.0\.1:\d+|\blocalhost:\d+"), "<address>"),
    (re.compile(r"(?<![\w.])/(?:[\w.+-]+/)*[\w.+-]+"), "<path>"),
    (re.compile(r"\b\d+\.\d+\.\d+\w*\b"), "<version>"),
    (re.compile(r"\b(pid|process|generation) \d+\b"), r"\1 <id>"),
    # The width of a column is that of what stands in it.
    (re.compile(r"─+"), "─"),
    (re.compile(r" {2,}"), " "),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command of the page.

    :param line: number of its line.
    :param prints: what the page says that it prints, to its last line feed.
    """

    line: int
    command: str
    prints: str


def steps(page: str) -> Iterator[Step]:
    """Yield the commands of a page, in order."""
    for block in _BLOCK.finditer(page):
        first = page.count("\n", 0, block.start(1)) + 1
        for part in re.finditer(r"^\$ (.*(?:\n> .*)*)\n((?:(?!\$ ).*\n)*)", block[1], re.MULTILINE):
            command = part[1].replace("\n> ", "\n")
            yield Step(line=first + block[1].count("\n", 0, part.start()), command=command, prints=part[2])


def with_placeholders(text: str) -> list[str]:
    """Return the lines of an output with placeholders for what may differ, without empty lines and ends."""
    for pattern, placeholder in _PLACEHOLDERS:
        text = pattern.sub(placeholder, text)
    return [line.rstrip() for line in text.splitlines() if line.strip()]


class Shell:
    """One bash for all commands."""

    def __init__(self, folder: Path) -> None:
        home, work = folder / "home", folder / "work"
        for made in (home, work):
            made.mkdir()
        environment = {
            "HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "COLUMNS": "100",
            **{
                name: os.environ[name]
                for name in ("JAVA_HOME", "LANG", "KSTREAMS_MAVEN_REPOSITORY")
                if name in os.environ
            },
        }
        self._bash = subprocess.Popen(
            ["/bin/bash", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=work,
            env=environment,
            text=True,
        )

    def run(self, command: str) -> tuple[str, int]:
        """Run a command; return what it prints and its exit code."""
        end = uuid.uuid4().hex
        assert self._bash.stdin is not None and self._bash.stdout is not None  # noqa: S101
        self._bash.stdin.write(f"{{ {command}\n}} </dev/null; echo; echo {end} $?\n")
        self._bash.stdin.flush()
        printed: list[str] = []
        for line in self._bash.stdout:
            if line.startswith(end):
                return "".join(printed).removesuffix("\n"), int(line.split()[1])
            printed.append(line)
        raise SystemExit(f"the shell ended in: {command}")

    def close(self) -> None:
        """End the shell."""
        self._bash.communicate()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Run the page; the exit code is 1 if a step prints something else."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="put what the commands print into the page")
    options = parser.parse_args()
    page, wrong = PAGE.read_text(encoding="utf-8"), 0
    with tempfile.TemporaryDirectory(prefix="kstreams-tutorial-") as folder:
        shell = Shell(Path(folder))
        try:
            for step in steps(page):
                _say(f"$ {step.command}")
                printed, code = shell.run(step.command)
                _say(printed + (f"exit code {code}" if code else ""))
                printed = printed.replace(folder, "")
                if options.write:
                    old = step.command.replace("\n", "\n> ")
                    page = page.replace(
                        f"$ {old}\n{step.prints}", f"$ {old}\n{printed.rstrip()}\n".replace("\n\n", "\n"), 1
                    )
                    continue
                expected, found = with_placeholders(step.prints), with_placeholders(printed)
                if expected != found:
                    wrong += 1
                    _say(f"{PAGE.name}:{step.line} says something else:")
                    _say("\n".join(difflib.unified_diff(expected, found, "page", "printed", lineterm="")))
        finally:
            shell.run("airflow-kstreams broker stop --delete")
            shell.close()
    if options.write:
        PAGE.write_text(page, encoding="utf-8")
    _say(f"{wrong} steps differ" if wrong else "every step prints what the page says")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
