"""The speed of a task. It travels with the task's report: beside its committed offsets, through Spark, and
into the details of its run.

Only what cannot be worked out from the report's counters stands here, at most ``MOST_BYTES`` of JSON; nodes
with calls add more, of which there is a bounded number by name (``CallFigures``), and which is cut down where
there is no room.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from airflow_kstreams.streams.figures.call_figures import CallFigures, added_calls
from airflow_kstreams.streams.figures.latencies import Latencies

#: Of its JSON without calls, whatever was measured: two histograms with their numbers at the largest.
MOST_BYTES = 1_400


class TaskMetrics(msgspec.Struct, frozen=True, array_like=True):
    """What was measured of a task since its slice's start, over all its attempts as far as they committed.

    :param process: of each record processed; measured per sample of records, see
        :class:`~airflow_kstreams.batch.metrics.meter.TaskMeter`.
    :param commit: of each commit. One cannot say how long it took itself: what travels beside committed
        offsets lacks the commit that wrote it, what a task reports at its end has all.
    :param active_ns: time between a ready task and its last commit, waiting for records included.
    :param restore_ns: time in which the last attempt restored its stores.
    :param lag: offsets between where the task stands and its stops; None where it has no stops.
    :param calls: of its asynchronous nodes; None where it has none.
    """

    process: Latencies = Latencies()
    commit: Latencies = Latencies()
    active_ns: int = 0
    restore_ns: int = 0
    lag: int | None = None
    calls: CallFigures | None = None

    def __add__(self, other: TaskMetrics) -> TaskMetrics:
        """Put two tasks together."""
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
    """Put tasks together; None, not known, if one of them is, or if there are none."""
    total: TaskMetrics | None = None
    for each in metrics:
        if each is None:
            return None
        total = each if total is None else total + each
    return total
