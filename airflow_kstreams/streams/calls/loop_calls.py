"""Calls of coroutine functions on an event loop; everything here runs on the loop's thread.

Rule: each call is a task of its own on the loop, with a context of its own, and ends once: with what its
function gave, or at ``timeout_ms``. Then it is cancelled; a call that swallows that has a moment more and is
abandoned: its record goes on with the error, another call takes its place, and what it still does is
nobody's. Where a call ends, the next one begins at once, in the same step of the loop; those that end without
ever waiting give the loop its turn after so many as may run.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections import deque
from collections.abc import Callable, Sequence

from airflow_kstreams.streams.calls import abandoned
from airflow_kstreams.streams.calls.call import Call, Station, as_error, end_if_forked
from airflow_kstreams.streams.calls.starting_loop import StartingLoop
from airflow_kstreams.streams.calls.turnstile import Turnstile
from airflow_kstreams.streams.hints.function_checks import answered

#: How long a cancelled call may take to end.
GRACE_SECONDS = 1.0


class LoopCalls:
    """The running calls of a task's coroutine functions.

    :param loop: runs them.
    :param announce: takes each call that has ended.
    :ivar inbox: calls to run as soon as their nodes' options allow. Any thread may add to it; calls are taken
        out where a place comes free, and by :meth:`fill`.
    """

    def __init__(
        self,
        loop: StartingLoop,
        stations: Sequence[Station],
        announce: Callable[[Call], None],
        *,
        begin: Callable[[Call], asyncio.Future[object] | None] | None = None,
    ) -> None:
        self._loop = loop
        self._announce = announce
        self._begin = begin
        self.inbox: deque[Call] = deque()
        #: Of each call a copy: none sees what another one sets.
        self._context = contextvars.copy_context()
        self._turnstiles = {station: Turnstile(station) for station in stations}
        self._most = sum(station.max_in_flight for station in stations)
        #: Of each node, in the order in which they began: the first is the next to time out.
        self._running: dict[Station, dict[Call, asyncio.Task[None] | None]] = {
            station: {} for station in stations
        }
        self._watches: dict[Station, asyncio.TimerHandle] = {}
        self._process = os.getpid()
        #: The call that takes its first step.
        self._starting: Call | None = None
        self._filling = self._stopping = False

    @property
    def free(self) -> bool:
        """Whether a node may have a call begin, as far as their number goes. Whoever adds to the inbox and
        sees no free place may leave it at that: where a place comes free, the inbox is looked at.
        """
        return any(turnstile.free for turnstile in self._turnstiles.values())

    @property
    def backlog(self) -> bool:
        """Whether calls wait for others to end before they begin."""
        return any(turnstile.ready for turnstile in self._turnstiles.values())

    def fill(self) -> None:
        """Let calls begin as far as there are places."""
        if self._filling:
            return  # a call that ended in its first step: the loop below takes the next one
        self._filling = True
        begun = 0
        while not self._stopping and begun < self._most and (call := self._next()) is not None:
            self._start(call)
            begun += 1
        self._filling = False
        if begun and begun == self._most:
            self._loop.call_soon(self.fill)

    def current(self) -> Call | None:
        """Return the call that the loop is at, from any thread; None if it is at none."""
        if (starting := self._starting) is not None:
            return starting
        at = asyncio.current_task(self._loop)
        for running in list(self._running.values()):
            for call, task in list(running.items()):
                if task is at:
                    return call
        return None

    async def stop(self) -> None:
        """Cancel what runs, and wait a moment for it."""
        self._stopping = True
        for watch in self._watches.values():
            watch.cancel()
        tasks = [task for running in self._running.values() for task in running.values() if task is not None]
        for running in self._running.values():
            for call in running:
                call.given_up = True
        for task in tasks:
            task.cancel()
        if tasks:
            # Those that swallow it end with the loop, which runs no more of them.
            await asyncio.wait(tasks, timeout=GRACE_SECONDS)

    def _next(self) -> Call | None:
        """Return a call to begin now, None if there is none."""
        while True:
            free = False
            for turnstile in self._turnstiles.values():
                if (call := turnstile.next()) is not None:
                    return call
                free = free or turnstile.free
            if not free or not self.inbox:
                return None
            self._take_in()

    def _take_in(self) -> None:
        while self.inbox:
            call = self.inbox.popleft()
            try:
                self._turnstiles[call.station].add(call)
            except Exception as error:  # a key that cannot be told from others
                call.error = error
                self._announce(call)

    def _start(self, call: Call) -> None:
        station = call.station
        running = self._running[station]
        call.started = self._loop.time()
        running[call] = None
        self._starting = call
        task = self._loop.start(self._perform(call), self._context.copy())
        self._starting = None
        if call not in running:
            return  # it never waited
        running[call] = task
        if station not in self._watches:
            self._watch(station, call)

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
        station = call.station
        running = self._running[station]
        if call not in running:
            return  # abandoned
        del running[call]
        not_made = self._turnstiles[station].ended(call)
        self._announce(call)
        for each in not_made:
            self._announce(each)
        self.fill()

    def _watch(self, station: Station, first: Call) -> None:
        self._watches[station] = self._loop.call_at(
            first.started + station.timeout_seconds, self._give_up, station
        )

    def _give_up(self, station: Station) -> None:
        """Cancel the calls of a node that took too long, and look again when the next one has."""
        del self._watches[station]
        now = self._loop.time()
        for call, task in list(self._running[station].items()):
            if call.given_up:
                continue
            if call.started + station.timeout_seconds > now:
                self._watch(station, call)
                return
            call.given_up = True
            if task is not None:
                task.cancel()
            self._loop.call_later(GRACE_SECONDS, self._abandon, call)

    def _abandon(self, call: Call) -> None:
        task = self._running[call.station].get(call)
        if task is not None:
            abandoned.add(
                lambda: not task.done() and not self._loop.is_closed(),
                f"a cancelled call of node {call.station.node!r}",
            )
            call.error = call.timed_out()
            self._end(call)
