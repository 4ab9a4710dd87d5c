"""Clocks of processes that wait for another's lease, and what the other does meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from airflow_kstreams.streams.ports import Clock


class WaitingClock:
    """A clock of a process that waits; at every wait something happens elsewhere.

    :param clock: passes the time.
    :param meanwhile: called after each wait, as ``owner.lease.renew`` of a driver that is alive.
    :param ahead_ms: by how much this machine's wall clock is ahead.
    :ivar waited_seconds: how long the process has waited so far.
    """

    def __init__(
        self, clock: Clock, meanwhile: Callable[[], object] = lambda: None, *, ahead_ms: int = 0
    ) -> None:
        self._clock = clock
        self._meanwhile = meanwhile
        self._ahead_ms = ahead_ms
        self.waited_seconds = 0.0

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._ahead_ms

    def monotonic_seconds(self) -> float:
        return self._clock.monotonic_seconds()

    def sleep(self, seconds: float) -> None:
        self.waited_seconds += seconds
        self._clock.sleep(seconds)
        self._meanwhile()
