"""The event loop of calls: its timers come in time, and what a call leaves on a thread is counted.

A function that a call runs on a thread (``asyncio.to_thread``) goes on when the call is given up: it is left
behind like a call on a thread, and counted as one.

Python's selector for Linux waits for whole milliseconds, rounded up, so a call that waits for 1 ms would take
up to 2. The selector of this loop waits exactly as long as asked.
"""

from __future__ import annotations

import asyncio
import select
import selectors
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

from airflow_kstreams.streams.calls import abandoned

if TYPE_CHECKING:
    from concurrent.futures import Executor

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

#: A file with a higher number cannot be waited for by ``select``.
_MOST_FILES = 1024


class CallLoop(asyncio.SelectorEventLoop):
    """The event loop of a task's calls.

    :param selector: waits for files and time.
    """

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        super().__init__(selector or punctual_selector())
        self.set_exception_handler(_pass_over_left_behind)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[_Ts]], _T], *args: *_Ts
    ) -> asyncio.Future[_T]:
        """Run a function on a thread, see :mod:`asyncio`."""
        at_work = _OnThread(lambda: func(*args))
        back = super().run_in_executor(executor, at_work.run)
        back.add_done_callback(at_work.leave_if_cancelled)
        return back


class _OnThread:
    """A function that runs on a thread.

    :param function: without arguments.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._goes_on = False

    def run(self) -> Any:
        """Call it, on its thread."""
        self._goes_on = True
        try:
            return self._function()
        finally:
            self._goes_on = False

    def leave_if_cancelled(self, back: asyncio.Future[Any]) -> None:
        """Count the function as left behind if its call was given up while it runs."""
        if back.cancelled() and self._goes_on:
            abandoned.add(lambda: self._goes_on, "a function that a call runs by asyncio.to_thread")


def _pass_over_left_behind(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what went wrong on a loop as asyncio does, except that a call was dropped with the loop.

    Such a call swallowed its cancellation, and the log said so when it was left behind.
    """
    if context.get("message") != "Task was destroyed but it is pending!":
        loop.default_exception_handler(context)


def punctual_selector() -> selectors.BaseSelector:
    """Return a selector that waits no longer than asked."""
    return _PunctualSelector() if hasattr(selectors, "EpollSelector") else selectors.DefaultSelector()


if hasattr(selectors, "EpollSelector"):

    class _PunctualSelector(selectors.EpollSelector):
        """Waits for the file that stands for all of its files, which is ready when one of them is."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            """Return what is ready, after some seconds at most."""
            if timeout is not None and timeout > 0 and (file := self.fileno()) < _MOST_FILES:
                if not select.select((file,), (), (), timeout)[0]:
                    return []
                timeout = 0
            return super().select(timeout)
