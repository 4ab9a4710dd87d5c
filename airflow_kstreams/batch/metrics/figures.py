"""Measures an attempt of a task, and gives the figures of tasks under Kafka Streams' names.

Rates are per second of a task's time, waiting for records included; of several tasks, per second of one
task's time. Latencies are in milliseconds. What is not known, because there was no room for it
beside a task's offsets, is None, and so is what nothing was measured for. Figures of calls and of the threads
that run them are in ``call_metrics.py``.

Measuring costs two additions per chunk of records: the loop reads the clock before and after each chunk in
any case, and passes both times. Chunks shorter than ``SAMPLE_SECONDS`` are added up until they last that long
and become one sample, in which every record counts with the sample's mean. A chunk is 2,000 records at most,
and as few as one where functions are slow, so a slow function is measured record by record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from airflow_kstreams.batch.metrics.call_metrics import (
    CALL_TOTALS,
    NODE_UNITS,
    THREAD_UNITS,
    call_lines,
    latency_figures,
    latency_text,
    per_second,
    rate_text,
)
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskMetrics, TaskReport, metrics_in_all
from airflow_kstreams.streams.figures.call_figures import CallFigures, LatencyRecorder, added_calls

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


#: Figures that add up over tasks and runs. Every other one is a state or a rate.
TOTALS = frozenset(
    ("process-total", "dropped-records-total", "dead-letter-records-total", "commit-total", "restore-total")
)
#: Every figure, and its unit: records, offsets, commits, those per second (``/s``), or milliseconds.
UNITS = {
    "process-total": "records",
    "process-rate": "records/s",
    "process-latency-avg": "ms",
    "process-latency-p50": "ms",
    "process-latency-p99": "ms",
    "process-latency-max": "ms",
    "dropped-records-total": "records",
    "dropped-records-rate": "records/s",
    "dead-letter-records-total": "records",
    "commit-total": "commits",
    "commit-latency-avg": "ms",
    "commit-latency-p50": "ms",
    "commit-latency-p99": "ms",
    "commit-latency-max": "ms",
    "restore-total": "records",
    "restore-rate": "records/s",
    "records-lag": "offsets",
}
#: What became of records, by topic or by node; see ``RecordCounts``.
COUNTS = ("records-consumed-total", "records-produced-total", "records-left-out-total")
#: Everything that has a name, and its unit.
ALL_UNITS = {**UNITS, **NODE_UNITS, **THREAD_UNITS, **dict.fromkeys(COUNTS, "records")}
#: What of that adds up.
ALL_TOTALS = TOTALS | CALL_TOTALS | frozenset(COUNTS)


def airflow_name(name: str) -> str:
    """Return a figure's name as Airflow's metrics are named, without their prefix."""
    return f"kstreams.{name.replace('-', '_')}"


def figures(reports: Sequence[TaskReport]) -> dict[str, float | None]:
    """Return the figures of a task, or of several together, by name.

    :param reports: of different tasks.
    """
    metrics = metrics_in_all(report.metrics for report in reports)
    dropped = sum(report.records_dropped for report in reports)
    restored = sum(report.restored for report in reports)
    found: dict[str, float | None] = {
        "process-total": sum(report.records_in for report in reports),
        "dropped-records-total": dropped,
        "dead-letter-records-total": sum(report.records_dead_lettered for report in reports),
        "commit-total": sum(report.commits for report in reports),
        "restore-total": restored,
    }
    if metrics is not None:
        found |= {
            "process-rate": per_second(metrics.process.count, metrics.active_ns),
            "dropped-records-rate": per_second(dropped, metrics.active_ns),
            "restore-rate": per_second(restored, metrics.restore_ns) if restored else None,
            "records-lag": metrics.lag,
            **latency_figures("process", metrics.process),
            **latency_figures("commit", metrics.commit),
        }
    return {name: found.get(name) for name in UNITS}


def slowest_first(reports: Iterable[TaskReport]) -> list[TaskReport]:
    """Return reports, those of the tasks that needed most time to process first; unknown ones last."""
    return sorted(reports, key=lambda report: (-_processing_ns(report.metrics), report.task_id))


def speed_text(reports: Sequence[TaskReport]) -> str:
    """Return how fast tasks were, in one line.

    :param reports: of different tasks.
    """
    metrics = metrics_in_all(report.metrics for report in reports)
    if metrics is None:
        return "speed unknown"
    found = figures(reports)
    commits = sum(report.commits for report in reports)
    seen = (
        "" if metrics.commit.count == commits else f" ({metrics.commit.count} of {commits} commits measured)"
    )
    parts = [
        f"process-rate {rate_text(found['process-rate'])}",
        f"process-latency p50 {latency_text(found['process-latency-p50'])}, "
        f"p99 {latency_text(found['process-latency-p99'])}",
        f"commit-latency avg {latency_text(found['commit-latency-avg'])}, "
        f"max {latency_text(found['commit-latency-max'])}{seen}",
    ]
    if found["restore-total"]:
        parts.append(f"restore-rate {rate_text(found['restore-rate'])}")
    if metrics.lag:
        parts.append(f"records-lag {metrics.lag:,}")
    return ", ".join(parts)


def task_line(report: TaskReport) -> str:
    """Return what a task did and how fast, in one line."""
    calls = "".join(f"; {line}" for line in call_lines([report]))
    return (
        f"task {report.task_id} {report.outcome.replace('_', ' ')}: {report.records_in:,} records in, "
        f"{report.records_out:,} out, {report.records_dropped:,} dropped, {report.restored:,} restored, "
        f"{report.commits:,} commits, {speed_text([report])}{calls}"
    )


def _processing_ns(metrics: TaskMetrics | None) -> int:
    return -1 if metrics is None else metrics.process.total_ns
