"""A clock that stands still until a test moves it."""

from __future__ import annotations


class ManualClock:
    """The port ``Clock`` for tests; sleeping moves it instead of waiting.

    :param now_ms: where it starts, epoch milliseconds.

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
        """Return seconds since it was made."""
        return self._seconds

    def sleep(self, seconds: float) -> None:
        """Move on."""
        self._seconds += max(0.0, seconds)
