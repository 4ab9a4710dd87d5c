"""Runs the calls of a task in a world: other processes go on while it waits, and faults happen to it there.

Which call ends next is drawn (``SeededCaller``); here is drawn, too, how long that takes in the world's time,
and whether the task waits in vain. Some calls take so long that leases and transactions run out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from random import Random
from typing import Any

from airflow_kstreams.streams.calls.call import AsyncNode, Call
from airflow_kstreams.streams.figures.call_figures import ThreadState
from airflow_kstreams.testing.seeded_caller import SeededCaller
from tests.simulation.sometimes import sometimes
from tests.simulation.world import Process

#: Lets a process do something at which faults may happen: what it is called, the client, what it does.
At = Callable[[Process, str, object, Callable[[], Any]], Any]

#: Which attempt of a task a call belongs to: what runs its calls. Coroutines and functions inherit it.
ATTEMPT: ContextVar[object] = ContextVar("attempt")

#: How often a task waits in vain, and how often for something slow.
_IN_VAIN, _SLOW = 0.2, 0.02


class WorldCaller:
    """The calls of one attempt.

    :param at: has faults happen.
    :param slow_seconds: how long a slow call takes.
    """

    patience_seconds = 0.05
    threads_replaced = 0

    def __init__(
        self,
        async_nodes: Sequence[AsyncNode],
        *,
        random: Random,
        process: Process,
        at: At,
        slow_seconds: Sequence[float],
    ) -> None:
        self._random = random
        self._process = process
        self._at = at
        self._slow_seconds = slow_seconds
        self._inner = SeededCaller(async_nodes, seed=random.getrandbits(32))
        self._in_flight: list[Call] = []
        self._slow_until = 0.0

    def open(self) -> None:
        """Start what runs the calls."""
        ATTEMPT.set(self)
        self._at(self._process, "calls.open", self, self._inner.open)

    def start(self, call: Call) -> None:
        """Let a call run."""
        ATTEMPT.set(self)
        self._in_flight.append(call)
        self._at(self._process, "calls.start", self, partial(self._inner.start, call))

    def hurry(self) -> None:
        """Let what was started begin: it has."""

    def ended(self, wait_seconds: float) -> Sequence[Call]:
        """Return the calls that have ended: sooner or later, one after the other."""
        if not self._in_flight:
            return ()
        if not wait_seconds:
            return self._came_back() if self._random.random() < 0.1 else ()
        waited = partial(self._waited, wait_seconds)
        back: Sequence[Call] = self._at(self._process, "calls.ended", self, waited)
        return back

    def thread_states(self) -> Sequence[ThreadState]:
        """Return nothing: the process runs calls itself."""
        return ()

    def close(self) -> None:
        """Give up what runs."""
        if self._in_flight and not self._process.alive:
            sometimes("a task died while its calls were under way")
        self._inner.close()

    def _waited(self, wait_seconds: float) -> Sequence[Call]:
        clock, random = self._process.clock, self._random
        if self._slow_seconds and random.random() < _SLOW:
            seconds = random.choice(self._slow_seconds)
            self._slow_until = clock.monotonic_seconds() + seconds
            if seconds > 10:
                sometimes("a call took longer than a transaction may")
        if clock.monotonic_seconds() < self._slow_until:
            clock.sleep(wait_seconds)
            return ()
        clock.sleep(random.choice((0.0, 0.004, wait_seconds)))
        return () if random.random() < _IN_VAIN else self._came_back()

    def _came_back(self) -> Sequence[Call]:
        back = self._inner.ended(1.0)
        for call in back:
            if call is not self._in_flight[0]:
                sometimes("a call overtook one before it")
            self._in_flight.remove(call)
        return back
