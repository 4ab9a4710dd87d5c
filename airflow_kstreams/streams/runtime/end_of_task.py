"""The end of a run for one task: brings its stream time to a moment, once all of its records are processed.

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
from airflow_kstreams.streams.runtime.execution import Execution


def next_needed_ms(clocks: Sequence[StreamClock]) -> int | None:
    """Return the first stream time for which a run is worth it though no record comes; None if there is none.

    :param clocks: stream time of each stage.
    """
    needed_ms = min(clock.next_needed_ms for clock in clocks)
    return None if needed_ms == NEVER else needed_ms


def pass_moments(
    to_ms: int, clocks: Sequence[StreamClock], execution: Execution, *, held: Callable[[], bool]
) -> Iterator[None]:
    """Bring stream time to a moment; yields between two moments, where the task may be committed.

    A task without stream time stays without: it never saw a record, or nothing in it goes by time.

    :param clocks: stream time of each stage.
    :param held: says whether records are parked that may be dated before any moment.
    """
    if clocks[-1].latest_ms < 0 or held():
        return
    execution.emit()
    first_ms = clocks[-1].latest_ms
    for clock in clocks:
        for topic, its in clock.topics.items():
            if its.time_ms < 0:
                clock.advance(topic, min(first_ms, to_ms))
    passed = False
    while not held() and (moment_ms := _next_moment_ms(clocks, to_ms)) <= to_ms:
        if passed:
            yield
        execution.pass_time(moment_ms)
        execution.emit()
        passed = True
    for clock in () if held() else clocks:
        clock.bring_to(to_ms)


def _next_moment_ms(clocks: Sequence[StreamClock], to_ms: int) -> int:
    """Return the next moment to pass: the first that a run is worth, else the last if anything is due."""
    needed_ms = min(clock.next_needed_ms for clock in clocks)
    due_ms = min(clock.next_due_ms for clock in clocks)
    return to_ms if due_ms <= to_ms < needed_ms else needed_ms
