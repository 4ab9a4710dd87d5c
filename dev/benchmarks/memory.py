"""Peak memory of a process and all its children, while something runs, and of this process alone."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

_INTERVAL_SECONDS = 0.25
#: A look at a large JVM takes tens of milliseconds; all looks together may take so much of a core.
_SHARE = 0.02


class PeakMemory:
    """Samples proportional set sizes (memory that processes share counts once) as long as the block runs.

    :param pid: of the process; its descendants count, too.
    """

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak-memory", daemon=True)
        self._peak_bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._sample()

    @property
    def megabytes(self) -> float:
        """The highest sample."""
        return self._peak_bytes / 1e6

    def _watch(self) -> None:
        pause = _INTERVAL_SECONDS
        while not self._ended.wait(pause):
            started = time.thread_time()
            self._sample()
            pause = max(_INTERVAL_SECONDS, (time.thread_time() - started) / _SHARE)

    def _sample(self) -> None:
        total = 0
        try:
            processes = [self._process, *self._process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in processes:
            try:
                total += process.memory_full_info().pss
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue  # it ended between the two looks
        self._peak_bytes = max(self._peak_bytes, total)


def forget_peak() -> None:
    """Let the kernel forget how much memory this process has had at most, see proc(5)."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_megabytes() -> float:
    """Return how much memory this process has had at most, since that was forgotten."""
    status = Path("/proc/self/status").read_text()
    kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return round(int(kilobytes) * 1024 / 1e6, 1)
