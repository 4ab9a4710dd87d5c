"""Runs calls in production: on one event loop with a thread of its own, and on threads for plain functions.

Calls go to the loop through an inbox, and the task wakes the loop when no more come for now and one may
begin: else the loop takes them from the inbox when a place comes free. Ended calls come back through one
queue, from which the task's thread takes them: those of one round of the loop together, and while others wait
to begin, those of a millisecond. While it waits there it supervises the loop and the threads: a call that
blocks the loop cannot be cancelled, since the loop has one thread. A warning names it meanwhile, by its node
and its current line; when it has lasted for the call's own ``timeout_ms``, the task fails. Another attempt
has another loop. Threads and loops that never come back stay in the process: see ``abandoned.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from airflow_kstreams.streams.calls import abandoned
from airflow_kstreams.streams.calls.call import AsyncNode, Call, CallTimeoutError
from airflow_kstreams.streams.calls.loop_calls import GRACE_SECONDS, CallLoop, CoroutineCalls
from airflow_kstreams.streams.calls.resources import Resources, closing, open_resources
from airflow_kstreams.streams.calls.thread_calls import ThreadCalls
from airflow_kstreams.streams.errors import CallsStuckError
from airflow_kstreams.streams.figures.call_figures import ThreadState
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.records.user_traceback import last_user_line

log = package_log(__name__)

#: The loop says so often that it goes on, and a loop that has not for so long is blocked.
_BEAT_SECONDS, _BLOCKED_SECONDS = 0.25, 2.0
_CLOSE_SECONDS = 5.0
#: For how long calls that have ended are gathered for the task's thread, as long as others wait to begin: two
#: threads of Python get in each other's way at each change from one to the other.
_GATHER_SECONDS = 0.001


class ThreadedCaller:
    """Runs the calls of one task.

    :param async_nodes: the task's asynchronous nodes.
    :param threads: number of threads for plain functions.
    """

    patience_seconds = 0.05

    def __init__(self, async_nodes: Sequence[AsyncNode], *, threads: int, task_id: str) -> None:
        self._async_nodes = tuple(async_nodes)
        self._threads = threads
        self._task_id = task_id
        self._back: SimpleQueue[Sequence[Call]] = SimpleQueue()
        self._loop: _LoopThread | None = None
        self._pool: ThreadCalls | None = None
        self._opened = self._closed = False
        self._in_flight = 0

    def open(self) -> None:
        """Start the loop and the threads, and open the nodes' resources, each once."""
        self._opened = True
        on_threads = [async_node for async_node in self._async_nodes if async_node.options.threads]
        on_loop = [async_node for async_node in self._async_nodes if not async_node.options.threads]
        if on_loop:
            self._on_loop(on_loop)
        if on_threads:
            self._pool = ThreadCalls(
                self._threads,
                on_threads,
                lambda call: self._back.put((call,)),
                name=f"kstreams-task-{self._task_id}-thread",
            )
        open_resources(self._async_nodes, lambda async_node: self._on_loop(()).enter(async_node))

    def start(self, call: Call) -> None:
        """Start a call as soon as its node's options allow."""
        self._in_flight += 1
        if call.async_node.options.threads:
            if self._pool is not None:
                self._pool.add(call)
        elif self._loop is not None:
            self._loop.inbox.append(call)

    def hurry(self) -> None:
        """Make the started calls begin."""
        if self._loop is not None:
            self._loop.wake()

    def ended(self, wait_seconds: float) -> Sequence[Call]:
        """Return the calls that have ended since this was asked last."""
        back: list[Call] = []
        if self._in_flight:
            queue = self._back
            if wait_seconds:
                self.hurry()
                with contextlib.suppress(Empty):
                    back += queue.get(timeout=wait_seconds)
            while not queue.empty():
                back += queue.get_nowait()
            self._in_flight -= len(back)
            if not back or wait_seconds:
                self._look()
        return back

    def thread_states(self) -> Sequence[ThreadState]:
        """Return the state of each thread that runs calls."""
        if self._closed:
            return ()
        on_loop = [async_node for async_node in self._async_nodes if not async_node.options.threads]
        loop = [] if self._loop is None or not on_loop else [self._loop.state(on_loop)]
        return [*loop, *(() if self._pool is None else self._pool.states())]

    @property
    def threads_replaced(self) -> int:
        """The number of threads that were made in place of others."""
        return 0 if self._pool is None else self._pool.replaced

    def close(self) -> None:
        """Give up the calls that run, and close the resources, each even if another one fails."""
        if self._closed or not self._opened:
            return
        self._closed = True
        if self._pool is not None:
            self._pool.close()
        if self._loop is not None:
            with closing("the event loop", self._task_id):
                self._loop.close()
        if self._pool is not None:
            self._pool.join(GRACE_SECONDS)

    def _on_loop(self, async_nodes: Sequence[AsyncNode]) -> _LoopThread:
        """Return the event loop, started for the nodes that need it, or for resources alone."""
        if self._loop is None:
            self._loop = _LoopThread(async_nodes, self._back.put, task_id=self._task_id)
        return self._loop

    def _look(self) -> None:
        if self._pool is not None:
            self._pool.look()
        if self._loop is not None:
            self._loop.refuse_blocked()
        abandoned.refuse_too_many(task_id=self._task_id)


class _LoopThread:
    """An event loop on a thread of its own."""

    def __init__(
        self, async_nodes: Sequence[AsyncNode], give_back: Callable[[Sequence[Call]], None], *, task_id: str
    ) -> None:
        self._task_id = task_id
        self._loop = CallLoop()
        self._calls = CoroutineCalls(self._loop, async_nodes, self._announce)
        #: Calls to run.
        self.inbox = self._calls.inbox
        self._woken = False
        self._give_back = give_back
        #: What has ended in this round of the loop.
        self._ended: list[Call] = []
        self._resources = Resources()
        self._ending = False
        #: Number of beats of the loop, and the number at the last check.
        self._beats = self._seen_beats = 0
        self._looked_at = time.monotonic()
        self._silent_seconds = 0.0
        self._warned = False
        self._thread = threading.Thread(
            target=self._serve, name=f"kstreams-task-{task_id}-event-loop", daemon=True
        )
        self._thread.start()

    def wake(self) -> None:
        """Make the loop begin the calls in the inbox; the task's thread calls this."""
        if self.inbox and not self._woken and self._calls.free:
            self._woken = True
            self._loop.call_soon_threadsafe(self._take)

    def enter(self, async_node: AsyncNode) -> Any:
        """Make a node's resource on the loop, and enter it.

        :raises Exception: as :meth:`Resources.enter`; a timeout also if the factory blocks the loop.
        """
        entering = asyncio.run_coroutine_threadsafe(self._resources.enter(async_node), self._loop)
        try:
            return entering.result(async_node.timeout_seconds + GRACE_SECONDS)
        except TimeoutError as error:
            if entering.done():
                raise
            raise CallTimeoutError(
                "entering the resource blocks the event loop for longer than the node's timeout_ms"
            ) from error

    def state(self, async_nodes: Sequence[AsyncNode]) -> ThreadState:
        """Return the state of the loop's thread.

        :param async_nodes: the nodes whose calls run here.
        """
        thread = self._thread
        busy_seconds = None
        if thread.ident is not None and thread.is_alive() and hasattr(time, "pthread_getcpuclockid"):
            busy_seconds = time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
        runs = any(async_node.in_flight for async_node in async_nodes)
        return ThreadState(
            name=thread.name,
            state="RUNNING" if runs else "IDLE",
            event_loop=True,
            busy_seconds=busy_seconds,
        )

    def refuse_blocked(self) -> None:
        """Check that the loop goes on. Between two checks no more time counts than a running loop needs for a
        sign of life, so a process that stood still stops no loop.

        :raises CallsStuckError: a call has blocked it for too long.
        """
        now = time.monotonic()
        since, self._looked_at = now - self._looked_at, now
        beats = self._beats
        if beats != self._seen_beats:
            self._seen_beats, self._silent_seconds = beats, 0.0
        self._silent_seconds += min(since, _BEAT_SECONDS)
        silent = self._silent_seconds
        if silent < _BLOCKED_SECONDS:
            self._warned = False
            return
        call = self._calls.current()
        frame = sys._current_frames().get(self._thread.ident or 0)
        line = last_user_line(traceback.walk_stack(frame)) if frame is not None else ""
        what = (
            f"task {self._task_id}: the event loop does not go on for {silent:.0f} s"
            f"{f', blocked by the function of node {call.async_node.name!r}' if call is not None else ''}"
            f"{f', in {line}' if line else ''}"
        )
        limit = _BLOCKED_SECONDS + (call.async_node.timeout_seconds if call is not None else 0.0)
        if silent > limit + GRACE_SECONDS:
            raise CallsStuckError(
                what,
                fix="await what takes time, or call it on a thread: threads=True with a plain function",
                task_id=self._task_id,
            )
        if not self._warned:
            self._warned = True
            log.warning("%s; it must await what takes time", what)

    def close(self) -> None:
        """Close the resources, and stop the loop."""
        stopping = asyncio.run_coroutine_threadsafe(self._stop(), self._loop)
        self._thread.join(_CLOSE_SECONDS + 2 * GRACE_SECONDS)
        if self._thread.is_alive():
            abandoned.add(self._thread.is_alive, f"the event loop of task {self._task_id}")
        elif stopping.done() and not stopping.cancelled() and (error := stopping.exception()) is not None:
            raise error

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(self._beat)
        try:
            while not self._ending:
                # What a call stops or exits goes on: another call's work is on this loop, too.
                with contextlib.suppress(SystemExit, KeyboardInterrupt):
                    self._loop.run_forever()
        finally:
            self._loop.close()

    def _beat(self) -> None:
        self._beats += 1
        self._loop.call_later(_BEAT_SECONDS, self._beat)

    def _take(self) -> None:
        self._woken = False
        self._calls.fill()

    def _announce(self, call: Call) -> None:
        if not self._ended:
            if self._calls.backlog:
                self._loop.call_later(_GATHER_SECONDS, self._return)
            else:
                self._loop.call_soon(self._return)
        self._ended.append(call)

    def _return(self) -> None:
        ended, self._ended = self._ended, []
        self._give_back(ended)

    async def _stop(self) -> None:
        try:
            await self._calls.stop()
            await self._resources.close(_CLOSE_SECONDS)
        finally:
            self._ending = True
            self._loop.call_soon(self._loop.stop)
