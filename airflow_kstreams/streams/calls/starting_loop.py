"""The event loop of calls: a new task takes its first step at once, and timers come in time.

Elsewhere a task waits for the loop's next round before it begins. A place for a call that is free for so long
makes nothing: with many short calls that end together, some hundredths of all time.

Rule: the task has the loop's current task, and its context, to itself while it steps; whatever stood there
before, a task in whose last step the new one begins for example, stands there again behind the step.

Python has that from 3.12 on (``eager_start``). In 3.11 the step is caught on its way into the loop's next
round, and two functions of asyncio that are not public change the current task. Where a Python has neither,
a task begins in the next round: nothing but the gain is lost.

A function that a call runs on a thread (``asyncio.to_thread``) goes on when the call is given up: it is left
behind like a call on a thread, and counted as one.

Python's selector for Linux waits for whole milliseconds, rounded up, so a call that waits for 1 ms would take
up to 2. This loop's waits as long as it is to.
"""

from __future__ import annotations

import asyncio
import select
import selectors
import sys
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

from airflow_kstreams.streams.calls import abandoned

if TYPE_CHECKING:
    from concurrent.futures import Executor

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

#: How a task is made that takes its first step at once, where Python can.
_EAGER: dict[str, Any] = {"eager_start": True} if sys.version_info >= (3, 12) else {}
#: What lets another task be the current one for a while.
_leave_task: Callable[..., None] | None = getattr(asyncio.tasks, "_leave_task", None)
_enter_task: Callable[..., None] | None = getattr(asyncio.tasks, "_enter_task", None)

#: A file with a higher number cannot be waited for by ``select``.
_MOST_FILES = 1024


class StartingLoop(asyncio.SelectorEventLoop):
    """The event loop of a task's calls.

    :param selector: waits for files and time.
    """

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        super().__init__(selector or punctual_selector())
        self.set_exception_handler(_pass_over_left_behind)

    #: Whether what is to be called soon is a task's first step, and the step.
    _catching = False
    _caught: Callable[..., Any] | None = None

    def call_soon(
        self, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call a function in the loop's next round, see :mod:`asyncio`."""
        if self._catching:
            self._catching = False
            self._caught = callback
            return None  # type: ignore[return-value] # a task keeps no handle of its steps
        return super().call_soon(callback, *args, context=context)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[_Ts]], _T], *args: *_Ts
    ) -> asyncio.Future[_T]:
        """Run a function on a thread, see :mod:`asyncio`."""
        at_work = _OnThread(lambda: func(*args))
        back = super().run_in_executor(executor, at_work.run)
        back.add_done_callback(at_work.let_go)
        return back

    def start(self, coroutine: Coroutine[Any, Any, None], context: Context) -> asyncio.Task[None]:
        """Make a task of a coroutine, on the loop's own thread, and let it run until it waits.

        :param context: of the task alone.
        """
        if _EAGER:
            return asyncio.Task(coroutine, loop=self, context=context, **_EAGER)
        if _leave_task is None or _enter_task is None:
            return asyncio.Task(coroutine, loop=self, context=context)
        outer = asyncio.current_task(self)
        self._catching = True
        try:
            task = asyncio.Task(coroutine, loop=self, context=context)
        finally:
            self._catching = False
        step, self._caught = self._caught, None
        if step is None:
            raise RuntimeError("a new task did not ask its loop for a first step")
        if outer is None:
            context.run(step)
            return task
        _leave_task(self, outer)
        try:
            context.run(step)
        finally:
            _enter_task(self, outer)
        return task


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

    def let_go(self, back: asyncio.Future[Any]) -> None:
        """Take note that nobody waits for it any more."""
        if back.cancelled() and self._goes_on:
            abandoned.add(lambda: self._goes_on, "a function that a call runs by asyncio.to_thread")


def _pass_over_left_behind(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what went wrong on a loop as asyncio does, but that a call is dropped with it: that one swallowed
    its cancellation, which was said when it was left behind.
    """
    if context.get("message") != "Task was destroyed but it is pending!":
        loop.default_exception_handler(context)


def punctual_selector() -> selectors.BaseSelector:
    """Return a selector that waits no longer than it is to."""
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
