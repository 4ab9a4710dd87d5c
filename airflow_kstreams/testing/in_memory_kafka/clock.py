"""Provides a clock that a test moves."""

from __future__ import annotations


class ManualClock:
    """The port ``Clock`` for tests; sleeping moves it instead of waiting.

    :param now_ms: its first time, epoch milliseconds.

    >>> clock = ManualClock(now_ms=1_000)
    >>> clock.sleep(2.5)
    >>> clock.now_ms()
    3500
    """

    def __init__(self, *, now_ms: int = 0) -> None:
        self._began_ms = now_ms
        self._seconds = 0.0

    def now_ms(self) -> int:
        """Return epoch milliseconds."""
        return self._began_ms + round(self._seconds * 1000)

    def monotonic_seconds(self) -> float:
        """Return the seconds since the clock was made."""
        return self._seconds

    def sleep(self, seconds: float) -> None:
        """Move the clock on."""
        self._seconds += max(0.0, seconds)
