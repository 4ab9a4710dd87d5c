"""Says how far a task's restore is."""

from __future__ import annotations

import logging

from airflow_kstreams.streams.ports import Clock

log = logging.getLogger(__name__)

#: Between two lines of the log. Seldom enough for a log of many tasks, often enough to see that one lives.
_EVERY_SECONDS = 5.0


class RestoreProgress:
    """Counts what was replayed, and logs it every five seconds and once at the end.

    :param task_id: printed.
    :param offsets: how many offsets there are to replay in all; the records among them are not known before,
        because compaction and transaction markers leave gaps.
    """

    def __init__(self, task_id: str, offsets: int, clock: Clock) -> None:
        self.task_id = task_id
        self.records = 0
        self.size_bytes = 0
        self._offsets = offsets
        self._passed = 0
        self._clock = clock
        self._started = self._logged = clock.monotonic_seconds()

    def add(self, *, records: int, size_bytes: int, offsets: int) -> None:
        """Count a batch.

        :param records: replayed.
        :param size_bytes: of their keys and values.
        :param offsets: by how many offsets the position moved on.
        """
        self.records += records
        self.size_bytes += size_bytes
        self._passed += offsets
        now = self._clock.monotonic_seconds()
        if now - self._logged >= _EVERY_SECONDS:
            self._logged = now
            log.info(
                "task %s: restored %s changelog records, %.1f MB, %d %%, about %.0f s left",
                self.task_id,
                f"{self.records:,}",
                self.size_bytes / 1e6,
                100 * self._passed // max(1, self._offsets),
                self.seconds_left(),
            )

    def seconds_left(self) -> float:
        """Return how long the rest takes at the pace so far; 0 before anything was replayed."""
        if not self._passed:
            return 0.0
        spent = self._clock.monotonic_seconds() - self._started
        return spent * max(0, self._offsets - self._passed) / self._passed

    def finish(self) -> None:
        """Log the total, unless nothing was replayed."""
        if not self.records:
            return
        seconds = self._clock.monotonic_seconds() - self._started
        log.info(
            "task %s: restored %s changelog records, %.1f MB, in %.1f s (%s records/s)",
            self.task_id,
            f"{self.records:,}",
            self.size_bytes / 1e6,
            seconds,
            f"{self.records / seconds if seconds else self.records:,.0f}",
        )
