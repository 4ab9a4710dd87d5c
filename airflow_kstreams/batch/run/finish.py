"""Checks that a slice is finished, that its numbers add up, and that it was not too late; then builds its
summary. Nothing here writes.

Rule: finished means that the committed offset of every input and intermediate partition equals its stop, and
that every topic is still the one the run began with. The stop of an intermediate partition is the one that
was frozen when all tasks that write it had notified; a committed offset beyond it (outsiders' records,
markers passed by an earlier finish) is its own stop. So is one that a person set beyond an input's stop,
because everything up to there is gone. A task with retry topics that has anything to do must have made its
last commit, too (:mod:`airflow_kstreams.batch.protocol.offsets.parked`), and so must every task whose
stream time the end of the run advances (:mod:`airflow_kstreams.batch.protocol.slice.slice`).

These counts are kept per task and slice, and committed with the offsets: records read, per source topic
(those dated outside a backfill's interval apart); records that went no further, per node and rule (filtered,
unmatched, null, late, undated, skipped, dead-lettered); records written, per topic. Operators may make any
number of records of one, so "in = out + left out" holds only where none does. What must hold, and is checked:

1. Twice counted: the totals of a task's report and its counts by topic and node are kept apart from each
   other and travel side by side, over crashes, too. Read, left out of the interval, written, dropped and
   dead-lettered must each add up to the report's total.
2. Within a task: the records read, less those that went no further, were written, as far as each operator on
   the way gives one record for one (``streams/runtime/flow_check.py``, worked out by the task, which knows
   the topology).
3. At the inputs: no more records were read, with those outside the interval, than lie between the slice's
   start and stop offsets. Fewer is no error: transaction markers and compaction leave gaps.
4. Between subtopologies: at least as many records were read from an intermediate topic as were written to it.
   More is no error: others write there (a user's ``through`` topic, replayed dead letters), and so do
   at-least-once attempts that died before they committed.

A number that is not known, because there was no room for it in an offset's metadata, is not checked. Counts
that do not add up are a warning of the run, and an error in the log: the records are where they are, only the
numbers about them are wrong, so the run is finished. But records that an intermediate topic has lost before
its stop was frozen show nowhere but in the fourth, whose text says so; that is no error either, for a user's
topic may be compacted.

Late records (``max.late.share``) are judged before anything is written: a run that dropped too many fails, is
not finished and keeps its slice. Nothing of it is processed again: with a larger share, or
``late.share.exceeded=warn``, the retry only writes the marker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from airflow_kstreams.batch.evidence.complete_logs import ChangelogLogs
from airflow_kstreams.batch.evidence.contradictions import find_moved_under_way, refuse_unfit_progress
from airflow_kstreams.batch.ledger.facts import ChangelogEnds
from airflow_kstreams.batch.ledger.run_summary import RunSummary, summary_so_far
from airflow_kstreams.batch.protocol.logs.data_loss import data_loss
from airflow_kstreams.batch.protocol.logs.log_read import has_records, log_bounds
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata, TaskReport, subtopology_of
from airflow_kstreams.batch.protocol.offsets.parked import may_park, owes_last_commit, retry_nodes
from airflow_kstreams.batch.protocol.slice.metadata import Folded
from airflow_kstreams.batch.protocol.slice.slice import FrozenPartition, RunPlan, Slice, partition_named
from airflow_kstreams.batch.protocol.slice.stops import (
    all_stops,
    partitions_of,
    slice_starts,
    task_partitions,
)
from airflow_kstreams.batch.protocol.topics import refuse_other_topics
from airflow_kstreams.batch.run.begin.stream_time import clock_warnings, parked_warnings, with_time_passed
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.streams.errors import ConfigError, RunError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.figures.record_counts import DROPPING, RecordCounts, counts_in_all, shown_node
from airflow_kstreams.streams.partitioning.partition_groups import first_few
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.records.record_queue import PartitionTimes
from airflow_kstreams.streams.records.timestamp_reading import implausible_times
from airflow_kstreams.streams.settings import ApplicationSettings

log = package_log(__name__)
_BUG = ". This is a bug of the engine in what it counts, not in what it wrote: please report this line"
#: Number of nodes that a warning names.
_NAMED_ENTRIES = 3
#: Longest wait of finish for the markers of transactions that have just been committed, milliseconds.
_MARKERS_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedSlice:
    """The facts that finish writes.

    :param summary: summary for the ledger.
    :param offsets: every committed offset once more, with its metadata, because those of partitions without
        new records would expire while others go on; offsets of intermediate partitions are moved past a tail
        of transaction markers.
    :param purge: repartition partition -> the offset below which no record is needed any more.
    :param changelogs: ends of the changelogs, for the ledger; None if no task has run, or there are no
        changelogs.
    """

    summary: RunSummary
    offsets: Mapping[TopicPartition, CommittedOffset]
    purge: Mapping[TopicPartition, int]
    changelogs: ChangelogEnds | None


def close_slice(
    session: CoordinatorSession, *, slice_: Slice, folded: Folded, reports: Collection[TaskReport] = ()
) -> FinishedSlice:
    """Check that a slice is finished, and build the records and offsets to write.

    :param reports: reports of the tasks, as their driver has them.
    :raises UpstreamNotDoneError: done notifications, or the stops of intermediate topics, are missing.
    :raises RunError: a partition is not at its stop offset.
    :raises DataLossError: a topic is not the one that the run began with, or committed offsets are gone.
    :raises ConfigError: more records were dropped as late than the settings allow.
    """
    plan = slice_.plan
    refuse_other_topics(session.admin, slice_, {*plan.topology.sources, *plan.changelog_ids})
    partitions = partitions_of(slice_)
    committed = session.committed(partitions)
    intermediates = set(plan.topology.intermediates)
    if plan.empty:
        stops = {part.topic_partition: part.stop_offset for part in slice_.inputs}
        begun = _of_empty_slice(slice_)
        committed = begun | committed
        at = {tp: offset.offset for tp, offset in begun.items()}
        if losses := find_moved_under_way(at, committed, session.admin, run_id=slice_.run_id):
            raise data_loss(losses, session.application_id, run_id=slice_.run_id)
    else:
        starts = slice_starts(slice_)
        frozen = {part.topic_partition: part.stop_offset for part in slice_.inputs}
        to_read = {tp: (starts.get(tp, 0), frozen.get(tp)) for tp in partitions}
        refuse_unfit_progress(slice_, to_read, committed, session.admin)
        stops = all_stops(folded, slice_)
    for tp in partitions:
        if tp in committed and (tp.topic in intermediates or _moved_past(stops[tp], committed[tp])):
            stops[tp] = max(stops.get(tp, 0), committed[tp].offset)
    _refuse_unfinished(slice_, stops, committed)
    if not plan.empty:
        _refuse_owing(slice_, committed)
    committed = with_time_passed(slice_, committed)
    inputs = tuple(
        msgspec.structs.replace(part, stop_offset=stops[part.topic_partition], end_epoch=-1)
        for part in slice_.inputs
    )
    tasks = task_metadata(slice_, committed)
    done = _with_last_commits([_report(metadata, plan) for metadata in tasks.values()], reports)
    # A partition that no task committed has begin's metadata; metadata of another tool hides the counts.
    known = all(OffsetMetadata.decode(committed[tp].metadata).run_id == slice_.run_id for tp in partitions)
    counts = counts_of(plan.topology, tasks) if known or plan.empty else None
    warnings = judge_late(session.settings, plan.topology, counts, slice_.run_id)
    warnings += audit(plan.topology, tasks, inputs, slice_.run_id) if known else ()
    warnings += _replaced_outputs(session, plan)
    warnings += parked_warnings(plan.topology, plan.end_of_run, done)
    warnings += misdated_warnings(plan.topology, done, _times(committed))
    if session.settings.advances_to == "wall_clock_of_begin":
        warnings += clock_warnings(plan, _times(committed))
    moved = _past_markers(session, slice_, committed)
    return FinishedSlice(
        summary=msgspec.structs.replace(
            summary_so_far(slice_, done, counts),
            finished_ms=session.clock.now_ms(),
            inputs=inputs,
            intermediate_stops={
                str(tp): moved[tp].offset if tp in moved else stop
                for tp, stop in sorted(stops.items())
                if tp.topic in intermediates
            },
            partition_times={str(tp): times for tp, times in sorted(_times(committed).items())},
            warnings=(*plan.warnings, *warnings),
        ),
        offsets={**committed, **moved},
        purge={
            tp: offset.offset
            for tp, offset in {**committed, **moved}.items()
            if tp.topic in plan.topology.repartition_topics and offset.offset > 0
        },
        changelogs=_changelogs(session, plan),
    )


def task_metadata(
    slice_: Slice, committed: Mapping[TopicPartition, CommittedOffset]
) -> dict[str, OffsetMetadata]:
    """Return the metadata that each task of a slice committed last, by task id, in the order of the tasks."""
    found: dict[str, OffsetMetadata] = {}
    for tp in sorted(committed):
        metadata = OffsetMetadata.decode(committed[tp].metadata)
        if metadata.run_id == slice_.run_id and metadata.task_id:
            found.setdefault(metadata.task_id, metadata)
    return {task_id: found[task_id] for task_id in sorted(found, key=_task_order)}


def _report(metadata: OffsetMetadata, plan: RunPlan) -> TaskReport:
    """Return the last commit of a task as its report. If its number of parked records is unknown, the report
    names the nodes that may have some.
    """
    report = metadata.report()
    if metadata.parked is not None:
        return report
    topology = plan.topology
    changelogs = topology.subtopology(subtopology_of(report.task_id)).changelogs.values()
    unknown = dict.fromkeys(retry_nodes(topology.application_id, changelogs))
    return msgspec.structs.replace(report, parked=unknown) if unknown else report


def _with_last_commits(
    committed: Sequence[TaskReport], told: Collection[TaskReport]
) -> tuple[TaskReport, ...]:
    """Return the reports as they were committed, with the metrics and times that a task has told its driver:
    only those have the commit that wrote the report. Where a task has committed since, they are not used.
    """
    by_commit = {(report.task_id, report.commits): report for report in told}
    return tuple(
        report
        if (of_driver := by_commit.get((report.task_id, report.commits))) is None
        else msgspec.structs.replace(
            report, metrics=of_driver.metrics or report.metrics, times=of_driver.times
        )
        for report in committed
    )


def _changelogs(session: CoordinatorSession, plan: RunPlan) -> ChangelogEnds | None:
    if plan.empty or not plan.changelog_ids:
        return None
    tasks = {topic: plan.tasks[str(sub)] for topic, sub in plan.topology.changelogs.items()}
    return ChangelogLogs.read(session.admin, plan.changelog_ids, tasks).as_finished()


def _of_empty_slice(slice_: Slice) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets that begin committed; they stand in for offsets that are gone, for no task moved
    any.
    """
    ours = OffsetMetadata(run_id=slice_.run_id, stop_set=slice_.stop_set, parked={}).encode()
    starts = {part.topic_partition: part.stop_offset for part in slice_.inputs}
    starts |= {partition_named(name): at for name, at in slice_.plan.intermediate_starts.items()}
    return {tp: CommittedOffset(at, ours) for tp, at in starts.items()}


def _replaced_outputs(session: CoordinatorSession, plan: RunPlan) -> tuple[str, ...]:
    """Return warnings of topics that took results of the run and are gone, or were made anew since."""
    if plan.empty or not plan.output_ids:
        return ()
    found = session.admin.describe_topics(plan.output_ids)
    return tuple(
        f"output topic {topic} was deleted{', and made anew,' if topic in found else ''} since the run "
        "began: results that it had written there by then are gone; they are written again if the run's "
        "input is processed again (docs/explanation/reset.md)"
        for topic, id_ in sorted(plan.output_ids.items())
        if topic not in found or found[topic].topic_id != id_
    )


def _moved_past(stop: int, committed: CommittedOffset) -> bool:
    """Whether a person moved an input past its stop, because records up to there and beyond were deleted."""
    return committed.offset > stop and not OffsetMetadata.decode(committed.metadata).run_id


def _times(committed: Mapping[TopicPartition, CommittedOffset]) -> dict[TopicPartition, PartitionTimes]:
    """Return the partition times that travel with committed offsets, where there are any."""
    found = {tp: OffsetMetadata.decode(offset.metadata).times for tp, offset in committed.items()}
    return {tp: times for tp, times in found.items() if times != PartitionTimes()}


def misdated_warnings(
    plan: TopologyPlan, done: Sequence[TaskReport], times: Mapping[TopicPartition, PartitionTimes]
) -> tuple[str, ...]:
    """Return warnings that name the topics of which implausibly dated records were processed.

    :param done: reports of a run's tasks.
    :param times: times of the partitions that these tasks read.
    """
    found: dict[int, int] = {}
    for task in done:
        if task.records_misdated:
            sub_id = subtopology_of(task.task_id)
            found[sub_id] = found.get(sub_id, 0) + task.records_misdated
    latest_ms = {tp: its.latest_ms for tp, its in times.items()}
    return tuple(
        implausible_times(count, plan.subtopology(sub_id).sources, latest_ms)
        for sub_id, count in sorted(found.items())
    )


def _refuse_unfinished(
    slice_: Slice, stops: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, CommittedOffset]
) -> None:
    wrong = [
        f"{tp} is at {committed[tp].offset if tp in committed else 'no offset'}, expected {stop}"
        for tp, stop in sorted(stops.items())
        if tp not in committed or committed[tp].offset != stop
    ]
    if wrong:
        raise RunError(
            f"run {slice_.run_id!r} is not finished: {first_few(wrong)}",
            fix="run the topology again: it resumes with the same stop offsets",
            run_id=slice_.run_id,
        )


def _refuse_owing(slice_: Slice, committed: Mapping[TopicPartition, CommittedOffset]) -> None:
    """Refuse a run some of whose tasks have yet to make their last commit."""
    owing: list[str] = []
    parking = ""
    for sub in slice_.plan.topology.subtopologies:
        for group in range(slice_.plan.tasks[str(sub.id)]):
            offsets = [committed[tp] for tp in task_partitions(slice_, sub.id, group)]
            told = [OffsetMetadata.decode(offset.metadata) for offset in offsets]
            if owes_last_commit(slice_.run_id, told, sub, moment_ms=slice_.plan.moment_of(sub.id)):
                owing.append(f"{sub.id}_{group}")
                parking = "has retry topics and " if may_park(sub) else parking
    if owing:
        raise RunError(
            f"run {slice_.run_id!r} is not finished: task {first_few(owing)} {parking}"
            "has not made its last commit, with which it says what is left parked, and that stream time has "
            "advanced",
            fix="run the topology again: it resumes with the same stop offsets",
            run_id=slice_.run_id,
        )


def _past_markers(
    session: CoordinatorSession,
    slice_: Slice,
    committed: Mapping[TopicPartition, CommittedOffset],
) -> dict[TopicPartition, CommittedOffset]:
    """Return offsets past the transaction markers at the end of intermediate partitions, so that tools show
    no lag.
    """
    partitions = partitions_of(slice_, slice_.plan.topology.intermediates)
    bounds = log_bounds(session.admin, partitions, settle_ms=_MARKERS_MS, clock=session.clock)
    spans = {
        tp: (committed[tp].offset, log_of.stable)
        for tp, log_of in bounds.items()
        if tp in committed and committed[tp].offset < log_of.stable
    }
    with session.reading:
        holding = has_records(session.reader, spans, clock=session.clock)
    return {
        tp: CommittedOffset(to, committed[tp].metadata) for tp, (_, to) in spans.items() if tp not in holding
    }


def _task_order(task_id: str) -> tuple[int, ...]:
    return tuple(int(part) for part in task_id.split("_") if part.isdigit())


def judge_late(
    settings: ApplicationSettings, plan: TopologyPlan, counts: RecordCounts | None, run_id: str
) -> tuple[str, ...]:
    """Return warnings, if more records were dropped as late than the settings allow, or if the number is not
    known.

    :param counts: record counts of all tasks of the run; None if not known.
    :raises ConfigError: more were dropped, and the settings say that the run fails.
    """
    if settings.max_late_share >= 1:
        return ()
    if counts is None:
        return (
            f"how many records run {run_id} dropped as late is unknown (the counts of a task had no room "
            "beside its offsets, or another tool set them): max.late.share is not checked",
        )
    late, read = counts.by("late"), counts.consumed(plan.subtopologies)
    if late <= settings.max_late_share * read:
        return ()
    share = f"{late / read:.2%}" if read else "more than all"
    nodes = ", ".join(
        f"{shown_node(entry.node, plan.purposes)}: {entry.records}"
        for entry in [entry for entry in counts.left_out if entry.rule == "late"][:_NAMED_ENTRIES]
    )
    what = (
        f"run {run_id} dropped {counted(late, 'record')} as late ({nodes}), {share} of the {read} that it "
        f"read; max.late.share allows {settings.max_late_share:.2%}"
    )
    if settings.late_share_exceeded == "warn":
        return (what,)
    raise ConfigError(
        what,
        fix="look at the times of the input's records, and give the windows more grace for later runs; then "
        "set max.late.share higher, or late.share.exceeded=warn, and retry the run: its slice is kept and "
        "its results are committed, only the finished marker is missing",
    )


def counts_of(plan: TopologyPlan, tasks: Mapping[str, OffsetMetadata]) -> RecordCounts | None:
    """Add up the record counts of tasks.

    :param tasks: task id -> the metadata that the task committed last.
    :return: the sum; None if the counts of one task are not known.
    """
    return counts_in_all(_counts(plan, tasks[task_id]) for task_id in tasks)


def counts_by_subtopology(plan: TopologyPlan, tasks: Mapping[str, OffsetMetadata]) -> dict[int, RecordCounts]:
    """Add up the record counts of each subtopology's tasks, where they are known for all of them."""
    of_each: dict[int, dict[str, OffsetMetadata]] = {}
    for task_id, committed in tasks.items():
        of_each.setdefault(subtopology_of(task_id), {})[task_id] = committed
    added = {number: counts_of(plan, its_tasks) for number, its_tasks in of_each.items()}
    return {number: counts for number, counts in added.items() if counts is not None}


def audit(
    plan: TopologyPlan, tasks: Mapping[str, OffsetMetadata], inputs: Sequence[FrozenPartition], run_id: str
) -> tuple[str, ...]:
    """Return the counts that do not add up, one line each, and log them.

    :param tasks: task id -> the metadata that the task committed last.
    :param inputs: start and stop of every input partition of the slice.
    """
    counts = counts_of(plan, tasks)
    bugs = [
        *(line for task_id, committed in tasks.items() for line in _task(plan, task_id, committed)),
        *_inputs(plan, counts, inputs),
    ]
    found = [*(f"{what}{_BUG}" for what in bugs), *_between(plan, counts)]
    lines = tuple(f"the counts of run {run_id} do not add up: {what}" for what in found)
    for line in lines:
        log.error("%s", line)
    return lines


def _counts(plan: TopologyPlan, committed: OffsetMetadata) -> RecordCounts | None:
    if committed.counts is None:
        return None
    return committed.counts.unpacked(plan.subtopology(subtopology_of(committed.task_id)))


def _task(plan: TopologyPlan, task_id: str, committed: OffsetMetadata) -> Iterator[str]:
    """Yield the counts that do not add up within a task: identities 1 and 2."""
    counts = _counts(plan, committed)
    if counts is None or committed.counts is None:
        return
    twice = {
        "read": (committed.records_in, sum(counts.read.values())),
        "left out of the interval": (committed.records_skipped, sum(counts.outside.values())),
        "written": (committed.records_out, sum(counts.output.values())),
        "dropped": (committed.records_dropped, counts.by(*DROPPING)),
        "dead-lettered": (committed.records_dead_lettered, counts.by("dead-lettered")),
    }
    for what, (total, parts) in twice.items():
        if total != parts:
            records = counted(total, "record")
            yield f"task {task_id} counted {records} {what} in all, and {parts} by topic and node"
    wrong = committed.counts.wrong(plan.subtopology(subtopology_of(task_id)))
    if wrong is not None:
        topic, arrived, written = wrong
        yield (
            f"task {task_id} counted {counted(written, 'record')} written to {topic}, and by what it read "
            f"and left out it must have been {arrived}"
        )


def _inputs(
    plan: TopologyPlan, counts: RecordCounts | None, inputs: Sequence[FrozenPartition]
) -> Iterator[str]:
    """Yield the counts that do not add up at the inputs: identity 3."""
    if counts is None:
        return
    for topic in plan.inputs:
        span = sum(part.stop_offset - part.start_offset for part in inputs if part.topic == topic)
        read = counts.read.get(topic, 0) + counts.outside.get(topic, 0)
        if read > span:
            yield f"{counted(read, 'record')} read from {topic}, whose slice has {counted(span, 'offset')}"


def _between(plan: TopologyPlan, counts: RecordCounts | None) -> Iterator[str]:
    """Yield the counts that do not add up between subtopologies: identity 4."""
    if counts is None:
        return
    for topic in plan.intermediates:
        read, written = counts.read.get(topic, 0), counts.output.get(topic, 0)
        if read < written:
            yield (
                f"{counted(written, 'record')} written to {topic}, and {read} read from it. Records of the "
                "topic are gone (truncated, deleted, or compacted where the topic is the user's own), or "
                "this is a bug of the engine in what it counts: see the topic's settings and the broker's "
                "log, else report this line"
            )
