"""Child processes that end with the demo, whatever ends it, together with everything they have started."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil

_GRACE_SECONDS = 15.0
_PAUSE_SECONDS = 0.05


class Children:
    """Starts processes, and ends them and all their descendants when the block is left.

    :param log_folder: gets the output of each, ``<name>.log``.
    :param may_stay: let them live on when this process is killed, so that :meth:`leave` may leave them.
    """

    def __init__(self, log_folder: Path, *, may_stay: bool = False) -> None:
        self._log_folder = log_folder
        self._may_stay = may_stay
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._end_by: dict[str, signal.Signals] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        end_by: signal.Signals = signal.SIGTERM,
    ) -> None:
        """Start one process.

        :param end_by: the signal that it takes for a kind request to end.
        """
        # Its own session keeps the terminal's Ctrl-C from it, so that the demo ends things in order; should
        # the demo itself be killed, the kernel tells the child. A shell that put the demo into the background
        # had it ignore SIGINT, and so would the child.
        kind = end_by.name.removeprefix("SIG")
        prefix = ["env", f"--default-signal={kind}"]
        if not self._may_stay and (setpriv := shutil.which("setpriv")):
            prefix += [setpriv, "--pdeathsig", kind]
        self._end_by[name] = end_by
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

    def pids(self) -> dict[str, int]:
        """Return the process id of each that was started, by its name."""
        return {name: process.pid for name, process in self._running.items()}

    def leave(self) -> None:
        """Let all that run go on when the block is left."""
        self._running.clear()

    def ended(self) -> str | None:
        """Return the name of a process that has ended although nobody asked it to."""
        return next((name for name, process in self._running.items() if process.poll() is not None), None)

    def exit_code(self, name: str) -> int | None:
        """Return the exit code of a process, None while it runs."""
        return self._running[name].poll()

    def last_words(self) -> str:
        """Return the last line that each process has written."""
        said = []
        for name in self._running:
            lines = self.log_of(name).read_text(errors="replace").strip().splitlines()
            said.append(f"{name} said last: {lines[-1].strip() if lines else 'nothing'}")
        return "; ".join(said)

    def is_running(self, name: str) -> bool:
        """Tell whether a process was started under this name, and not killed."""
        return name in self._running

    def kill(self, name: str) -> None:
        """End one process and what it has started at once, as ``kill -9`` does."""
        process = self._running.pop(name)
        _end(_family(process.pid))
        process.wait()

    def kill_part(self, name: str, argument: str) -> None:
        """End at once one of the processes that a process has started, and what that one has started.

        :param argument: the one that has this argument.
        :raises ValueError: there is none.
        """
        for part in psutil.Process(self._running[name].pid).children():
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if argument in part.cmdline():
                    _end(_family(part.pid))
                    return
        raise ValueError(f"{name} has no process with the argument {argument!r}")

    def stop(self) -> None:
        """End all processes and what they have started, first kindly, then not."""
        family: list[psutil.Process] = []
        for process in self._running.values():
            if process.poll() is None:
                # Grandchildren in sessions of their own (Spark's JVM) are found through their parents only,
                # so they have to be noted before the parents end.
                family += _family(process.pid)
        for name, process in self._running.items():
            if process.poll() is None:
                process.send_signal(self._end_by[name])
        left = _wait(family)
        _end([*left, *(child for parent in left for child in _family(parent.pid))])
        for process in self._running.values():
            process.wait()
        self._running.clear()


def end_families(pids: Iterable[int]) -> None:
    """End processes and all that they have started, first kindly, then not."""
    family = [process for pid in pids for process in _family(pid)]
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _end(_wait(family))


def end_leftovers(variable: str, value: str) -> int:
    """End processes that an earlier demo left behind because it was killed itself.

    :param variable: environment variable by which everything that demo started, Spark included, is known.
    :param value: its value there.
    :return: how many were ended.
    """
    left = [process for process in psutil.process_iter() if _environment(process).get(variable) == value]
    _end(left)
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


def _works(process: psutil.Process) -> bool:
    # One that has ended stays as a zombie until its parent asks for it, which may be never.
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _wait(family: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Wait until all have ended, and return those that have not."""
    deadline = time.monotonic() + _GRACE_SECONDS
    while left := [process for process in family if _works(process)]:
        if time.monotonic() > deadline:
            break
        time.sleep(_PAUSE_SECONDS)
    return left


def _end(family: Sequence[psutil.Process]) -> None:
    for process in family:
        _kill(process)
    _wait(family)


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return  # it ended on its own just now
