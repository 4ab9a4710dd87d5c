"""Encodes the text that travels with every committed offset: the partition's times, the task's counters and
metrics, and the report that is made of them.

It is written in the same transaction as the results, so stream time and counters survive crashes and runs
exactly as far as the offsets do, and ``finish`` can rebuild the report of a task whose process has died.

The broker takes few bytes for it. Counts by topic and node are packed: a topic is written as its place in the
plan of the task's subtopology, which is frozen with the slice; a node as its name, the largest counts first.
Where the text would be too long, nodes are added up by rule from the smallest on; where even that does not
fit, nothing is kept, and the counts are unknown from then on. Metrics hold only what cannot be worked out
from the report's counters, at most ``MOST_BYTES`` of JSON. Nodes with calls add more: a bounded number of
them by name (``CallFigures``), fewer where there is no room.

The report also travels through Spark, and into the details of its run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from airflow_kstreams.batch.protocol.checked_reading import UnreadableError, read_json
from airflow_kstreams.batch.protocol.step_times import TaskTimes
from airflow_kstreams.streams.figures.call_figures import CallFigures, Latencies, added_calls
from airflow_kstreams.streams.figures.record_counts import OTHER_NODES, LeftOut, RecordCounts
from airflow_kstreams.streams.partitioning.topic_growth import GrowthKind
from airflow_kstreams.streams.plan import SubtopologyPlan, TaskName
from airflow_kstreams.streams.records.record_queue import Closing, LastRecord, PartitionTimes

#: The broker's default ``offset.metadata.max.bytes``.
LIMIT_BYTES = 4096
VERSION = 1
#: The stream time at which a task that waits for none is due next.
NOTHING_DUE = -1
#: The most bytes of its JSON without calls: two histograms with their numbers at the largest.
MOST_BYTES = 1_400


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one task for its slice; survives crashes because it travels in the offset metadata.

    :param task_id: id of the task, ``<subtopology>_<group>``.
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
    :param peak_memory_bytes: largest memory use of the Python worker.
    :param records_misdated: processed records with an implausible time: later than ``max.timestamp.ahead.ms``
        allows, as nothing in the task goes by stream time, or in the weeks of 1970 in which seconds lie that
        are taken for milliseconds.
    :param metrics: measurements of its speed; None where there was no room for them.
    :param parked: node -> number of records that the task left parked, None where it is not known; nodes
        without parked records are absent.
    :param parked_due_ms: time at which the first parked record is due, epoch milliseconds; None when none is
        parked, or the time is not known.
    :param times: times of the attempt that finished it; None where the report was read beside the committed
        offsets, which do not hold them.
    :param crossing: how records crossed between Python and the client in that attempt; empty where it is not
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
    records_misdated: int = 0
    metrics: TaskMetrics | None = None
    parked: dict[str, int | None] = {}
    parked_due_ms: int | None = None
    times: TaskTimes | None = None
    crossing: str = ""


class TaskMetrics(msgspec.Struct, frozen=True, array_like=True):
    """Measurements of a task since its slice's start, over all its attempts as far as they committed.

    :param process: latency of each record processed; measured per sample of records, see
        :class:`~airflow_kstreams.batch.metrics.figures.TaskMeter`.
    :param commit: latency of each commit. A commit cannot contain its own latency: the text beside committed
        offsets lacks the commit that wrote it; a task's report at its end has all.
    :param active_ns: time between a ready task and its last commit, waiting for records included.
    :param restore_ns: time in which the last attempt restored its stores.
    :param lag: offsets between the task's positions and its stops; None where it has no stops.
    :param calls: figures of its asynchronous nodes; None where it has none.
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
        """Return these measurements with fewer figures of calls; None if there are no fewer."""
        calls = None if self.calls is None else self.calls.shorter()
        return None if calls is None else msgspec.structs.replace(self, calls=calls)


#: The measurements of a task before its first attempt.
NOTHING_YET = TaskMetrics(calls=CallFigures())


def metrics_in_all(metrics: Iterable[TaskMetrics | None]) -> TaskMetrics | None:
    """Add up the measurements of tasks; None (not known) if one task has none, or if there are no tasks."""
    total: TaskMetrics | None = None
    for each in metrics:
        if each is None:
            return None
        total = each if total is None else total + each
    return total


class PackedCounts(msgspec.Struct, frozen=True, array_like=True):
    """A task's counts since the slice's start.

    :param read: records read from each source of the subtopology, in the plan's order, see ``RecordCounts``.
    :param outside: records outside the interval, in the same order; empty if there was none.
    :param written: records written to each sink of the subtopology, in the plan's order.
    :param sent: topic -> records sent to topics that a processor names.
    :param left_out: records that went no further, by node and rule, see ``RecordCounts``.
    :param unbalanced: place in ``SubtopologyPlan.written`` of a topic or table whose count does not fit the
        others, the count that it must have, and the one that it has; empty if all fit.
    """

    read: tuple[int, ...] = ()
    outside: tuple[int, ...] = ()
    written: tuple[int, ...] = ()
    sent: dict[str, int] = {}
    left_out: tuple[LeftOut, ...] = ()
    unbalanced: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.unbalanced) not in (0, 3):
            raise ValueError("a count that does not fit has three parts")

    @classmethod
    def of(
        cls, counts: RecordCounts, plan: SubtopologyPlan, unbalanced: tuple[str, int, int] | None = None
    ) -> PackedCounts:
        """Pack counts.

        :param plan: plan of the subtopology whose task counted them.
        :param unbalanced: a topic, the count of records that must have been written to it, and the counted
            one; None if all fit.
        """
        wrong: tuple[int, ...] = ()
        if unbalanced is not None:
            topic, arrived, written = unbalanced
            wrong = (plan.written.index(topic), arrived, written)
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
        """Return the topic whose count does not fit, the count that it must have, and the one that it has."""
        if not self.unbalanced:
            return None
        place, arrived, written = self.unbalanced
        return (plan.written[place], arrived, written) if 0 <= place < len(plan.written) else None

    def shorter(self) -> PackedCounts | None:
        """Return these counts with half as many nodes by name; None if there are no more to add up."""
        named = sum(entry.node != OTHER_NODES for entry in self.left_out)
        if not named:
            return None
        fewer = RecordCounts(left_out=self.left_out).largest(named // 2)
        return msgspec.structs.replace(self, left_out=fewer.left_out)


def _placed(counts: Mapping[str, int], topics: Sequence[str]) -> tuple[int, ...]:
    return tuple(counts.get(topic, 0) for topic in topics)


class OffsetMetadata(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The metadata that a commit writes beside the offset.

    :param run_id: id of the run whose task committed; empty when another program wrote the text.
    :param partition_time_ms: partition time, -1 when unknown; with the next two, ``PartitionTimes``.
    :param latest_ms: largest timestamp of the records before the offset.
    :param stream_time_ms: stream time of the topic in the task.
    :param task_id: id of the task, ``<subtopology>_<group>``.
    :param records_in: records the task consumed since the slice's start; the other counters as in
        ``TaskReport``.
    :param last_offset: offset of the last record before the committed offset, -1 when unknown; with
        ``last_epoch`` a ``LastRecord``.
    :param last_epoch: leader epoch under which that record was written.
    :param changelog_ends: ends of the task's changelogs, sorted by topic, right before the commit, behind all
        that it had written to them; empty when it has none, when they are not known, and when there was no
        room for them: the ledger has them once the run is finished.
    :param stop_set: name of the slice's stop set; empty when a continuous run committed.
    :param records_misdated: processed records with an implausible time, see ``TaskReport``.
    :param counts: the counters by topic and node; None when there was no room for them.
    :param complete: whether this is the task's last commit for the slice.
    :param metrics: measurements of the task's speed; None when there was no room for them.
    :param closings: closings of the task's windowed stores, see ``PartitionTimes``; None when there are none,
        or was no room for them.
    :param parked: node -> how many records the task has parked; None when there was no room for them.
    :param parked_due_ms: time at which the first parked record is due, epoch milliseconds; None when none is
        parked, or the time is not known.
    :param next_due_ms: stream time at which the task has work next, even if no record comes; ``NOTHING_DUE``
        when it has none, None when that is not known, because another task may have the partition since.
    :param ruled_out: kinds of growth of the partition's topic that its keys exclude.
    :param accepted: whether an operator set the offset by our command, which the ledger knows, too.
    """

    run_id: str = msgspec.field(default="", name="run")
    partition_time_ms: int = msgspec.field(default=-1, name="time")
    latest_ms: int = msgspec.field(default=-1, name="latest")
    stream_time_ms: int = msgspec.field(default=-1, name="stream")
    task_id: TaskName = msgspec.field(default="", name="task")
    records_in: int = msgspec.field(default=0, name="in")
    records_out: int = msgspec.field(default=0, name="out")
    records_dropped: int = msgspec.field(default=0, name="dropped")
    records_dead_lettered: int = msgspec.field(default=0, name="dead")
    records_skipped: int = msgspec.field(default=0, name="skipped")
    restored: int = 0
    commits: int = 0
    attempts: int = 1
    seconds: float = 0.0
    peak_memory_bytes: int = msgspec.field(default=0, name="memory")
    version: int = msgspec.field(default=0, name="v")
    last_offset: int = msgspec.field(default=-1, name="last")
    last_epoch: int = msgspec.field(default=-1, name="epoch")
    records_misdated: int = msgspec.field(default=0, name="misdated")
    changelog_ends: tuple[int, ...] = msgspec.field(default=(), name="ends")
    counts: PackedCounts | None = msgspec.field(default=None, name="record_counts")
    stop_set: str = msgspec.field(default="", name="slice")
    complete: bool = False
    metrics: TaskMetrics | None = None
    closings: dict[str, Closing] | None = msgspec.field(default=None, name="windows")
    parked: dict[str, int] | None = None
    parked_due_ms: int | None = msgspec.field(default=None, name="due")
    next_due_ms: int | None = msgspec.field(default=None, name="next")
    ruled_out: tuple[GrowthKind, ...] = msgspec.field(default=(), name="not")
    accepted: bool = False

    @property
    def foreign(self) -> bool:
        """Whether another program committed: neither a run nor our command wrote this text."""
        return not self.run_id and not self.accepted

    def encode(self) -> str:
        """Return the text, at most 4096 bytes; run ids are checked to leave it room.

        What decides nothing is left out first: the figures of calls, the later half of their nodes at a time,
        then the other metrics. Then fewer nodes have counts by name; then the counts are left out or, where
        they take less than is missing, the ends of changelogs, what is parked, and what windows are closed.
        """
        if (text := self._text()) is not None:
            return text
        if self.metrics is not None:
            return self._with(metrics=self.metrics.shorter()).encode()
        shorter = self.counts
        while shorter is not None:
            shorter = shorter.shorter()
            if shorter is not None and (text := self._with(counts=shorter)._text()) is not None:
                return text
        if (text := self._with(counts=None)._text()) is not None:
            return text
        if self.changelog_ends:
            return self._with(changelog_ends=()).encode()
        if self.parked is not None:
            return self._with(parked=None).encode()
        return self._with(closings=None).encode()

    def _text(self) -> str | None:
        """Return the text if it is short enough, or nothing can be left out."""
        text = msgspec.json.encode(self._with(version=VERSION))
        large = (self.metrics, self.counts, self.parked, self.closings)
        final = all(each is None for each in large) and not self.changelog_ends
        return text.decode() if len(text) <= LIMIT_BYTES or final else None

    def _with(self, **changes: Any) -> OffsetMetadata:
        return msgspec.structs.replace(self, **changes)

    def of_partition(
        self, times: PartitionTimes, last: LastRecord, ruled_out: tuple[GrowthKind, ...] = ()
    ) -> OffsetMetadata:
        """Return a copy for the offset of one partition.

        :param times: times of the partition.
        :param last: the record that the offset lies behind.
        :param ruled_out: kinds of growth that the partition's keys exclude.
        """
        known = last if last.known else LastRecord()
        return msgspec.structs.replace(
            self,
            partition_time_ms=times.partition_time_ms,
            latest_ms=times.latest_ms,
            stream_time_ms=times.stream_time_ms,
            closings=dict(times.closings) or None,
            last_offset=known.offset,
            last_epoch=known.epoch,
            ruled_out=ruled_out,
        )

    def due_at(self, moment_ms: int) -> bool:
        """Whether the task has, or may have, work before a moment. A task without stream time never has."""
        if not 0 <= self.stream_time_ms < moment_ms:
            return False
        return self.next_due_ms is None or NOTHING_DUE < self.next_due_ms <= moment_ms

    @property
    def last_record(self) -> LastRecord:
        """The last record before the offset."""
        return LastRecord(self.last_offset, self.last_epoch)

    @property
    def times(self) -> PartitionTimes:
        """The partition's times."""
        return PartitionTimes(
            self.partition_time_ms, self.latest_ms, self.stream_time_ms, self.closings or {}
        )

    @classmethod
    def decode(cls, text: str) -> OffsetMetadata:
        """Read the text; one that is not ours (another tool committed) gives the defaults."""
        if not text:
            return cls()
        try:
            decoded = read_json(text, cls)
        except UnreadableError:
            return cls()
        return decoded if decoded.version == VERSION else cls()

    @property
    def metrics_so_far(self) -> TaskMetrics | None:
        """The metrics that the next commit adds to: nothing when no task has committed for the slice yet."""
        return self.metrics if self.task_id else NOTHING_YET

    def counts_so_far(self, plan: SubtopologyPlan) -> RecordCounts | None:
        """Return the counts that the next commit adds to: all 0 when no task has committed for the slice yet.

        :param plan: plan of the task's subtopology.
        """
        if not self.task_id:
            return RecordCounts()
        return None if self.counts is None else self.counts.unpacked(plan)

    def report(self) -> TaskReport:
        """Return the counters as the task's report."""
        return TaskReport(
            task_id=self.task_id,
            records_in=self.records_in,
            records_out=self.records_out,
            records_dropped=self.records_dropped,
            records_dead_lettered=self.records_dead_lettered,
            records_skipped=self.records_skipped,
            restored=self.restored,
            commits=self.commits,
            attempts=self.attempts,
            seconds=self.seconds,
            peak_memory_bytes=self.peak_memory_bytes,
            records_misdated=self.records_misdated,
            metrics=self.metrics,
            parked=dict(self.parked or {}),
            parked_due_ms=self.parked_due_ms,
        )


def subtopology_of(task_id: str) -> int:
    """Return the subtopology of a task.

    :param task_id: id of the task, ``<subtopology>_<group>``.
    """
    return int(task_id.partition("_")[0])


def group_of(task_id: str) -> int:
    """Return the partition group of a task.

    :param task_id: id of the task, ``<subtopology>_<group>``.
    """
    return int(task_id.partition("_")[2])


def by_subtopology(reports: Iterable[TaskReport]) -> dict[int, list[TaskReport]]:
    """Return reports by the subtopology of their tasks, in order."""
    found: dict[int, list[TaskReport]] = {}
    for report in reports:
        found.setdefault(subtopology_of(report.task_id), []).append(report)
    return dict(sorted(found.items()))
