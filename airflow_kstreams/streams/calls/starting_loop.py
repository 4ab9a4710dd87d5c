"""An event loop that lets a new task take its first step at once.

Elsewhere a task waits for the loop's next round before it begins. A place for a call that is free for so long
makes nothing: with many short calls that end together, some hundredths of all time.

Rule: the task has the loop's current task, and its context, to itself while it steps; whatever stood there
before, a task in whose last step the new one begins for example, stands there again behind the step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVarTuple, Unpack

_Ts = TypeVarTuple("_Ts")


class StartingLoop(asyncio.SelectorEventLoop):
    """The event loop of a task's calls."""

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

    def start(self, coroutine: Coroutine[Any, Any, None], context: Context) -> asyncio.Task[None]:
        """Make a task of a coroutine, on the loop's own thread, and let it run until it waits.

        :param context: of the task alone.
        """
        outer = asyncio.current_task(self)
        # A task asks its loop to call its first step soon, and there is no other way to it in Python 3.11.
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
        asyncio.tasks._leave_task(self, outer)
        try:
            context.run(step)
        finally:
            asyncio.tasks._enter_task(self, outer)
        return task
