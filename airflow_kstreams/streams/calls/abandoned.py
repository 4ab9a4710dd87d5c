"""Counts the calls of this process that were given up, did not end, and still go on.

They cannot be killed, and keep their memory. So they are counted per process for as long as they live, and
past a bound no task goes on: the host then ends its process (``spark/executor/task_host.py``), and Spark
gives the task a new one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from airflow_kstreams.streams.errors import CallsStuckError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.printable import package_log

log = package_log(__name__)

#: The number of them that a process bears.
MOST = 16

_lock = threading.Lock()
#: One function for each: it returns True as long as the call, thread or loop goes on.
_left: list[Callable[[], bool]] = []


def add(goes_on: Callable[[], bool], what: str) -> None:
    """Count a call, thread or loop that does not end.

    :param goes_on: function that returns True as long as it goes on.
    :param what: its name in the log.
    """
    with _lock:
        _left.append(goes_on)
    log.warning("%s does not end, and the task goes on without it", what)


def count() -> int:
    """Return the number of those that still go on."""
    with _lock:
        _left[:] = [goes_on for goes_on in _left if goes_on()]
        return len(_left)


def too_many() -> bool:
    """Return True if the process should end."""
    return bool(_left) and count() > MOST


def refuse_too_many(*, task_id: str) -> None:
    """Make a task fail in a process with too many of them.

    :raises CallsStuckError: too many of them go on.
    """
    if too_many():
        raise CallsStuckError(
            f"task {task_id}: {counted(count(), 'call')} of this process did not end when given up, more "
            f"than {MOST}",
            fix="give the functions' own requests a timeout below timeout_ms, and let cancellation through",
            task_id=task_id,
        )
