"""Defines the summary of a finished run, which is its entry in the ledger, and the details that the ledger
keeps apart from it.

An entry stays for good, so it holds nothing that grows with tasks or partitions. Details do: they are kept
for a while, in slots ``__details__/<n>``, which runs use in turn; a run overwrites what the run before it
left in its slot. An entry names the offsets at which its details were written; if the record there is another
run's, or gone, the details have expired.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from airflow_kstreams.batch.ledger.facts import LandedTable
from airflow_kstreams.batch.ledger.history import RunHistory
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.offsets.parked import parked_in_all, sum_parked
from airflow_kstreams.batch.protocol.slice.slice import (
    BehindCut,
    FrozenPartition,
    FrozenTable,
    Slice,
    Thresholds,
    partition_named,
)
from airflow_kstreams.streams.figures.record_counts import RecordCounts
from airflow_kstreams.streams.plan import (
    Moment,
    PartitionCount,
    PartitionName,
    SubtopologyPlan,
    TopologyPlan,
    convert,
)
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.records.record_queue import PartitionTimes


def completed(parked: Mapping[str, int | None]) -> str:
    """Return the state of a finished run as text: with records parked, or with none."""
    if not parked:
        return "completed"
    number = sum_parked(parked)
    return f"completed_with_parked({'unknown' if number is None else number})"


class SubtopologyTopics(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The topics that one subtopology of a finished run read and wrote.

    :param id: id of the subtopology.
    :param sources: topics it read.
    :param sinks: topics it wrote, changelogs excluded.
    """

    id: int
    sources: tuple[str, ...]
    sinks: tuple[str, ...]


class TopicRead(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The offsets that a run read of an input topic, its partitions added up.

    :param topic: name of the topic.
    :param partitions: partition count of the topic.
    :param start: sum of their start offsets.
    :param stop: sum of their stop offsets.
    """

    topic: str
    partitions: PartitionCount
    start: int
    stop: int


class RunSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The summary of a finished run. The ledger's entry, kept under the run id, has what identifies it and
    its totals; what it has per task and partition is kept apart, and for a while only, see
    :mod:`airflow_kstreams.batch.ledger.run_summary`.

    :param run_id: id of the run.
    :param application_id: id of the application.
    :param begun_ms: time at which the slice was frozen, epoch milliseconds.
    :param finished_ms: time at which the finished marker was written, epoch milliseconds.
    :param generation: generation of the slice at the end: the number of drivers that have claimed it.
    :param empty: whether there was nothing new.
    :param inputs: every input partition's start and stop; a detail.
    :param intermediate_stops: stop offset of every intermediate partition, past the transaction markers that
        follow it: ``topic-partition`` -> offset; a detail.
    :param tasks: the report of each task; a detail.
    :param topology_hash: hash of the topology that ran.
    :param topic_ids: topic id of every source topic, so that a topic that is created again is noticed even
        when the metadata topic is gone; a detail.
    :param partition_times: ``topic-partition`` of each source partition -> its partition time, largest
        timestamp and stream time at the stop offset; a detail. They travel with the committed offsets, too,
        which may expire.
    :param warnings: the first few warnings for an operator, one line each.
    :param taken_back_ms: time at which a reset took back what the run processed, epoch milliseconds; 0 =
        never. Such a run is not finished any more: it may run again under its id.
    :param interval_ms: the data interval the run was started for, epoch milliseconds; None outside schedules.
    :param topics: the topics that each subtopology read and wrote.
    :param dag_id: the DAG that started the run; empty if none.
    :param autostop_at: setting by which the stop offsets were frozen.
    :param counts: records read and written by topic and node; None if those of a task are unknown, because
        they had no room beside its offsets, or another tool set the offsets.
    :param read: offsets that the run read of each input topic.
    :param task_count: the number of its tasks.
    :param records_skipped: records left out because they are dated outside the interval that the run kept to.
    :param records_misdated: records with an implausible time that were processed, as in ``TaskReport``.
    :param previous: offset of the entry of the run that finished before it, -1 if none did.
    :param details: offsets of the details in the ledger, ``[from, to)``; None before they are written.
    :param parked: node -> number of records that the run left parked, None where that is not known; nodes
        without parked records are absent.
    :param parked_due_ms: time at which the first parked record is due, epoch milliseconds; None when none is
        parked, or the time is not known.
    :param behind_cut: records behind the run's cut that are dated before it, counted at begin; None where no
        cut by time was made.
    :param global_tables: the pieces of global tables that its tasks saw.
    :param advanced_to_ms: moment to which the end of the run brought stream time, epoch milliseconds; None
        without one.
    :param purposes: node that counts, calls or parked records name -> what it does, and the user's line.
    :param attempts: the number of its attempts; 0 where it is not known.
    :param history: what happened to it; a detail.
    :param thresholds: bounds beyond which looks call it odd; None where they are not known.
    :param tables: name of a table's sink -> the last commit to it when the run was finished, its own unless
        it had nothing to do.
    """

    run_id: str
    application_id: str
    begun_ms: Moment
    finished_ms: Moment
    generation: int
    empty: bool
    inputs: tuple[FrozenPartition, ...]
    intermediate_stops: dict[PartitionName, int] = {}
    tasks: tuple[TaskReport, ...] = ()
    topology_hash: str = ""
    topic_ids: dict[str, str] = {}
    partition_times: dict[PartitionName, PartitionTimes] = {}
    warnings: tuple[str, ...] = ()
    taken_back_ms: Moment = 0
    interval_ms: tuple[Moment, Moment] | None = None
    topics: tuple[SubtopologyTopics, ...] = ()
    dag_id: str = ""
    autostop_at: str = ""
    counts: RecordCounts | None = msgspec.field(default=None, name="record_counts")
    read: tuple[TopicRead, ...] = ()
    task_count: int = 0
    records_skipped: int = 0
    records_misdated: int = 0
    previous: int = -1
    details: tuple[int, int] | None = None
    parked: dict[str, int | None] = {}
    parked_due_ms: Moment | None = None
    behind_cut: BehindCut | None = None
    global_tables: tuple[FrozenTable, ...] = ()
    advanced_to_ms: Moment | None = None
    attempts: int = 0
    history: RunHistory | None = None
    thresholds: Thresholds | None = None
    purposes: dict[str, str] = {}
    tables: dict[str, LandedTable] = {}

    @property
    def state(self) -> str:
        """The way it ended: ``completed``, or ``completed_with_parked(n)`` when records wait for their next
        attempt.
        """
        return completed(self.parked)

    @property
    def without_details(self) -> bool:
        """Whether its details are not here: they are kept apart, or have expired."""
        return bool(self.read) and not self.inputs

    @property
    def reads(self) -> tuple[TopicRead, ...]:
        """The offsets that it read of each input topic, sorted."""
        if self.read:
            return self.read
        parts: dict[str, list[FrozenPartition]] = {}
        for part in self.inputs:
            parts.setdefault(part.topic, []).append(part)
        return tuple(
            TopicRead(
                topic=topic,
                partitions=len(of_topic),
                start=sum(part.start_offset for part in of_topic),
                stop=sum(part.stop_offset for part in of_topic),
            )
            for topic, of_topic in sorted(parts.items())
        )

    @property
    def input_topics(self) -> set[str]:
        """Topics that it read and did not write."""
        return {read.topic for read in self.reads}

    @property
    def source_topics(self) -> set[str]:
        """Topics that it read."""
        read = {topic for sub in self.topics for topic in sub.sources}
        return self.input_topics | read | {partition_named(name).topic for name in self.intermediate_stops}

    @property
    def outputs(self) -> set[str]:
        """Topics that it wrote and did not read."""
        read = {topic for sub in self.topics for topic in sub.sources}
        return {topic for sub in self.topics for topic in sub.sinks} - read

    @property
    def stops(self) -> dict[TopicPartition, int]:
        """The stop offset of every partition, inputs and intermediates, at which the next run starts."""
        stops = {part.topic_partition: part.stop_offset for part in self.inputs}
        return stops | {partition_named(name): stop for name, stop in self.intermediate_stops.items()}

    @property
    def records_in(self) -> int | None:
        """Records consumed from input topics; None where the counts are not known."""
        return None if self.counts is None else self.counts.consumed(self.topics)

    @property
    def records_out(self) -> int | None:
        """Records written to topics that the run did not read; None where the counts are not known."""
        return None if self.counts is None else self.counts.produced(self.topics)


def summary_so_far(
    slice_: Slice,
    reports: Sequence[TaskReport],
    counts: RecordCounts | None,
    *,
    subtopologies: Collection[SubtopologyPlan] | None = None,
) -> RunSummary:
    """Return the summary of a run before it is finished.

    :param reports: reports of the tasks, as they have committed them.
    :param counts: record counts of these tasks; None if not known.
    :param subtopologies: subtopologies whose tasks these are; all unless given.
    """
    plan = slice_.plan
    return RunSummary(
        run_id=slice_.run_id,
        application_id=plan.topology.application_id,
        begun_ms=plan.begun_ms,
        finished_ms=0,
        generation=slice_.generation,
        empty=plan.empty,
        inputs=slice_.inputs,
        tasks=tuple(reports),
        task_count=len(reports),
        records_skipped=sum(report.records_skipped for report in reports),
        records_misdated=sum(report.records_misdated for report in reports),
        topology_hash=plan.topology.topology_hash,
        interval_ms=plan.interval_ms,
        topic_ids=plan.topic_ids,
        topics=tuple(
            SubtopologyTopics(id=sub.id, sources=sub.sources, sinks=sub.sinks)
            for sub in (plan.topology.subtopologies if subtopologies is None else subtopologies)
        ),
        dag_id=plan.dag_id,
        autostop_at=plan.autostop_at,
        thresholds=plan.thresholds,
        counts=counts,
        parked=parked_in_all(report.parked for report in reports),
        parked_due_ms=min((r.parked_due_ms for r in reports if r.parked_due_ms is not None), default=None),
        behind_cut=plan.behind_cut,
        global_tables=plan.global_tables,
        advanced_to_ms=None if plan.end_of_run is None else plan.end_of_run.moment_ms,
        purposes=_purposes(plan.topology, counts),
    )


def _purposes(plan: TopologyPlan, counts: RecordCounts | None) -> dict[str, str]:
    named = {node for sub in plan.subtopologies for node in sub.calling}
    named |= {entry.node for entry in (() if counts is None else counts.left_out)}
    return {node: purpose for node, purpose in plan.purposes.items() if node in named}


DETAILS_KEY = "__details__/"

#: Field -> its value in each task, or the only one if they are all equal.
Columns = dict[str, tuple[Any, ...]]


class RunDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The details of a run, compact: values of partitions or tasks are listed in their order.

    :param run_id: id of the run.
    :param finished_ms: time at which that run finished, epoch milliseconds; tells it from a later run under
        the same id.
    :param starts: start offsets by input topic, -1 where a partition was not read.
    :param stops: stop offsets by topic, inputs and intermediates, -1 where a partition was not read.
    :param topic_ids: topic id of every source topic.
    :param times: partition times by topic; absent where there are none.
    :param tasks: the number of tasks that reported.
    :param reports: the tasks' reports as columns: field -> its values.
    :param history: what happened to the run; None where it is not known.
    """

    run_id: str
    finished_ms: int
    starts: dict[str, tuple[int, ...]] = {}
    stops: dict[str, tuple[int, ...]] = {}
    topic_ids: dict[str, str] = {}
    times: dict[str, tuple[PartitionTimes, ...]] = {}
    tasks: PartitionCount = 0
    reports: Columns = {}
    history: RunHistory | None = None

    def __post_init__(self) -> None:
        starts = self.starts.items()
        if any(len(of_topic) > len(self.stops.get(topic, ())) for topic, of_topic in starts):
            raise ValueError("start offsets of partitions without a stop offset")
        if any(len(values) not in (1, self.tasks) for values in self.reports.values()):
            raise ValueError("reports of other tasks than there are")

    @property
    def times_by_partition(self) -> dict[str, PartitionTimes]:
        """Partition times: ``topic-partition`` -> times, where there are any."""
        return {
            f"{topic}-{number}": times
            for topic, of_topic in self.times.items()
            for number, times in enumerate(of_topic)
            if times != PartitionTimes()
        }


def details_of(summary: RunSummary) -> RunDetails:
    """Return the details of a run that has just finished."""
    return RunDetails(
        run_id=summary.run_id,
        finished_ms=summary.finished_ms,
        starts=by_topic({part.topic_partition: part.start_offset for part in summary.inputs}, -1),
        stops=by_topic(summary.stops, -1),
        topic_ids=summary.topic_ids,
        times=times_by_topic(summary),
        tasks=len(summary.tasks),
        reports=_columns(summary.tasks),
        history=None if summary.history is None else summary.history.bounded(),
    )


def entry_of(summary: RunSummary) -> RunSummary:
    """Return a run's entry: the summary without its details."""
    return msgspec.structs.replace(
        summary,
        inputs=(),
        intermediate_stops={},
        tasks=(),
        topic_ids={},
        partition_times={},
        read=summary.reads,
        history=None,
    )


def with_details(entry: RunSummary, details: RunDetails) -> RunSummary | None:
    """Return a run with its details; None if those are another run's, or another program's."""
    if (details.run_id, details.finished_ms) != (entry.run_id, entry.finished_ms):
        return None
    try:
        reports = _reports(details)
    except msgspec.ValidationError:
        return None
    inputs = tuple(
        FrozenPartition(
            topic=topic, partition=number, start_offset=start, stop_offset=details.stops[topic][number]
        )
        for topic, starts in details.starts.items()
        for number, start in enumerate(starts)
        if start >= 0
    )
    return msgspec.structs.replace(
        entry,
        inputs=inputs,
        intermediate_stops={
            f"{topic}-{number}": stop
            for topic, stops in details.stops.items()
            if topic not in details.starts
            for number, stop in enumerate(stops)
            if stop >= 0
        },
        tasks=reports,
        topic_ids=details.topic_ids,
        partition_times=details.times_by_partition,
        history=details.history,
    )


def by_topic(values: Mapping[TopicPartition, int], absent: int) -> dict[str, tuple[int, ...]]:
    """Return the values of partitions by topic, in their order.

    :param absent: value that stands for partitions without one.
    """
    counts: dict[str, int] = {}
    for tp in sorted(values):
        counts[tp.topic] = tp.partition + 1
    return {
        topic: tuple(values.get(TopicPartition(topic, number), absent) for number in range(count))
        for topic, count in counts.items()
    }


def times_by_topic(summary: RunSummary) -> dict[str, tuple[PartitionTimes, ...]]:
    """Return partition times by topic, in the order of the partitions."""
    counts: dict[str, int] = {}
    for name in summary.partition_times:
        tp = partition_named(name)
        counts[tp.topic] = max(counts.get(tp.topic, 0), tp.partition + 1)
    return {
        topic: tuple(
            summary.partition_times.get(f"{topic}-{number}", PartitionTimes()) for number in range(count)
        )
        for topic, count in sorted(counts.items())
    }


def _columns(reports: Sequence[TaskReport]) -> Columns:
    def column(values: Iterable[Any]) -> tuple[Any, ...]:
        found = tuple(values)
        return found[:1] if found and all(value == found[0] for value in found) else found

    if not reports:
        return {}
    return {
        name: column(getattr(report, name) for report in reports) for name in TaskReport.__struct_fields__
    }


def _reports(details: RunDetails) -> tuple[TaskReport, ...]:
    """Return the tasks' reports."""
    rows: list[dict[str, Any]] = [{} for _ in range(details.tasks)]
    for name, values in details.reports.items():
        for number, row in enumerate(rows):
            row[name] = values[number] if len(values) > 1 else values[0]
    return tuple(convert(row, TaskReport) for row in rows)
