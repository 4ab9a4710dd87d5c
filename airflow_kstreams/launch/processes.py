"""Ends a subprocess with all its descendants.

A subprocess that leads a session of its own (``start_new_session=True``) can be ended with all its
descendants: a process keeps its session when its parent dies and when it makes a process group of its own, as
Spark's Python daemon does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

import psutil

_POLL_SECONDS = 0.02


def session_members(session: int) -> list[int]:
    """Return the ids of the live processes of a session, zombies excluded."""
    return [pid for pid in psutil.pids() if _is_member(pid, session)]


def end_session(session: int, *, grace_seconds: float) -> list[int]:
    """Terminate every process of a session, and kill those that do not end in time.

    Safe in a signal handler, and when the session is already empty.

    :param session: process id of the session's leader, alive or not; must not be the caller's own session.
    :param grace_seconds: time for processes to clean up after the first signal.
    :return: ids of the processes that had to be killed.
    """
    if session == os.getsid(0):
        raise ValueError(f"session {session} is the caller's own, and ending it would end the caller")
    _signal(session_members(session), signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while session_members(session) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    killed: list[int] = []
    # Repeated until none is left: a process may fork between the listing and its end.
    while members := session_members(session):
        killed += [pid for pid in members if pid not in killed]
        _signal(members, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
    return killed


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _is_member(pid: int, session: int) -> bool:
    try:
        return os.getsid(pid) == session and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, PermissionError, psutil.NoSuchProcess):
        return False
