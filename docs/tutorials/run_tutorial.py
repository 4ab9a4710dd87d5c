"""Runs the commands of ``first-hour.md`` in an empty folder and home, and compares what they print.

usage: python docs/tutorials/run_tutorial.py [--write] [--minutes N]

A command is a line of a block ``console`` that begins with ``$ ``; lines that begin with ``> `` go on with
it, and what follows is what it prints. All commands share one shell. Times, speeds, ports, paths, versions
and ids may differ: both sides are compared with placeholders in their place, and where their lines break may
differ, too. Every command ends with exit code 0. The pictures of the page, ``images/tutorial_<file>``, are
files that the commands write, and are compared in the same way. ``--write`` puts what the commands print into
the page, and these files beside it.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).with_name("first-hour.md")
_PROJECT = "shop"
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PICTURE = re.compile(r"\(images/tutorial_([\w.]+)\)")
#: What may differ, the longer forms first.
_PLACEHOLDERS = (
    (re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?)?([.,]\d+)?(Z| UTC|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\b\d\d:\d\d:\d\d(\.\d+)?( UTC)?"), "<time>"),
    (re.compile(r"[\d,.]+/s\b"), "<rate>"),
    (re.compile(r"\b(\d+ (?:days?|h|min) )?\d+(\.\d+)? ?(ms|µs|s|seconds|minutes|min|h)\b"), "<seconds>"),
    (re.compile(r"\bjust now\b"), "<seconds> ago"),
    (re.compile(r"\b127\.0\.0\.1:\d+|\blocalhost:\d+"), "<address>"),
    (re.compile(r"(@\d+)/[\w+/-]{22}(?![\w+/-])"), r"\1/<id>"),  # of a topic
    (re.compile(r"(?<![\w.<])/(?:[\w.+-]+/)*[\w.+-]+"), "<path>"),
    (re.compile(r"\b\d+\.\d+\.\d+\w*\b"), "<version>"),
    (re.compile(r"\bprocess \d+ of [\w.-]+"), "process <id>"),
    (re.compile(r"\b(pid|process|generation) \d+\b"), r"\1 <id>"),
    (re.compile(r"\b\d{13}\b"), "<id>"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<id>"),
    # The width of a column is that of what stands in it, and so is that of a progress line of pytest's.
    (re.compile(r"─+"), "─"),
    (re.compile(r" {2,}"), " "),
)
#: The environment that commands get from the one that starts them: where Java is, and how pip gets packages.
_PASSED_ON = re.compile(
    r"JAVA_HOME|LANG|LC_ALL|KSTREAMS_MAVEN_REPOSITORY|PIP_\w+|SSL_CERT_FILE|\w+_PROXY", re.IGNORECASE
)
_KIND_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command of the page.

    :param line: number of its line.
    :param prints: what the page says that it prints, to its last line feed.
    :param where: where that begins in the page.
    """

    line: int
    command: str
    prints: str
    where: int


def steps(page: str) -> Iterator[Step]:
    """Yield the commands of a page, in order."""
    for block in _BLOCK.finditer(page):
        for part in re.finditer(r"^\$ (.*(?:\n>(?: .*)?)*)\n((?:(?!\$ ).*\n)*)", block[1], re.MULTILINE):
            yield Step(
                line=page.count("\n", 0, block.start(1) + part.start()) + 1,
                command=re.sub(r"\n> ?", "\n", part[1]),
                prints=part[2],
                where=block.start(1) + part.start(2),
            )


def with_placeholders(text: str) -> list[str]:
    """Return the lines of an output with placeholders for what may differ, without empty lines and ends."""
    for pattern, placeholder in _PLACEHOLDERS:
        text = pattern.sub(placeholder, text)
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def difference(expected: str, found: str) -> str:
    """Return the lines that differ, empty if only what may differ does."""
    page, printed = with_placeholders(expected), with_placeholders(found)
    if " ".join(page).split() == " ".join(printed).split():
        return ""
    return "\n".join(difflib.unified_diff(page, printed, "page", "printed", lineterm=""))


def words_of_picture(text: str) -> str:
    """Return what can be read in an HTML file, a cell a line, in an order that no time decides."""
    return "\n".join(sorted(re.sub(r"<style>.*?</style>|<[^>]*>", "\n", text, flags=re.DOTALL).splitlines()))


class Shell:
    """One bash for all commands, and all that they start; as a context manager it ends them."""

    def __init__(self, folder: Path) -> None:
        self.home, self.work = folder / "home", folder / "work"
        for made in (self.home, self.work):
            made.mkdir()
        environment = {
            **{name: value for name, value in os.environ.items() if _PASSED_ON.fullmatch(name)},
            "HOME": str(self.home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "COLUMNS": "100",
        }
        self._bash = subprocess.Popen(
            ["/bin/bash", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.work,
            env=environment,
            text=True,
            start_new_session=True,
        )
        # With job control, as where a person types: the signal of Ctrl-C reaches what runs in the background.
        self.run("set -m")

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        for ending in (signal.SIGINT, signal.SIGKILL):
            if not self._send(ending):
                break
            deadline = time.monotonic() + _KIND_SECONDS
            while self._send(0) and time.monotonic() < deadline:
                time.sleep(0.2)
        self._bash.kill()
        self._bash.communicate()

    def run(self, command: str) -> tuple[str, int]:
        """Run a command; return what it prints and its exit code."""
        end = uuid.uuid4().hex
        assert self._bash.stdin is not None and self._bash.stdout is not None  # noqa: S101
        self._bash.stdin.write(f'{{ {command}\n}} </dev/null; echo -e "\\n{end} $?"\n')
        self._bash.stdin.flush()
        printed: list[str] = []
        for line in self._bash.stdout:
            if line.startswith(end):
                return "".join(printed).removesuffix("\n"), int(line.split()[1])
            printed.append(line)
        raise SystemExit(f"the shell ended in: {command}")

    def _send(self, number: int) -> bool:
        """Send a signal to all that the shell has started in its session; tell whether there was anything."""
        found = False
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == self._bash.pid:
                continue
            with suppress(OSError, IndexError):
                state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(session) == self._bash.pid and state != "Z":
                    os.kill(int(entry.name), number)
                    found = True
        return found


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _of_no_machine(text: str) -> str:
    return text.replace(f" of {socket.gethostname()}", " of laptop")


def _run_page(shell: Shell, page: str) -> tuple[str, int]:
    """Run all steps; return the page with what they have printed, and how many printed something else."""
    written, taken, wrong = "", 0, 0
    for step in steps(page):
        began = time.monotonic()
        _say(f"$ {step.command}")
        printed, code = shell.run(step.command)
        _say(f"{printed}{f'exit code {code}, ' if code else ''}{time.monotonic() - began:.1f} s\n")
        printed = _of_no_machine(printed.replace(str(shell.work.parent), "")).replace("\n\n", "\n").rstrip()
        written += page[taken : step.where] + (f"{printed}\n" if printed else "")
        taken = step.where + len(step.prints)
        differs = difference(step.prints, printed)
        if differs or code:
            wrong += 1
            _say(f"{PAGE.name}:{step.line} {'fails' if code else 'says something else'}:\n{differs}")
    return written + page[taken:], wrong


def _compare_pictures(shell: Shell, page: str, *, write: bool) -> int:
    wrong = 0
    for name in dict.fromkeys(_PICTURE.findall(page)):
        picture, made = PAGE.parent / "images" / f"tutorial_{name}", shell.work / _PROJECT / name
        found = made.read_text(encoding="utf-8") if made.exists() else ""
        if write:
            picture.write_text(_of_no_machine(found), encoding="utf-8")
            continue
        if differs := difference(*map(words_of_picture, (picture.read_text(encoding="utf-8"), found))):
            wrong += 1
            _say(f"{picture.name} shows something else:\n{differs}")
    return wrong


def main() -> int:
    """Run the page; the exit code is 1 if a step prints something else."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="put what the commands print into the page")
    parser.add_argument("--minutes", type=float, default=30, help="end with an error after so many")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    page, began = PAGE.read_text(encoding="utf-8"), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kstreams-tutorial-") as folder, Shell(Path(folder)) as shell:
        watch = threading.Timer(options.minutes * 60, shell.__exit__)
        watch.daemon = True
        watch.start()
        try:
            written, wrong = _run_page(shell, page)
            wrong += _compare_pictures(shell, page, write=options.write)
        finally:
            watch.cancel()
            subprocess.run(
                [Path(sys.executable).with_name("airflow-kstreams"), "broker", "stop", "--delete"],
                env={**os.environ, "HOME": str(shell.home)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )
    if options.write:
        PAGE.write_text(written, encoding="utf-8")
    _say(f"{wrong} steps differ" if wrong else "every step prints what the page says")
    _say(f"{time.monotonic() - began:.0f} s in all")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
