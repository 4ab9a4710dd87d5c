"""The machine's clocks."""

from __future__ import annotations

import time


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
