"""Brings stream time of a task to a moment, once all of its records are processed.

Rule: one moment at which a timer is due after the other, all topics together, and at last the moment itself.
So timers find the stream time that a record dated when they are due would have brought, and what follows
from one is there before the next one comes. What is only cleared away goes on the way, and makes no moments
of its own: a join by seconds has thousands of them an hour. A topic without a record yet takes the stream
time of the others first: what was due before the task's first record is not made up for. What is cached is
emitted before the first moment and behind each one, so that it is not late for windows below it that the
next one closes, and so that what comes out does not depend on where commits lie. Where a record is parked on
the way, the task stays at the moment that it has come to.

Between two moments nothing is under way, and the task may be committed: what has happened depends on the
stores and on stream time alone, which is restored with them, so an attempt that begins there goes on alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from airflow_kstreams.streams.graph.services import NEVER
from airflow_kstreams.streams.records.stream_clock import StreamClock
from airflow_kstreams.streams.runtime.pipeline.lanes import Lanes


class EndOfRun:
    """What is left to do in time for one task.

    :param clocks: stream time of each of its stages.
    :param lanes: takes steps through its stages; None if it has one.
    :param guarded: runs a step, and explains what fails in it.
    :param emit: emits what is cached.
    """

    def __init__(
        self,
        clocks: Sequence[StreamClock],
        lanes: Lanes | None,
        guarded: Callable[[Callable[[], None]], None],
        emit: Callable[[], None],
    ) -> None:
        self._clocks = clocks
        self._lanes = lanes
        self._guarded = guarded
        self._emit = emit

    @property
    def shown_ms(self) -> int:
        """Stream time that records, or the end of an earlier run, have brought; -1 if none did."""
        return self._clocks[-1].latest_ms

    @property
    def needed_ms(self) -> int | None:
        """The first stream time for which a run is worth it though no record comes; None if there is none."""
        needed_ms = min(clock.next_needed_ms for clock in self._clocks)
        return None if needed_ms == NEVER else needed_ms

    def advance(self, to_ms: int, held: Callable[[], bool]) -> Iterator[None]:
        """Bring stream time to a moment; yields between two moments, where the task may be committed.

        A task that has no stream time stays without: it never saw a record, or nothing in it goes by time.

        :param held: whether records are parked that may be dated before any moment.
        """
        if self.shown_ms < 0 or held():
            return
        self._emit()
        first_ms = self.shown_ms
        for clock in self._clocks:
            for topic, its in clock.topics.items():
                if its.time_ms < 0:
                    clock.advance(topic, min(first_ms, to_ms))
        passed = False
        while not held() and (moment_ms := self._next_moment_ms(to_ms)) <= to_ms:
            if passed:
                yield
            self._pass(moment_ms)
            self._emit()
            passed = True
        for clock in () if held() else self._clocks:
            clock.bring_to(to_ms)

    def _next_moment_ms(self, to_ms: int) -> int:
        """Return the next moment to pass: the first that a run is worth, else the last if anything is due."""
        needed_ms = min(clock.next_needed_ms for clock in self._clocks)
        due_ms = min(clock.next_due_ms for clock in self._clocks)
        return to_ms if due_ms <= to_ms < needed_ms else needed_ms

    def _pass(self, moment_ms: int) -> None:
        lanes = self._lanes
        if lanes is not None:
            self._guarded(lambda: lanes.pass_time(moment_ms))
            return
        (clock,) = self._clocks
        clock.bring_to(moment_ms)
        self._guarded(clock.fire)
