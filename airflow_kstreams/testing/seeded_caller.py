"""Runs the calls of a task on its own thread, in virtual time, and draws their order from a seed.

Rule: when the task waits, the event loop runs until one call has ended, or until all have; a draw decides.
Then a drawn one of the ended calls is returned. A coroutine that sleeps takes no time: when no code can run,
the loop's clock jumps to the time of the next timer. It really waits only for a socket, and for a function on
a thread (``asyncio.to_thread``), during which the clock does not move. It does not wait for users' own
threads and child processes. Plain functions run at a drawn moment, one by one.

So any order in which calls may end in production can be drawn, and a seed always draws the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import selectors
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Sized
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

from airflow_kstreams.streams.calls.call import AsyncNode, Call, as_error, end_if_forked
from airflow_kstreams.streams.calls.call_queue import CallQueue
from airflow_kstreams.streams.calls.loop_calls import CallLoop, CoroutineCalls
from airflow_kstreams.streams.calls.resources import Resources, closing, open_resources
from airflow_kstreams.streams.figures.call_figures import ThreadState
from airflow_kstreams.streams.hints.function_checks import answered

if TYPE_CHECKING:
    from concurrent.futures import Executor

#: Longest delay of a call before it begins, in virtual seconds.
_HELD_UP_SECONDS = 0.01
#: Share of the calls that are held up, and of the times when the task waits for all that run.
_HELD_UP, _ALL_OF_THEM = 0.5, 0.3
_CLOSE_SECONDS = 5.0
#: Interval of looks at sockets, in seconds.
_LOOK_SECONDS = 0.02
#: Longest time for which the virtual clock does not move while functions run on threads; later, real time
#: passes.
_THREAD_SECONDS = 1.0
#: After so many rounds in which a coroutine did not let the loop rest, each of them takes a moment.
_RESTLESS_ROUNDS, _ROUND_SECONDS = 10_000, 0.001

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class SeededCaller:
    """The calls of one task.

    :param async_nodes: its asynchronous nodes.
    :param seed: seed of the draws.
    """

    #: Virtual time does not pass while the task waits.
    patience_seconds = float("inf")
    #: The task's own thread runs everything.
    threads_replaced = 0

    def __init__(self, async_nodes: Sequence[AsyncNode], *, seed: int) -> None:
        self._async_nodes = tuple(async_nodes)
        self._rng = random.Random(seed)  # noqa: S311 - draws, no secret
        self._running: tuple[_VirtualLoop, CoroutineCalls] | None = None
        self._ended: list[Call] = []
        self._call_queues = {
            async_node: CallQueue(async_node) for async_node in async_nodes if async_node.options.threads
        }
        self._resources = Resources()
        self._in_flight = 0
        self._process = os.getpid()
        #: Number of ended calls that the task waits for, and the future that is set then.
        self._wanted: tuple[int, asyncio.Future[None]] | None = None

    def open(self) -> None:
        """Start the event loop, and open the nodes' resources, each once."""
        on_loop = [async_node for async_node in self._async_nodes if not async_node.options.threads]
        loop = _VirtualLoop()
        for async_node in self._async_nodes:
            async_node.now = loop.time
        self._running = loop, CoroutineCalls(loop, on_loop, self._announce, begin=self._hold_up)
        open_resources(self._async_nodes, lambda async_node: self._run(self._resources.enter(async_node)))

    def start(self, call: Call) -> None:
        """Queue a call, which runs as soon as its node's options allow."""
        self._in_flight += 1
        call_queue = self._call_queues.get(call.async_node)
        if call_queue is None:
            loop, calls = self._opened()
            calls.inbox.append(call)
            loop.call_soon(calls.fill)
            return
        try:
            call_queue.add(call)
        except Exception as error:  # a key that cannot be compared with others
            call.error = error
            self._announce(call)
            return
        self._fill(call_queue)

    def hurry(self) -> None:
        """Do nothing: calls run when the task waits."""

    def ended(self, wait_seconds: float) -> Sequence[Call]:
        """Return a drawn call of those that have ended; none unless the task waits."""
        if not wait_seconds or not self._in_flight:
            return ()
        wanted = self._in_flight if self._rng.random() < _ALL_OF_THEM else 1
        if len(self._ended) < wanted:
            self._wanted = wanted, self._opened()[0].create_future()
            self._run(self._wanted[1])
            self._wanted = None
        self._in_flight -= 1
        return [self._ended.pop(self._rng.randrange(len(self._ended)))]

    def thread_states(self) -> Sequence[ThreadState]:
        """Return no states: calls run on the task's own thread."""
        return ()

    def close(self) -> None:
        """Give up running calls, and close the resources."""
        if self._running is None:
            return
        loop, calls = self._running
        task_id = next((async_node.task_id for async_node in self._async_nodes), "")
        with closing("what runs the calls", task_id):
            self._run(calls.stop())
        self._run(self._resources.close(_CLOSE_SECONDS))
        loop.close()
        self._running = None

    def _opened(self) -> tuple[_VirtualLoop, CoroutineCalls]:
        if self._running is None:
            raise RuntimeError("a node makes a call before its task is open, or after its end")
        return self._running

    def _announce(self, call: Call) -> None:
        self._ended.append(call)
        if self._wanted is not None and len(self._ended) >= self._wanted[0] and not self._wanted[1].done():
            self._wanted[1].set_result(None)

    def _hold_up(self, call: Call) -> asyncio.Future[Any] | None:
        if self._rng.random() < _HELD_UP:
            return self._opened()[0].create_task(asyncio.sleep(self._drawn_delay(call)))
        return None

    def _drawn_delay(self, call: Call) -> float:
        # The delay alone must not make a call exceed its timeout.
        return self._rng.random() * min(_HELD_UP_SECONDS, call.async_node.timeout_seconds / 10)

    def _run(self, future: Any) -> Any:
        loop = self._opened()[0]
        awaited = asyncio.ensure_future(future, loop=loop)
        awaited.add_done_callback(lambda _: loop.stop())
        # The loop of a notebook or of a test may run on the same thread.
        with _no_running_loop():
            while not awaited.done():
                # As in a task, a call that stops the loop or exits ends nothing but itself.
                with contextlib.suppress(SystemExit):
                    loop.run_forever()
        return awaited.result()

    def _fill(self, call_queue: CallQueue) -> None:
        while (call := call_queue.next()) is not None:
            self._opened()[0].call_later(self._drawn_delay(call), self._invoke, call)

    def _invoke(self, call: Call) -> None:
        call.started = call.async_node.now()
        call.async_node.begun()
        try:
            # On a thread of its own no loop would run, and the function may run one.
            with _no_running_loop():
                call.result = answered(call.invoke())
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit is an outcome, too
            call.error = as_error(error)
        end_if_forked(self._process)
        call_queue = self._call_queues[call.async_node]
        for each in (call, *call_queue.ended(call)):
            self._announce(each)
        self._fill(call_queue)


@contextlib.contextmanager
def _no_running_loop() -> Iterator[None]:
    """Unset this thread's running event loop in the block."""
    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(outer)


class _VirtualLoop(CallLoop):
    """An event loop whose clock jumps."""

    def __init__(self) -> None:
        #: Functions that run on threads, each with what its coroutine waits for.
        self._threads: deque[tuple[asyncio.Future[Any], asyncio.Future[Any]]] = deque()
        self._jumping = _JumpingSelector(self._threads, self._hand_back)
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the virtual time, in seconds."""
        return self._jumping.now

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[_Ts]], _T], *args: *_Ts
    ) -> asyncio.Future[_T]:
        """Run a function on a thread, as ``asyncio.to_thread`` and the look-up of a host's name do. They come
        back in the order in which they began, unless one takes too long.
        """
        at_work = super().run_in_executor(executor, func, *args)
        back: asyncio.Future[_T] = self.create_future()
        self._threads.append((at_work, back))
        for each in (at_work, back):
            each.add_done_callback(lambda _: self._hand_back())
        return back

    def _hand_back(self) -> None:
        for at_work, back in [*self._threads]:
            if not (at_work.done() or back.done()):
                if self._jumping.patient:
                    return
                continue
            self._threads.remove((at_work, back))
            if back.done():
                at_work.cancel()  # the call was given up
            elif at_work.cancelled():
                back.cancel()
            elif (error := at_work.exception()) is not None:
                back.set_exception(error)
            else:
                back.set_result(at_work.result())


class _JumpingSelector(selectors.DefaultSelector):
    """Waits for sockets and threads only; else moves the virtual clock by the time to wait.

    :param threads: not empty while functions run on threads.
    :param impatient: called when they take long.
    """

    now = 0.0
    _waited_seconds = 0.0
    _restless = 0

    def __init__(self, threads: Sized, impatient: Callable[[], None]) -> None:
        super().__init__()
        self._threads = threads
        self._impatient = impatient

    @property
    def patient(self) -> bool:
        """True if the virtual clock does not move while functions run on threads."""
        return self._waited_seconds <= _THREAD_SECONDS

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the sockets that are ready."""
        found = super().select(0)
        if found or timeout == 0:
            self._restless += 1
            if self._restless > _RESTLESS_ROUNDS:
                self.now += _ROUND_SECONDS
            return found
        self._restless = 0
        # The loop's own pipe is always registered: a thread wakes the loop through it.
        outside = len(self.get_map()) > 1
        if not self._threads:
            self._waited_seconds = 0.0
            if timeout is not None and not outside:
                self.now += timeout
                return []
        began = time.monotonic()
        found = super().select(_LOOK_SECONDS if timeout is None else min(timeout, _LOOK_SECONDS))
        waited = time.monotonic() - began
        self._waited_seconds += waited
        if outside or not self.patient:
            self.now += waited
        if not self.patient:
            self._impatient()
        return found
