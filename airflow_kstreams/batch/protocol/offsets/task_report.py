"""Defines a task's report of its work, kept beside its committed offsets and in the details of its run.

Packs counts by topic and node into the few bytes that an offset's metadata has for them.

A topic is written as its place in the plan of the task's subtopology, which is frozen with the slice; a node
as its name, the largest counts first. Where the text would be too long, nodes are added up by rule from the
smallest on; where even that does not fit, nothing is kept, and the counts are unknown from then on.

Holds the measurements of a task's speed, which travel with its report: beside its committed offsets,
through Spark, and into the details of its run.

They hold only what cannot be worked out from the report's counters, at most ``MOST_BYTES`` of JSON. Nodes
with calls add more: a bounded number of them by name (``CallFigures``), fewer where there is no room.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from airflow_kstreams.streams.figures.call_figures import CallFigures, Latencies, added_calls
from airflow_kstreams.streams.figures.record_counts import OTHER_NODES, LeftOut, RecordCounts
from airflow_kstreams.streams.plan import SubtopologyPlan

#: The most bytes of its JSON without calls: two histograms with their numbers at the largest.
MOST_BYTES = 1_400


class TaskMetrics(msgspec.Struct, frozen=True, array_like=True):
    """Measurements of a task since its slice's start, over all its attempts as far as they committed.

    :param process: latency of each record processed; measured per sample of records, see
        :class:`~airflow_kstreams.batch.metrics.TaskMeter`.
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


class PackedCounts(msgspec.Struct, frozen=True, array_like=True):
    """A task's counts since the slice's start.

    :param read: as in ``RecordCounts``, by place among the subtopology's sources.
    :param outside: as in ``RecordCounts``, by the same places; empty if there was none.
    :param written: by place among the subtopology's sinks.
    :param sent: by topic.
    :param left_out: as in ``RecordCounts``.
    :param unbalanced: place of a sink whose count does not fit the others, what must have been written, and
        what was counted; empty if all fit.
    """

    read: tuple[int, ...] = ()
    outside: tuple[int, ...] = ()
    written: tuple[int, ...] = ()
    sent: dict[str, int] = {}
    left_out: tuple[LeftOut, ...] = ()
    unbalanced: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, counts: RecordCounts, plan: SubtopologyPlan, unbalanced: tuple[str, int, int] | None = None
    ) -> PackedCounts:
        """Pack counts.

        :param plan: of the subtopology whose task counted them.
        :param unbalanced: topic, what must have been written to it, and what was counted.
        """
        wrong: tuple[int, ...] = ()
        if unbalanced is not None:
            topic, arrived, written = unbalanced
            wrong = (plan.sinks.index(topic), arrived, written)
        return cls(
            read=_placed(counts.read, plan.sources),
            outside=_placed(counts.outside, plan.sources) if counts.outside else (),
            written=_placed(counts.written, plan.sinks),
            sent=counts.sent,
            left_out=counts.left_out,
            unbalanced=wrong,
        )

    def unpacked(self, plan: SubtopologyPlan) -> RecordCounts:
        """Return the counts."""
        return RecordCounts(
            read=dict(zip(plan.sources, self.read, strict=False)),
            outside={t: count for t, count in zip(plan.sources, self.outside, strict=False) if count},
            written=dict(zip(plan.sinks, self.written, strict=False)),
            sent=self.sent,
            left_out=self.left_out,
        )

    def wrong(self, plan: SubtopologyPlan) -> tuple[str, int, int] | None:
        """Return the topic whose count does not fit, what must have been written, and what was counted."""
        if not self.unbalanced:
            return None
        place, arrived, written = self.unbalanced
        return plan.sinks[place], arrived, written

    def shorter(self) -> PackedCounts | None:
        """Return the same with half as many nodes by name; None if there are no more to add up."""
        named = sum(entry.node != OTHER_NODES for entry in self.left_out)
        if not named:
            return None
        fewer = RecordCounts(left_out=self.left_out).largest(named // 2)
        return msgspec.structs.replace(self, left_out=fewer.left_out)


def _placed(counts: Mapping[str, int], topics: Sequence[str]) -> tuple[int, ...]:
    return tuple(counts.get(topic, 0) for topic in topics)


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one task for its slice; survives crashes because it travels in the offset metadata.

    :param task_id: ``<subtopology>_<group>``.
    :param records_in: records consumed.
    :param records_out: records sent, changelog and notifications excluded.
    :param records_dropped: records dropped by rule (null keys under a group, late records), and those
        an error handler skipped.
    :param records_dead_lettered: records sent to the dead-letter topic.
    :param records_skipped: records of input topics read and left out, because they are dated outside the
        interval that the run keeps to.
    :param restored: changelog records read at start.
    :param commits: transactions committed.
    :param seconds: wall time of the attempt that finished it.
    :param attempts: attempts within the Spark task attempt that finished it.
    :param outcome: ``done``, ``already_done`` when it found its stop reached, or ``stopped`` when it belongs
        to a continuous run.
    :param peak_memory_bytes: of the Python worker.
    :param records_ahead: records dated later than ``max.timestamp.ahead.ms`` allows that were processed,
        because nothing in the task goes by stream time.
    :param metrics: how fast it was; None where there was no room for it.
    :param parked: node -> how many records it left parked, None where that is not known; nodes without such
        are absent.
    :param parked_due_ms: when the first of them is due, epoch milliseconds; None when none is, or that is not
        known.
    """

    task_id: str
    records_in: int = 0
    records_out: int = 0
    records_dropped: int = 0
    records_dead_lettered: int = 0
    records_skipped: int = 0
    restored: int = 0
    commits: int = 0
    seconds: float = 0.0
    attempts: int = 1
    outcome: str = "done"
    peak_memory_bytes: int = 0
    records_ahead: int = 0
    metrics: TaskMetrics | None = None
    parked: dict[str, int | None] = {}
    parked_due_ms: int | None = None


def subtopology_of(task_id: str) -> int:
    """Return the subtopology of a task.

    :param task_id: ``<subtopology>_<group>``.
    """
    return int(task_id.partition("_")[0])


def group_of(task_id: str) -> int:
    """Return the partition group of a task.

    :param task_id: ``<subtopology>_<group>``.
    """
    return int(task_id.partition("_")[2])


def by_subtopology(reports: Iterable[TaskReport]) -> dict[int, list[TaskReport]]:
    """Return reports by the subtopology of their tasks, in order."""
    found: dict[int, list[TaskReport]] = {}
    for report in reports:
        found.setdefault(subtopology_of(report.task_id), []).append(report)
    return dict(sorted(found.items()))
