"""Implements the port ``Clock`` on the machine's own clocks."""

from __future__ import annotations

import time
from collections.abc import Callable

from airflow_kstreams.streams.ports import Clock


class SystemClock:
    """The port ``Clock`` on the machine's own clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Return epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic_seconds(self) -> float:
        """Return seconds that never run backwards."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


def steady_ms(clock: Clock) -> Callable[[], int]:
    """Return a function that gives epoch milliseconds, and does not jump when the machine's clock is set."""
    began_ms, began = clock.now_ms(), clock.monotonic_seconds()
    return lambda: began_ms + round((clock.monotonic_seconds() - began) * 1000)
