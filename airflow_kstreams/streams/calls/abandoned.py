"""Threads and event loops of this process that did not come back.

They cannot be killed, and keep what they hold. So they are counted per process, and past a bound no task goes
on: the host then ends its process (``spark/executor/task_host.py``), and Spark gives the task a new one.
"""

from __future__ import annotations

import logging
import threading

from airflow_kstreams.streams.errors import CallsStuckError

log = logging.getLogger(__name__)

#: So many a process bears.
MOST = 16

_lock = threading.Lock()
_count = 0


def add(number: int, *, task_id: str) -> None:
    """Count what a task has left behind."""
    global _count
    if number:
        with _lock:
            _count += number
        log.warning("task %s leaves %d calls behind that do not end", task_id, number)


def too_many(running: int = 0) -> bool:
    """Say whether the process should end.

    :param running: what a task that goes on has abandoned so far.
    """
    return _count + running > MOST


def refuse_too_many(running: int, *, task_id: str) -> None:
    """Let a task fail in a process with too many of them.

    :raises CallsStuckError: there are.
    """
    if too_many(running):
        raise CallsStuckError(
            f"task {task_id}: {_count + running} calls of this process did not end when they were given up, "
            f"more than {MOST}",
            fix="give the functions' own requests a timeout below timeout_ms, and let cancellation through",
            task_id=task_id,
        )
