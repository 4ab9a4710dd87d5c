"""Runs calls of coroutine functions on an event loop; everything here runs on the loop's thread.

Rule: each call is a task of its own on the loop, with a context of its own, and ends once: with its
function's answer or error, or at ``timeout_ms``. At its timeout a call is cancelled. A call that swallows the
cancellation has one second more and is then abandoned: its record goes on with the error, another call takes
its place, and its later answer is ignored. When a call ends, the next one of its node is made, and takes its
first step in the loop's next round.

A function that a call runs on a thread (``asyncio.to_thread``) goes on when the call is given up: it is left
behind like a call on a thread, and counted as one.

Python's selector for Linux waits for whole milliseconds, rounded up, so a call that waits for 1 ms would take
up to 2. The selector of this loop waits exactly as long as asked.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import select
import selectors
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

from airflow_kstreams.streams.calls import abandoned
from airflow_kstreams.streams.calls.call import AsyncNode, Call, as_error, end_if_forked
from airflow_kstreams.streams.calls.call_queue import CallQueue
from airflow_kstreams.streams.hints.function_checks import answered

if TYPE_CHECKING:
    from concurrent.futures import Executor

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
#: A file with a higher number cannot be waited for by ``select``.
_MOST_FILES = 1024
#: How long a cancelled call may take to end.
GRACE_SECONDS = 1.0


class CoroutineCalls:
    """The running calls of a task's coroutine functions.

    :param loop: the event loop that runs them.
    :param announce: function that takes each call that has ended.
    :ivar inbox: calls to run as soon as their nodes' options allow. Any thread may add to it; calls are taken
        out where a place comes free, and by :meth:`fill`.
    """

    def __init__(
        self,
        loop: CallLoop,
        async_nodes: Sequence[AsyncNode],
        announce: Callable[[Call], None],
        *,
        begin: Callable[[Call], asyncio.Future[object] | None] | None = None,
    ) -> None:
        self._loop = loop
        self._announce = announce
        self._begin = begin
        self.inbox: deque[Call] = deque()
        #: Context variables; each call runs in a copy, so that no call sees another one's changes.
        self._context = contextvars.copy_context()
        self._call_queues = {async_node: CallQueue(async_node) for async_node in async_nodes}
        #: Node -> its running calls in the order in which they began: the first is the next to time out.
        self._running: dict[AsyncNode, dict[Call, asyncio.Task[None]]] = {
            async_node: {} for async_node in async_nodes
        }
        self._watches: dict[AsyncNode, asyncio.TimerHandle] = {}
        self._process = os.getpid()
        self._stopping = False

    @property
    def free(self) -> bool:
        """True if a node has a place for one more call. When a place comes free, :meth:`fill` takes calls
        from the inbox; so a thread that adds to the inbox need not wake the loop while no place is free.
        """
        return any(call_queue.free for call_queue in self._call_queues.values())

    @property
    def backlog(self) -> bool:
        """True if calls wait for others to end before they begin."""
        return any(call_queue.ready for call_queue in self._call_queues.values())

    def fill(self) -> None:
        """Begin calls while nodes have places."""
        while not self._stopping and (call := self._next()) is not None:
            self._start(call)

    def current(self) -> Call | None:
        """Return, from any thread, the call whose code the loop runs now; None if it runs none."""
        at = asyncio.current_task(self._loop)
        for running in list(self._running.values()):
            for call, task in list(running.items()):
                if task is at:
                    return call
        return None

    async def stop(self) -> None:
        """Cancel the calls that run, and wait a moment for them to end."""
        self._stopping = True
        for watch in self._watches.values():
            watch.cancel()
        tasks = [task for running in self._running.values() for task in running.values()]
        for running in self._running.values():
            for call in running:
                call.given_up = True
        for task in tasks:
            task.cancel()
        if tasks:
            # Calls that swallow the cancellation end with the loop, which runs them no further.
            await asyncio.wait(tasks, timeout=GRACE_SECONDS)

    def _next(self) -> Call | None:
        """Return a call to begin now, None if there is none."""
        while True:
            free = False
            for call_queue in self._call_queues.values():
                if (call := call_queue.next()) is not None:
                    return call
                free = free or call_queue.free
            if not free or not self.inbox:
                return None
            self._take_in()

    def _take_in(self) -> None:
        while self.inbox:
            call = self.inbox.popleft()
            try:
                self._call_queues[call.async_node].add(call)
            except Exception as error:  # a key that cannot be told from others
                call.error = error
                self._announce(call)

    def _start(self, call: Call) -> None:
        async_node = call.async_node
        call.started = self._loop.time()
        self._running[async_node][call] = self._loop.create_task(
            self._perform(call), context=self._context.copy()
        )
        if async_node not in self._watches:
            self._watch(async_node, call)

    async def _perform(self, call: Call) -> None:
        try:
            if self._begin is not None and (waiting := self._begin(call)) is not None:
                await waiting
            result = answered(await call.invoke())
        except BaseException as error:  # exits and cancellations are outcomes, too
            if call.given_up:
                call.error = call.timed_out()
            else:
                call.error = as_error(error)
        else:
            if call.given_up:
                call.error = call.timed_out()
            else:
                call.result = result
        end_if_forked(self._process)
        self._end(call)

    def _end(self, call: Call) -> None:
        async_node = call.async_node
        running = self._running[async_node]
        if call not in running:
            return  # abandoned
        del running[call]
        not_made = self._call_queues[async_node].ended(call)
        self._announce(call)
        for each in not_made:
            self._announce(each)
        self.fill()

    def _watch(self, async_node: AsyncNode, first: Call) -> None:
        self._watches[async_node] = self._loop.call_at(
            first.started + async_node.timeout_seconds, self._give_up, async_node
        )

    def _give_up(self, async_node: AsyncNode) -> None:
        """Cancel the calls of a node that took too long, and look again when the next one has."""
        del self._watches[async_node]
        now = self._loop.time()
        for call, task in list(self._running[async_node].items()):
            if call.given_up:
                continue
            if call.started + async_node.timeout_seconds > now:
                self._watch(async_node, call)
                return
            call.given_up = True
            task.cancel()
            self._loop.call_later(GRACE_SECONDS, self._abandon, call)

    def _abandon(self, call: Call) -> None:
        task = self._running[call.async_node].get(call)
        if task is not None:
            abandoned.add(
                lambda: not task.done() and not self._loop.is_closed(),
                f"a cancelled call of node {call.async_node.name!r}",
            )
            call.error = call.timed_out()
            self._end(call)


class CallLoop(asyncio.SelectorEventLoop):
    """The event loop of a task's calls.

    :param selector: selector with which the loop waits for files and time.
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

    :param function: function without arguments.
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
    """Log errors of a loop as asyncio does, except the one that a call was dropped with the loop.

    Such a call swallowed its cancellation, and the log said so when it was left behind.
    """
    if context.get("message") != "Task was destroyed but it is pending!":
        loop.default_exception_handler(context)


def punctual_selector() -> selectors.BaseSelector:
    """Return a selector that waits no longer than asked."""
    return _PunctualSelector() if hasattr(selectors, "EpollSelector") else selectors.DefaultSelector()


if hasattr(selectors, "EpollSelector"):

    class _PunctualSelector(selectors.EpollSelector):
        """Waits for the epoll's own file, which is ready when one of its files is."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            """Return the files that are ready, after ``timeout`` seconds at most."""
            if timeout is not None and timeout > 0 and (file := self.fileno()) < _MOST_FILES:
                if not select.select((file,), (), (), timeout)[0]:
                    return []
                timeout = 0
            return super().select(timeout)
