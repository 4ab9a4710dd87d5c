"""Calls of coroutine functions on an event loop; everything here runs on the loop's thread.

Rule: each call is a task of its own on the loop, and ends once: with what its function gave, or at
``timeout_ms``. Then it is cancelled; a call that swallows that has a moment more and is abandoned: its record
goes on with the error, another call takes its place, and what it still does is nobody's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence

from airflow_kstreams.streams.calls import abandoned
from airflow_kstreams.streams.calls.call import Call, Station, as_error
from airflow_kstreams.streams.calls.turnstile import Turnstile

#: How long a cancelled call may take to end.
GRACE_SECONDS = 1.0


class LoopCalls:
    """The running calls of a task's coroutine functions.

    :param loop: runs them.
    :param announce: takes each call that has ended.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stations: Sequence[Station],
        announce: Callable[[Call], None],
        *,
        begin: Callable[[Call], asyncio.Future[object] | None] = lambda call: None,
    ) -> None:
        self._loop = loop
        self._announce = announce
        self._begin = begin
        self._turnstiles = {station: Turnstile(station) for station in stations}
        #: Of each node, in the order in which they began: the first is the next to time out.
        self._running: dict[Station, dict[Call, asyncio.Task[None]]] = {station: {} for station in stations}
        self._watches: dict[Station, asyncio.TimerHandle] = {}
        self._process = os.getpid()
        self._stopping = False

    def add(self, call: Call) -> None:
        """Let a call run as soon as its node's options allow."""
        station = call.station
        try:
            self._turnstiles[station].add(call)
        except Exception as error:  # a key that cannot be told from others
            call.error = error
            self._announce(call)
            return
        self._fill(station)

    def current(self) -> Call | None:
        """Return the call that the loop is at, from any thread; None if it is at none."""
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
        tasks = [task for running in self._running.values() for task in running.values()]
        for running in self._running.values():
            for call in running:
                call.given_up = True
        for task in tasks:
            task.cancel()
        if tasks:
            # Those that swallow it end with the loop, which runs no more of them.
            await asyncio.wait(tasks, timeout=GRACE_SECONDS)

    def _fill(self, station: Station) -> None:
        turnstile, running = self._turnstiles[station], self._running[station]
        while not self._stopping and (call := turnstile.next()) is not None:
            call.started = self._loop.time()
            running[call] = self._loop.create_task(self._perform(call))
            if station not in self._watches:
                self._watch(station, call)

    async def _perform(self, call: Call) -> None:
        try:
            waiting = self._begin(call)
            if waiting is not None:
                await waiting
            result = await call.invoke()
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
        if os.getpid() != self._process:
            os._exit(
                70
            )  # a child that the call forked: it has the parent's connections, and no part in its work
        self._end(call)

    def _end(self, call: Call) -> None:
        station = call.station
        if self._running[station].pop(call, None) is None:
            return  # abandoned
        not_made = self._turnstiles[station].ended(call)
        for each in (call, *not_made):
            self._announce(each)
        self._fill(station)

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
