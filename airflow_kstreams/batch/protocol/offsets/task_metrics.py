"""Holds the measurements of a task's speed, which travel with its report: beside its committed offsets,
through Spark, and into the details of its run.

They hold only what cannot be worked out from the report's counters, at most ``MOST_BYTES`` of JSON. Nodes
with calls add more: a bounded number of them by name (``CallFigures``), fewer where there is no room.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from airflow_kstreams.streams.figures.call_figures import CallFigures, added_calls
from airflow_kstreams.streams.figures.latencies import Latencies

#: The most bytes of its JSON without calls: two histograms with their numbers at the largest.
MOST_BYTES = 1_400


class TaskMetrics(msgspec.Struct, frozen=True, array_like=True):
    """Measurements of a task since its slice's start, over all its attempts as far as they committed.

    :param process: latency of each record processed; measured per sample of records, see
        :class:`~airflow_kstreams.batch.metrics.meter.TaskMeter`.
    :param commit: latency of each commit. A commit cannot contain its own latency: the text beside committed
        offsets lacks the commit that wrote it; a task's report at its end has all.
    :param active_ns: time between a ready task and its last commit, waiting for records included.
    :param restore_ns: time in which the last attempt restored its stores.
    :param lag: offsets between the task's positions and its stops; None where it has no stops.
    :param calls: of its asynchronous nodes; None where it has none.
    """

    process: Latencies = Latencies()
    commit: Latencies = Latencies()
    active_ns: int = 0
    restore_ns: int = 0
    lag: int | None = None
    calls: CallFigures | None = None

    def __add__(self, other: TaskMetrics) -> TaskMetrics:
        """Add up the measurements of two tasks."""
        return TaskMetrics(
            self.process + other.process,
            self.commit + other.commit,
            self.active_ns + other.active_ns,
            self.restore_ns + other.restore_ns,
            None if self.lag is None or other.lag is None else self.lag + other.lag,
            added_calls(self.calls, other.calls),
        )

    def shorter(self) -> TaskMetrics | None:
        """Return the same with less of the calls; None if that cannot be."""
        calls = None if self.calls is None else self.calls.shorter()
        return None if calls is None else msgspec.structs.replace(self, calls=calls)


#: What a task has measured before its first attempt.
NOTHING_YET = TaskMetrics(calls=CallFigures())


def metrics_in_all(metrics: Iterable[TaskMetrics | None]) -> TaskMetrics | None:
    """Add up the measurements of tasks; None (not known) if those of one are, or if there are no tasks."""
    total: TaskMetrics | None = None
    for each in metrics:
        if each is None:
            return None
        total = each if total is None else total + each
    return total
