"""A world of processes and threads under one seeded scheduler, with a clock of its own.

Rule: one thread runs at a time, and hands over only where it makes a port call, waits or ends. Who goes on is
drawn from the world's own random source, and time passes only by what is drawn or waited for. So a seed gives
the same interleaving every time.

A process that dies takes its threads with it: each gets ``ProcessDied`` where it stands, and nothing it still
tries on its way out has any effect.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from greenlet import getcurrent, greenlet

from tests.simulation.machines import EPOCH_SECONDS, Machine, ProcessClock

#: What one step of a thread costs, seconds of the world's time.
_STEP_SECONDS = 0.001
#: A run that takes more steps than this is stuck; those of seeds take about a thousand.
MAX_STEPS = 40_000


class ProcessDied(BaseException):
    """The process this thread belongs to is no more."""


class StuckError(Exception):
    """Nobody can go on, or nobody ever ends."""


@dataclass(eq=False, slots=True, kw_only=True)
class Ending:
    """How a process ended, as whoever supervises it sees it.

    :param value: what it returned.
    :param error: what it raised.
    :param lost: whether it was given up while it is still alive.
    """

    value: Any = None
    error: Exception | None = None
    died: bool = False
    lost: bool = False


@dataclass(eq=False, slots=True)
class Process:
    """A process of the world.

    :param name: of this one, in traces.
    :param role: what kind it is: capture, driver, task, finish.
    :param machine: on which it runs.
    """

    name: str
    role: str
    world: World
    machine: Machine = field(default_factory=Machine)
    alive: bool = True
    ending: Ending | None = None
    threads: list[Thread] = field(default_factory=list)
    waiting: list[Thread] = field(default_factory=list)

    @property
    def clock(self) -> ProcessClock:
        """Its clock."""
        return ProcessClock(self.world, self.machine)

    def kill(self) -> None:
        """End it: its threads unwind where they stand."""
        if not self.alive:
            return
        self.alive = False
        self.world.died(self)
        self._end(Ending(died=True))
        for thread in self.threads:
            self.world.wake(thread)

    def lose(self) -> None:
        """Let its supervisor believe that it is dead."""
        self._end(Ending(lost=True))

    def wait(self) -> Ending:
        """Wait until it ended, or was given up."""
        while self.ending is None:
            self.world.block(self.waiting)
        return self.ending

    def _end(self, ending: Ending) -> None:
        if self.ending is None:
            self.ending = ending
            waiting, self.waiting = self.waiting, []
            for thread in waiting:
                self.world.wake(thread)

    def _run(self, body: Callable[[], Any]) -> None:
        try:
            value = body()
        except ProcessDied:
            self._end(Ending(died=True))
        except Exception as error:
            self._end(Ending(error=error))
        else:
            self._end(Ending(value=value))
        self.alive = False
        for thread in self.threads:
            self.world.wake(thread)


@dataclass(eq=False, slots=True)
class Thread:
    """A thread of a process."""

    process: Process
    body: Callable[[], None]
    greenlet: Any = None
    done: bool = False
    ready: bool = False
    nap: int = -1
    joining: list[Thread] = field(default_factory=list)


class World:
    """See the module. It is also the port ``Clock``.

    :param random: of the scheduler.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self.seconds = 0.0
        self.steps = 0
        #: When which processes died, epoch milliseconds, and their names.
        self.deaths: list[tuple[int, str]] = []
        #: Called before a process takes a step on local files; it may let the process die.
        self.file_step: Callable[[Process, str], None] = lambda process, step: None
        self._over = False
        self.current: Thread | None = None
        self._hub: Any = getcurrent()
        self._ready: list[Thread] = []
        self._sleeping: list[tuple[float, int, Thread]] = []
        self._numbers = itertools.count()
        self.processes: list[Process] = []
        self._threads = 0

    # == the port Clock

    def now_ms(self) -> int:
        return round((EPOCH_SECONDS + self.seconds) * 1000)

    def monotonic_seconds(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        until = self.seconds + max(seconds, 0.0)
        while self.doze(until):
            pass

    def doze(self, until: float) -> bool:
        """Wait until a time or until woken, whichever is first; say whether the time is still to come."""
        thread = self._this()
        thread.nap = next(self._numbers)
        heapq.heappush(self._sleeping, (until, thread.nap, thread))
        self._leave(thread)
        thread.nap = -1
        return self.seconds < until

    # == processes and threads

    def start(self, name: str, role: str, body: Callable[[], Any], machine: Machine | None = None) -> Process:
        """Start a process; it runs when the scheduler picks it.

        :param machine: on which; one with a true clock unless given.
        """
        process = Process(name, role, self, machine or Machine())
        self.processes.append(process)
        self.spawn(process, lambda: process._run(body))
        return process

    def spawn(self, process: Process, body: Callable[[], None]) -> Thread:
        """Start another thread of a process."""
        thread = Thread(process, body)
        process.threads.append(thread)
        thread.greenlet = greenlet(lambda: self._thread(thread), self._hub)
        self._threads += 1
        self.wake(thread)
        return thread

    def died(self, process: Process) -> None:
        """Take note of a death."""
        if not self._over:
            self.deaths.append((self.now_ms(), process.name))

    def process(self) -> Process:
        """Return the process that runs."""
        return self._this().process

    def step(self) -> None:
        """Let others go on, maybe, where a thread makes a port call."""
        self.seconds += _STEP_SECONDS
        sleeping = self._sleeping
        if self._ready or (sleeping and sleeping[0][0] <= self.seconds):
            thread = self._this()
            self.wake(thread)
            self._leave(thread)

    def block(self, waiting: list[Thread]) -> None:
        """Wait to be woken."""
        thread = self._this()
        waiting.append(thread)
        self._leave(thread)

    def wake(self, thread: Thread) -> None:
        """Let a thread go on."""
        if not thread.ready and not thread.done:
            thread.ready = True
            self._ready.append(thread)

    def run(self, main: Process) -> None:
        """Run until a process ended; then whatever is left dies.

        :raises StuckError: it never ends.
        """
        try:
            self._until(lambda: main.ending is not None and not main.threads)
        finally:
            self._over = True
            for process in self.processes:
                process.kill()
            self.steps = 0
            self._until(lambda: not self._threads)

    def _until(self, over: Callable[[], bool]) -> None:
        while not over():
            sleeping = self._sleeping
            if not self._ready:
                if not sleeping:
                    raise StuckError("nobody can go on")
                self.seconds = max(self.seconds, sleeping[0][0])
            while sleeping and sleeping[0][0] <= self.seconds:
                _, nap, sleeper = heapq.heappop(sleeping)
                if sleeper.nap == nap:
                    self.wake(sleeper)
            ready = self._ready
            if not ready:
                continue  # whoever slept was woken earlier
            thread = ready.pop(self._random.randrange(len(ready)) if len(ready) > 1 else 0)
            thread.ready = False
            if thread.done:
                continue
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise StuckError(f"no end after {MAX_STEPS} steps")
            self.current = thread
            thread.greenlet.switch()

    def _this(self) -> Thread:
        thread = self.current
        if thread is None:
            raise StuckError("outside any process")
        if not thread.process.alive:
            raise ProcessDied
        return thread

    def _leave(self, thread: Thread) -> None:
        self._hub.switch()
        if not thread.process.alive:
            raise ProcessDied

    def _thread(self, thread: Thread) -> None:
        try:
            if thread.process.alive:
                thread.body()
        except ProcessDied:
            pass
        finally:
            thread.done = True
            self._threads -= 1
            thread.process.threads.remove(thread)
            for joining in thread.joining:
                self.wake(joining)
