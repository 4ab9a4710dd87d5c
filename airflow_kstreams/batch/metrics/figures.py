"""Gives the figures of tasks under Kafka Streams' names.

Rates are per second of a task's time, waiting for records included; of several tasks, per second of one
task's time. Latencies are in milliseconds. What is not known, because there was no room for it
beside a task's offsets, is None, and so is what nothing was measured for.

Figures of calls and of the threads that run them are in ``call_figures.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from airflow_kstreams.batch.metrics.call_metrics import CALL_TOTALS, NODE_UNITS, THREAD_UNITS, call_lines
from airflow_kstreams.batch.metrics.units import latency_figures, latency_text, per_second, rate_text
from airflow_kstreams.batch.protocol.offsets.task_metrics import TaskMetrics, metrics_in_all
from airflow_kstreams.batch.protocol.offsets.task_report import TaskReport

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
