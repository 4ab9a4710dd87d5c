"""Runs the calls of a task on its own thread, in virtual time, and draws from a seed when each of them ends.

Rule: when the task waits, the event loop runs until a call has ended, or until all that run have; a draw
decides. Then one of those that have ended, a drawn one, is handed over. A coroutine that sleeps takes no
time: when nothing else is to do, the loop's clock jumps to the next moment that something waits for. Only for
what comes from outside, a socket or a thread, it really waits. Plain functions run at a drawn moment, one by
one.

So any order in which calls may end in production can be drawn, and a seed always draws the same.
"""

from __future__ import annotations

import asyncio
import random
import selectors
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from airflow_kstreams.streams.call_figures import ThreadState
from airflow_kstreams.streams.calls.call import Call, Station, as_error
from airflow_kstreams.streams.calls.loop_calls import LoopCalls
from airflow_kstreams.streams.calls.resources import closing, is_asynchronous, open_resources
from airflow_kstreams.streams.calls.starting_loop import StartingLoop
from airflow_kstreams.streams.calls.turnstile import Turnstile

#: For how long a call is held up before it begins, at most, in virtual seconds.
_HELD_UP_SECONDS = 0.01
#: Share of the calls that are held up, and of the times when the task waits for all that run.
_HELD_UP, _ALL_OF_THEM = 0.5, 0.3
#: How often a socket is looked at.
_LOOK_SECONDS = 0.02


class SeededCaller:
    """The calls of one task.

    :param stations: its asynchronous nodes.
    :param seed: of the draws.
    """

    #: Virtual time does not pass while the task waits.
    patience_seconds = float("inf")
    #: The task's own thread runs everything.
    threads_replaced = 0

    def __init__(self, stations: Sequence[Station], *, seed: int) -> None:
        self._stations = tuple(stations)
        self._rng = random.Random(seed)  # noqa: S311 - draws, no secret
        self._running: tuple[_VirtualLoop, LoopCalls] | None = None
        self._ended: list[Call] = []
        self._turnstiles = {station: Turnstile(station) for station in stations if station.options.threads}
        self._resources = AsyncExitStack()
        self._under_way = 0
        #: How many ended calls the task waits for, and the future that says that they have.
        self._wanted: tuple[int, asyncio.Future[None]] | None = None

    def open(self) -> None:
        """Start what runs the calls, and open the nodes' resources, each once."""
        on_loop = [station for station in self._stations if not station.options.threads]
        loop = _VirtualLoop()
        for station in self._stations:
            station.now = loop.time
        self._running = loop, LoopCalls(loop, on_loop, self._announce, begin=self._hold_up)
        open_resources(self._stations, self._entered)

    def start(self, call: Call) -> None:
        """Let a call run as soon as its node's options allow."""
        self._under_way += 1
        turnstile = self._turnstiles.get(call.station)
        if turnstile is None:
            loop, calls = self._opened()
            calls.inbox.append(call)
            loop.call_soon(calls.fill)
            return
        try:
            turnstile.add(call)
        except Exception as error:  # a key that cannot be told from others
            call.error = error
            self._announce(call)
            return
        self._fill(turnstile)

    def hurry(self) -> None:
        """Do nothing: calls run when the task waits."""

    def ended(self, wait_seconds: float) -> Sequence[Call]:
        """Return a call that has ended, a drawn one; none unless the task waits for it."""
        if not wait_seconds or not self._under_way:
            return ()
        wanted = self._under_way if self._rng.random() < _ALL_OF_THEM else 1
        if len(self._ended) < wanted:
            self._wanted = wanted, self._opened()[0].create_future()
            self._run(self._wanted[1])
            self._wanted = None
        self._under_way -= 1
        return [self._ended.pop(self._rng.randrange(len(self._ended)))]

    def thread_states(self) -> Sequence[ThreadState]:
        """Return nothing: no thread of its own runs calls."""
        return ()

    def close(self) -> None:
        """Give up what runs, and close the resources."""
        if self._running is None:
            return
        loop, calls = self._running
        task_id = next((station.task_id for station in self._stations), "")
        with closing("what runs the calls", task_id):
            self._run(calls.stop())
        with closing("a resource", task_id):
            self._run(self._resources.aclose())
        loop.close()
        self._running = None

    def _opened(self) -> tuple[_VirtualLoop, LoopCalls]:
        if self._running is None:
            raise RuntimeError("a call before the task is open, or behind its end")
        return self._running

    def _entered(self, manager: Any, seconds: float) -> Any:
        if is_asynchronous(manager):
            return self._run(asyncio.wait_for(self._resources.enter_async_context(manager), seconds))
        return self._resources.enter_context(manager)

    def _announce(self, call: Call) -> None:
        self._ended.append(call)
        if self._wanted is not None and len(self._ended) >= self._wanted[0] and not self._wanted[1].done():
            self._wanted[1].set_result(None)

    def _hold_up(self, call: Call) -> asyncio.Future[Any] | None:
        if self._rng.random() < _HELD_UP:
            return self._opened()[0].create_task(asyncio.sleep(self._drawn_delay()))
        return None

    def _drawn_delay(self) -> float:
        return self._rng.random() * _HELD_UP_SECONDS

    def _run(self, future: Any) -> Any:
        loop = self._opened()[0]
        # Around it may be the loop of a notebook or of a test, on the same thread.
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            return loop.run_until_complete(future)
        finally:
            asyncio._set_running_loop(outer)

    def _fill(self, turnstile: Turnstile) -> None:
        while (call := turnstile.next()) is not None:
            self._opened()[0].call_later(self._drawn_delay(), self._invoke, call)

    def _invoke(self, call: Call) -> None:
        call.started = call.station.now()
        call.station.begun()
        try:
            call.result = call.invoke()
        except (Exception, SystemExit) as error:
            call.error = as_error(error)
        turnstile = self._turnstiles[call.station]
        for each in (call, *turnstile.ended(call)):
            self._announce(each)
        self._fill(turnstile)


class _VirtualLoop(StartingLoop):
    """An event loop whose clock jumps."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the virtual time, in seconds."""
        return self._jumping.now


class _JumpingSelector(selectors.DefaultSelector):
    """Waits for what comes from outside only; else it lets the time pass that it should wait."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready."""
        found = super().select(0)
        if found or timeout == 0:
            return found
        # The loop's own pipe is always there: a thread wakes it by that.
        if timeout is None or len(self.get_map()) > 1:
            began = time.monotonic()
            found = super().select(_LOOK_SECONDS if timeout is None else min(timeout, _LOOK_SECONDS))
            self.now += time.monotonic() - began
            return found
        self.now += timeout
        return []
