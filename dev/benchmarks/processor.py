"""Processor time of a process and of all that it has started, those that have ended included."""

from __future__ import annotations

import psutil

#: A look at processes of which one ends meanwhile is taken again, so often at most.
_LOOKS = 5


def seconds_of(pid: int) -> float:
    """Return how many seconds of processor time, user and system, a process and its descendants have had.

    What a process had that has ended is kept by the one that has waited for it. So the figure only grows,
    and the difference of two is what the whole tree had between them.

    :raises psutil.NoSuchProcess: there is no such process.
    """
    root = psutil.Process(pid)
    total = 0.0
    for _ in range(_LOOKS):
        total, whole = _look(root)
        if whole:
            break
    return total


def _look(root: psutil.Process) -> tuple[float, bool]:
    """Return the sum, and whether every process was there to be asked: parents are asked before children."""
    total = _had(root)
    whole = True
    for process in root.children(recursive=True):
        try:
            total += _had(process)
        except psutil.NoSuchProcess:
            whole = False
    return total, whole


def _had(process: psutil.Process) -> float:
    """Return what a process had itself, and those of its children for which it has waited."""
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)
