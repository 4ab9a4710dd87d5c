"""Wall-clock timers of one task.

Rule: a timer calls back once when its moment has come, however many periods have passed since, and the next
moment lies on its own grid; as in Kafka Streams. The host looks at the clock between records. What depends on
the wall clock is not the same when a run is repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from airflow_kstreams.streams.records.record_context import TaskRecordContext


def system_clock_ms() -> int:
    """Return the machine's time, epoch milliseconds."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class WallClockTimer:
    """A repeating timer.

    :ivar due_ms: when it calls back next, epoch milliseconds.
    """

    interval_ms: int
    due_ms: int
    callback: Callable[[int], None]


class TaskWallClock:
    """The wall clock as one task sees it, and the timers on it.

    :param now_ms: the time, epoch milliseconds.
    """

    def __init__(self, now_ms: Callable[[], int], record_context: TaskRecordContext) -> None:
        self.now_ms = now_ms
        self._record_context = record_context
        self._timers: list[WallClockTimer] = []

    def every(self, interval_ms: int, callback: Callable[[int], None]) -> Callable[[], None]:
        """Call back every so often, first when one interval has passed.

        :param callback: gets the wall-clock time.
        :return: cancels the timer; may be called twice.
        """
        timer = WallClockTimer(interval_ms, self.now_ms() + interval_ms, callback)
        self._timers.append(timer)

        def cancel() -> None:
            if timer in self._timers:
                self._timers.remove(timer)

        return cancel

    def due(self) -> bool:
        """Say whether anything is due."""
        if not self._timers:
            return False
        now_ms = self.now_ms()
        return any(timer.due_ms <= now_ms for timer in self._timers)

    def fire(self) -> bool:
        """Call back whatever is due, and say whether anything was."""
        if not self._timers:
            return False
        now_ms = self.now_ms()
        due = [timer for timer in self._timers if timer.due_ms <= now_ms]
        context = self._record_context
        before = context.timestamp_ms
        for timer in due:
            if timer not in self._timers:  # an earlier callback cancelled it
                continue
            context.record = None
            context.timestamp_ms = now_ms
            timer.due_ms += ((now_ms - timer.due_ms) // timer.interval_ms + 1) * timer.interval_ms
            timer.callback(now_ms)
        context.timestamp_ms = before
        return bool(due)
