"""Measures one attempt of a task.

Its cost is two additions per chunk of records: the loop reads the clock before and after each chunk in any
case, and passes both times. Chunks shorter than ``SAMPLE_SECONDS`` are added up until they last that long and
become one sample, in which every record counts with the sample's mean. A chunk is 2,000 records at most, and
as few as one where functions are slow, so a slow function is measured record by record.
"""

from __future__ import annotations

from airflow_kstreams.batch.protocol.offsets.task_metrics import TaskMetrics
from airflow_kstreams.streams.figures.call_figures import CallFigures, added_calls
from airflow_kstreams.streams.figures.latencies import LatencyRecorder

#: Long beside a sample's own cost, two thousandths of that; short beside the times that people ask for.
SAMPLE_SECONDS = 0.0005

_NS = 1_000_000_000


class TaskMeter:
    """The measurements of one attempt, on top of what earlier ones had committed.

    :param before: measurements that those had committed for the slice; None if they are not known.
    :param restore_seconds: how long this attempt restored its stores.
    """

    def __init__(self, before: TaskMetrics | None, *, restore_seconds: float = 0.0) -> None:
        self._before = before
        calls = None if before is None else before.calls
        self._calls_before = None if calls is None else calls.of_earlier_attempt()
        self._restore_ns = round(restore_seconds * _NS)
        self._opened: float | None = None
        self._process = LatencyRecorder()
        self._commit = LatencyRecorder()
        self._records = 0
        self._seconds = 0.0

    def opened(self, now_seconds: float) -> None:
        """Count the task as ready to process from now on."""
        self._opened = now_seconds

    def processed(self, records: int, seconds: float) -> None:
        """Count records as processed.

        :param records: one at least.
        """
        if seconds >= SAMPLE_SECONDS:
            self._end_sample()
            self._process.record(seconds, records)
            return
        self._records += records
        self._seconds += seconds
        if self._seconds >= SAMPLE_SECONDS:
            self._end_sample()

    def committed(self, seconds: float) -> None:
        """Count a commit."""
        self._commit.record(seconds)

    def metrics(
        self, now_seconds: float, *, lag: int | None, calls: CallFigures | None = None
    ) -> TaskMetrics | None:
        """Return what was measured up to now; None where it is not known what earlier attempts measured.

        :param lag: as in ``TaskMetrics``.
        :param calls: of this attempt; None of a task that makes none.
        """
        if self._before is None:
            return None
        self._end_sample()
        since = now_seconds if self._opened is None else self._opened
        return TaskMetrics(
            self._before.process + self._process.latencies(),
            self._before.commit + self._commit.latencies(),
            self._before.active_ns + round((now_seconds - since) * _NS),
            self._restore_ns,
            lag,
            None if calls is None else added_calls(self._calls_before, calls),
        )

    def _end_sample(self) -> None:
        if self._records:
            self._process.record(self._seconds, self._records)
            self._records, self._seconds = 0, 0.0
