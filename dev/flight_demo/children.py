"""Child processes that end with the demo, whatever ends it, together with everything they have started."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import psutil

_GRACE_SECONDS = 15.0


class Children:
    """Starts processes, and ends them and all their descendants when the block is left.

    :param log_folder: gets the output of each, ``<name>.log``.
    """

    def __init__(self, log_folder: Path) -> None:
        self._log_folder = log_folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> None:
        """Start one process."""
        # Its own session keeps the terminal's Ctrl-C from it, so that the demo ends things in order; should
        # the demo itself be killed, the kernel tells the child.
        prefix = [setpriv, "--pdeathsig", "TERM"] if (setpriv := shutil.which("setpriv")) else []
        with self.log_of(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                [*prefix, *command],
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def log_of(self, name: str) -> Path:
        """Where a process' output goes."""
        return self._log_folder / f"{name}.log"

    def ended(self) -> str | None:
        """Return the name of a process that has ended although nobody asked it to."""
        return next((name for name, process in self._running.items() if process.poll() is not None), None)

    def kill(self, name: str) -> None:
        """End one process and what it has started at once, as ``kill -9`` does."""
        process = self._running.pop(name)
        family = _family(process.pid)
        for member in family:
            _kill(member)
        psutil.wait_procs(family, timeout=_GRACE_SECONDS)
        process.wait()

    def stop(self) -> None:
        """End all processes and what they have started, first kindly, then not."""
        family: list[psutil.Process] = []
        for process in self._running.values():
            if process.poll() is None:
                # Grandchildren in sessions of their own (Spark's JVM) are found through their parents only,
                # so they have to be noted before the parents end.
                family += _family(process.pid)
        for process in self._running.values():
            if process.poll() is None:
                process.terminate()
        _, left = psutil.wait_procs(family, timeout=_GRACE_SECONDS)
        for member in [*left, *(child for parent in left for child in _family(parent.pid))]:
            if member.is_running():
                _kill(member)
        psutil.wait_procs(left, timeout=_GRACE_SECONDS)
        for process in self._running.values():
            process.wait()
        self._running.clear()


def end_leftovers(variable: str, value: str) -> int:
    """End processes that an earlier demo left behind because it was killed itself.

    :param variable: environment variable by which everything that demo started, Spark included, is known.
    :param value: its value there.
    :return: how many were ended.
    """
    left = [process for process in psutil.process_iter() if _environment(process).get(variable) == value]
    for process in left:
        _kill(process)
    psutil.wait_procs(left, timeout=_GRACE_SECONDS)
    return len(left)


def _environment(process: psutil.Process) -> Mapping[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}  # another user's, or gone by now


def _family(pid: int) -> list[psutil.Process]:
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return  # it ended on its own just now
