"""Watches what other users of this machine could see while something runs: command lines and environments of
processes, Spark's pages, files and their modes.
"""

from __future__ import annotations

import contextlib
import json
import stat
import threading
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import psutil

_PAUSE_SECONDS = 0.1
_PAUSES_PER_LOOK_AT_SPARK = 10
#: By which the clock of processes may differ from ours.
_CLOCKS_DIFFER_SECONDS = 2.0
_PAGES = ("environment", "jobs", "stages?details=true", "executors", "sql?details=true")


class LeakWatch:
    """A context manager that looks again and again.

    :param canaries: what to look for, by name.
    :param folder: where temporary files are made; their contents are looked at by :meth:`in_files`.
    :param ui: address of Spark's own pages.
    """

    def __init__(self, canaries: Mapping[str, str], *, folder: Path, ui: str) -> None:
        self._canaries = canaries
        self._folder = folder
        self._ui = ui
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leak-watch")
        self._since = time.time() - _CLOCKS_DIFFER_SECONDS
        self.leaks: set[str] = set()
        #: Mode of every file of client settings that was seen, by name.
        self.modes: dict[str, int] = {}
        #: Names of processes that were looked at.
        self.processes: set[str] = set()
        #: Which of Spark's pages answered.
        self.pages: set[str] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def found_in(self, text: str, where: str) -> None:
        """Note every canary that a text holds."""
        self.leaks |= {f"{name} in {where}" for name, canary in self._canaries.items() if canary in text}

    def in_files(self, *folders: Path) -> None:
        """Look into every file that is there now."""
        for path in (path for folder in folders for path in folder.rglob("*")):
            if path.is_file():
                self.found_in(path.read_bytes().decode("utf-8", "replace"), str(path))

    def _run(self) -> None:
        rounds = 0
        while not self._stopping.wait(_PAUSE_SECONDS):
            self._look_at_processes()
            self._look_at_files()
            if rounds % _PAUSES_PER_LOOK_AT_SPARK == 0:
                self._look_at_spark()
            rounds += 1

    def _look_at_processes(self) -> None:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                # Those that were there before were told nothing, and looking at them all takes half a core.
                if process.create_time() < self._since:
                    continue
                name = process.name()
                self.processes.add(name)
                self.found_in("\n".join(process.cmdline()), f"the command line of {name}")
                self.found_in(str(process.environ()), f"the environment of {name}")

    def _look_at_files(self) -> None:
        for path in self._folder.glob("kstreams-kafka-*"):
            with contextlib.suppress(FileNotFoundError):
                self.modes[path.name] = stat.S_IMODE(path.stat().st_mode)

    def _look_at_spark(self) -> None:
        root = f"{self._ui}/api/v1/applications"
        with contextlib.suppress(OSError, ValueError, IndexError):
            name = _listed(root)[0]["id"]
            for page in _PAGES:
                with urllib.request.urlopen(f"{root}/{name}/{page}", timeout=5) as answer:
                    self.found_in(answer.read().decode("utf-8", "replace"), f"Spark's page {page}")
                    self.pages.add(page)


def _listed(url: str) -> list[dict[str, str]]:
    with urllib.request.urlopen(url, timeout=5) as answer:
        listed: list[dict[str, str]] = json.load(answer)
    return listed
