"""Runs what a Python worker hosts in threads, and ends the work when a thread stays inside one call of a
user's function for ``run.stall.timeout.ms``.

Rule: the main thread looks at the threads' stacks from time to time. A call is the same one while its frame
is the same. Serdes and timestamp extractors are such functions. A thread that restores, waits for records or
for calls of asynchronous nodes is in no call of a user's function, and one that goes from call to call makes
progress, however slow each is.

A thread cannot be ended, so the process is: the error that names node and function leaves the main thread,
Spark takes it to the driver and then ends the process. The process's other tasks end with it. What they have
not committed is void, and the next attempt, whose producer fences theirs, resumes where they have committed.

A call that holds the interpreter's lock, as a regular expression may, keeps the main thread from looking.
Then a timer of the interpreter, which the main thread puts off with each look, writes where all threads stand
to the executor's log, and ends the process.
"""

from __future__ import annotations

import faulthandler
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from types import FrameType
from typing import TypeVar

from airflow_kstreams.streams.errors import CallsStuckError
from airflow_kstreams.streams.records.user_traceback import last_user_line, node_of, serde_of, user_call
from airflow_kstreams.streams.runtime.stream_task import StreamTask

T = TypeVar("T")

#: How many looks there are in the time that a call may take, and the seconds between two at most.
_LOOKS, _LOOK_SECONDS = 20, 5.0


class FunctionWatch:
    """Looks for threads that stay inside one call.

    :param names: of all tasks that the process hosts.
    :param stall_ms: for how long a call may take.
    """

    def __init__(self, names: Sequence[str], *, stall_ms: int) -> None:
        self._names = tuple(names)
        self._stall_ms = stall_ms
        self._threads: set[int] = set()
        #: Thread -> the call that it was in at the last look, and when it was first seen there.
        self._seen: dict[int, tuple[FrameType, float]] = {}

    def run(self, work: Sequence[Callable[[], T]], *, at_once: int) -> list[T]:
        """Run functions in threads, and return what each gave once all have ended.

        :param at_once: the number of threads that run them.
        :raises CallsStuckError: a thread does not leave a call; it goes on until its process ends.
        :raises Exception: what the first of the functions that failed has raised.
        """
        look_seconds = min(self._stall_ms / 1000 / _LOOKS, _LOOK_SECONDS)
        pool = ThreadPoolExecutor(at_once, "stream-thread", initializer=self.watch_this_thread)
        exit_seconds = self._stall_ms / 1000 + look_seconds
        faulthandler.dump_traceback_later(exit_seconds, exit=True)  # before a thread may take the lock
        try:
            futures = [pool.submit(each) for each in work]
            while wait(futures, timeout=look_seconds).not_done:
                faulthandler.dump_traceback_later(exit_seconds, exit=True)
                self.look(time.monotonic())
        finally:
            faulthandler.cancel_dump_traceback_later()
            pool.shutdown(wait=False)
        return [future.result() for future in futures]

    def watch_this_thread(self) -> None:
        """Have the looks see the thread that calls this."""
        self._threads.add(threading.get_ident())

    def look(self, now: float) -> None:
        """Look at the threads.

        :param now: seconds of a steady clock.
        :raises CallsStuckError: one has been in the same call for too long.
        """
        frames, seen, self._seen = sys._current_frames(), self._seen, {}
        for thread in self._threads & frames.keys():
            stack = [*traceback.walk_stack(frames[thread])]
            call = user_call(stack)
            if call is None:
                continue
            before, since = seen.get(thread, (None, now))
            if before is not call:
                since = now
            elif (now - since) * 1000 >= self._stall_ms:
                raise self._stuck(stack, call)
            self._seen[thread] = (call, since)

    def _stuck(self, stack: Sequence[tuple[FrameType, int]], call: FrameType) -> CallsStuckError:
        places = (_place(frame, line) for frame, line in stack)
        place = next(found for found in places if found)
        owners = (frame.f_locals.get(name) for frame, _ in stack for name in ("self", "task"))
        task = next((str(owner.task_id) for owner in owners if isinstance(owner, StreamTask)), "")
        others = [name for name in self._names if name != task]
        code = call.f_code
        return CallsStuckError(
            f"task {task}: {place} has been inside one call of {code.co_qualname} at "
            f"{code.co_filename}:{code.co_firstlineno} for {self._stall_ms} ms (run.stall.timeout.ms), now "
            f"in {last_user_line(stack)}; its Python process ends"
            + (f", with tasks {', '.join(others)}, which resume where they have committed" if others else ""),
            fix="give what the function waits for a timeout, or raise run.stall.timeout.ms, then retry the "
            "run: its slice is kept",
            task_id=task,
        )


def _place(frame: FrameType, line: int) -> str:
    """Return what a frame runs for; empty if that does not say where a call is stuck."""
    node, serde = node_of(frame, line), serde_of(frame)
    if node is not None:
        return f"node {node!r}"
    return "" if serde is None else f"the serde of {serde}"
