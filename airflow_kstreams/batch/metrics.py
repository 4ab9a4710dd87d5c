"""Measures the attempts of tasks, and gives their figures and those of their calls under Kafka Streams'
names.

Rates are per second of a task's time, waiting for records included; of several tasks, per second of one
task's time. Latencies are in milliseconds. What is not known, because there was no room for it
beside a task's offsets, is None, and so is what nothing was measured for.

The cost of measuring an attempt is two additions per chunk of records: the loop reads the clock before and
after each chunk in any case, and passes both times. Chunks shorter than ``SAMPLE_SECONDS`` are added up until
they last that long and become one sample, in which every record counts with the sample's mean. A chunk is
2,000 records at most, and as few as one where functions are slow, so a slow function is measured record by
record.

A task without asynchronous nodes has no figures of calls and threads. Their rates and averages are over the
time in which a task was ready, by the clock of its calls; of several tasks, those of one task, and the
largest of one task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskMetrics, TaskReport, metrics_in_all
from airflow_kstreams.streams.figures.call_figures import (
    CallFigures,
    Latencies,
    LatencyRecorder,
    NodeCalls,
    added_calls,
)
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.figures.record_counts import OTHER_NODES, shown_node

_NS, _NS_PER_MS = 1_000_000_000, 1e6


def latency_text(milliseconds: float | None) -> str:
    """Return a latency in the unit that suits it, ``-`` if it is not known."""
    if milliseconds is None:
        return "-"
    if milliseconds >= 1_000:
        return f"{milliseconds / 1_000:.2f} s"
    if milliseconds >= 1:
        return f"{milliseconds:.1f} ms"
    return f"{milliseconds * 1_000:.1f} µs"


def rate_text(per_second: float | None) -> str:
    """Return a rate, ``-`` if it is not known."""
    if per_second is None:
        return "-"
    return f"{per_second:,.0f}/s" if per_second >= 100 else f"{per_second:.1f}/s"


def per_second(count: int, time_ns: int) -> float | None:
    """Return a rate; None where no time has passed."""
    return count * _NS / time_ns if time_ns else None


def latency_figures(name: str, latencies: Latencies) -> dict[str, float | None]:
    """Return mean, quantiles and maximum in milliseconds, by name; None where nothing was measured.

    :param name: prefix of the figures' names, e.g. ``commit``.
    """
    values = {
        "avg": latencies.average_ns,
        "p50": latencies.quantile_ns(0.5),
        "p99": latencies.quantile_ns(0.99),
        "max": latencies.max_ns if latencies.count else None,
    }
    return {
        f"{name}-latency-{what}": None if value is None else value / _NS_PER_MS
        for what, value in values.items()
    }


#: Figures of a node that add up over tasks and runs, or of the threads of a task.
CALL_TOTALS = frozenset(
    ("call-total", "call-failed-total", "call-timeout-total", "call-retry-total", "thread-replaced-total")
)
#: Every figure of a node, and its unit.
NODE_UNITS = {
    "call-total": "calls",
    "call-rate": "calls/s",
    "call-latency-avg": "ms",
    "call-latency-p50": "ms",
    "call-latency-p99": "ms",
    "call-latency-max": "ms",
    "call-failed-total": "calls",
    "call-timeout-total": "calls",
    "call-retry-total": "calls",
    "calls-in-flight-avg": "calls",
    "calls-in-flight-max": "calls",
    "calls-queued-avg": "calls",
    "records-parked": "records",
}
#: Every figure of the threads and event loop that run a task's calls, and its unit; ``1`` is a share.
THREAD_UNITS = {
    "records-waiting-avg": "records",
    "records-waiting-max": "records",
    "thread-running": "threads",
    "thread-idle": "threads",
    "thread-abandoned": "threads",
    "thread-replaced-total": "threads",
    "thread-busy-ratio": "1",
    "event-loop-busy-ratio": "1",
}


def calls_in_all(reports: Sequence[TaskReport]) -> CallFigures | None:
    """Return the measurements of calls in several tasks; None where no node makes calls, or their speed is
    not known.

    :param reports: reports of different tasks.
    """
    metrics = metrics_in_all(report.metrics for report in reports)
    return None if metrics is None else metrics.calls


def node_figures(reports: Sequence[TaskReport]) -> dict[str, dict[str, float | None]]:
    """Return the figures of each asynchronous node, by name; ``OTHER_NODES`` has those without room.

    :param reports: reports of different tasks.
    """
    calls = calls_in_all(reports)
    found: dict[str, dict[str, float | None]] = {}
    if calls is not None:
        found = {each.node: _of_node(each, calls.open_ns) for each in calls.nodes}
    parked = _parked(reports)
    for node in parked:
        found.setdefault(node, {})
    for node, of_node in found.items():
        # The parked records of nodes without room are listed under the nodes' own names.
        if node != OTHER_NODES:
            of_node["records-parked"] = parked.get(node, 0)
    return {node: {name: of_node.get(name) for name in NODE_UNITS} for node, of_node in found.items()}


def thread_figures(reports: Sequence[TaskReport]) -> dict[str, float | None]:
    """Return the figures of the threads and event loops that run calls; all None where no node makes calls,
    or they are unknown.

    :param reports: reports of different tasks.
    """
    calls = calls_in_all(reports)
    found: dict[str, float | None] = {}
    if calls is not None and calls.known:
        threads = calls.threads
        found = {
            "records-waiting-avg": _share(calls.waiting_ns, calls.open_ns),
            "records-waiting-max": calls.most_waiting,
            "thread-running": threads.running,
            "thread-idle": threads.idle,
            "thread-abandoned": threads.abandoned,
            "thread-replaced-total": threads.replaced,
            "thread-busy-ratio": _share(threads.busy_ns, threads.open_ns),
            "event-loop-busy-ratio": _share(threads.loop_busy_ns, threads.loop_open_ns),
        }
    return {name: found.get(name) for name in THREAD_UNITS}


def call_lines(reports: Sequence[TaskReport], purposes: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each asynchronous node of tasks, and one for the threads and event loops that run the
    calls; none where no node makes calls.

    :param reports: reports of different tasks.
    :param purposes: node -> what it does, and the user's line.
    """
    calls = calls_in_all(reports)
    if calls is None:
        return
    if not calls.known:
        yield "calls unknown"
        return
    for node, of_node in node_figures(reports).items():
        if of_node["call-total"] is not None:
            kind = "" if node == OTHER_NODES else "node "
            yield f"{kind}{shown_node(node, purposes)}: {_node_text(of_node)}"
    yield _threads_text(thread_figures(reports))


def number_text(number: float | None) -> str:
    """Return an average or a count, ``-`` if it is not known."""
    if number is None:
        return "-"
    return f"{number:,}" if isinstance(number, int) else f"{number:,.1f}"


def share_text(share: float | None) -> str:
    """Return a share in percent, ``-`` if it is not known."""
    return "-" if share is None else f"{100 * share:.0f} %"


def _of_node(calls: NodeCalls, open_ns: int) -> dict[str, float | None]:
    made = calls.latency.count
    return {
        "call-total": made,
        "call-rate": per_second(made, open_ns),
        **latency_figures("call", calls.latency),
        "call-failed-total": calls.failed,
        "call-timeout-total": calls.timed_out,
        "call-retry-total": calls.retried,
        "calls-in-flight-avg": _share(calls.latency.total_ns, open_ns),
        "calls-in-flight-max": calls.most_in_flight,
        "calls-queued-avg": _share(calls.queued_ns, open_ns),
    }


def _node_text(found: dict[str, float | None]) -> str:
    parts = [
        f"call-total {number_text(found['call-total'])}",
        f"call-rate {rate_text(found['call-rate'])}",
        f"call-latency p50 {latency_text(found['call-latency-p50'])}, "
        f"p99 {latency_text(found['call-latency-p99'])}, max {latency_text(found['call-latency-max'])}",
        f"calls-in-flight avg {number_text(found['calls-in-flight-avg'])}, "
        f"max {number_text(found['calls-in-flight-max'])}",
    ]
    if found["calls-queued-avg"]:
        parts.append(f"calls-queued avg {number_text(found['calls-queued-avg'])}")
    for name in ("call-failed-total", "call-timeout-total", "call-retry-total", "records-parked"):
        if found[name]:
            parts.append(f"{name} {number_text(found[name])}")
    return ", ".join(parts)


def _threads_text(found: dict[str, float | None]) -> str:
    parts = [
        f"records-waiting avg {number_text(found['records-waiting-avg'])}, "
        f"max {number_text(found['records-waiting-max'])}"
    ]
    if found["thread-running"] or found["thread-idle"]:
        parts.append(
            f"threads {number_text(found['thread-running'])} running, "
            f"{number_text(found['thread-idle'])} idle"
        )
    for name in ("thread-abandoned", "thread-replaced-total"):
        if found[name]:
            parts.append(f"{name} {number_text(found[name])}")
    for name in ("thread-busy-ratio", "event-loop-busy-ratio"):
        if found[name] is not None:
            parts.append(f"{name} {share_text(found[name])}")
    return ", ".join(parts)


def _parked(reports: Sequence[TaskReport]) -> dict[str, int | None]:
    """Return the number of parked records by node, None where it is not known for a task."""
    found: dict[str, int | None] = {}
    for report in reports:
        for node, records in report.parked.items():
            before = found.get(node, 0)
            found[node] = None if before is None or records is None else before + records
    return found


def _share(part: int | None, whole: int) -> float | None:
    return None if part is None or not whole else part / whole


#: Shortest sample: long beside the cost of a sample, two thousandths of it; short beside the times that
#: people ask for.
SAMPLE_SECONDS = 0.0005


class TaskMeter:
    """The measurements of one attempt, on top of those that earlier attempts had committed.

    :param before: measurements that earlier attempts had committed for the slice; None if they are not known.
    :param restore_seconds: seconds in which this attempt restored its stores.
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

        :param records: number of records, one at least.
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
        """Return the measurements up to now; None where those of earlier attempts are not known.

        :param lag: number of offsets between the task's positions and its stops; None where it has no stops.
        :param calls: figures of this attempt's calls; None for a task that makes none.
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
#: Fates of records, by topic or by node; see ``RecordCounts``.
COUNTS = ("records-consumed-total", "records-produced-total", "records-left-out-total")
#: Every figure, and its unit.
ALL_UNITS = {**UNITS, **NODE_UNITS, **THREAD_UNITS, **dict.fromkeys(COUNTS, "records")}
#: The figures that add up over tasks and runs.
ALL_TOTALS = TOTALS | CALL_TOTALS | frozenset(COUNTS)


def airflow_name(name: str) -> str:
    """Return a figure's name in the form of Airflow's metrics, without their prefix."""
    return f"kstreams.{name.replace('-', '_')}"


def figures(reports: Sequence[TaskReport]) -> dict[str, float | None]:
    """Return the figures of a task, or of several together, by name.

    :param reports: reports of different tasks.
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
    """Return the speed of tasks in one line.

    :param reports: reports of different tasks.
    """
    metrics = metrics_in_all(report.metrics for report in reports)
    if metrics is None:
        return "speed unknown"
    found = figures(reports)
    commits = sum(report.commits for report in reports)
    seen = (
        ""
        if metrics.commit.count == commits
        else f" ({metrics.commit.count} of {counted(commits, 'commit')} measured)"
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


def task_line(report: TaskReport, purposes: Mapping[str, str]) -> str:
    """Return the records, commits and speed of a task in one line, and how its records crossed to the client.

    :param purposes: node -> what it does, and the user's line.
    """
    more = "".join(f"; {line}" for line in call_lines([report], purposes))
    if report.crossing:
        more += f"; records crossed {report.crossing}"
    return (
        f"task {report.task_id} {report.outcome.replace('_', ' ')}: {counted(report.records_in, 'record')} "
        f"in, {report.records_out:,} out, {report.records_dropped:,} dropped, {report.restored:,} restored, "
        f"{counted(report.commits, 'commit')}, {speed_text([report])}{more}"
    )


def _processing_ns(metrics: TaskMetrics | None) -> int:
    return -1 if metrics is None else metrics.process.total_ns
