"""Builds the small, typed results that operators and sensors leave in XCom. No part of the package reads them
back to decide anything; Kafka is asked for that.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypedDict

from airflow_kstreams.batch.ledger.run_summary import RunSummary, summary_so_far
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.offsets.parked import parked_total, sum_parked
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.report.lineage import snapshots_of
from airflow_kstreams.batch.run.finished_before import finished_at, topology_of
from airflow_kstreams.streams.figures.record_counts import RecordCounts
from airflow_kstreams.streams.plan import SubtopologyPlan
from airflow_kstreams.streams.ports import TopicPartition

if TYPE_CHECKING:
    from airflow_kstreams.batch.expand.growth import GrowthPlan
    from airflow_kstreams.batch.expand.processor_plan import ProcessorPlan
    from airflow_kstreams.batch.protocol.replay_records import Replay
    from airflow_kstreams.batch.reset.reset_plan import ResetPlan

#: Largest result in bytes of JSON: it lies in Airflow's database and is loaded with every look at the task.
MAX_RESULT_BYTES = 4_000


class RunResult(TypedDict):
    """A run as one operator saw it.

    :param run_id: id of the run.
    :param application_id: id of the application.
    :param generation: number of drivers that have claimed the run.
    :param finished: whether the finished marker is written.
    :param empty: whether there was nothing new.
    :param record_span: sum of stop - start offsets over the inputs, an upper bound of the records to read.
    :param records_per_topic: input topic -> its part of ``record_span``, largest first.
    :param topics_omitted: number of topics that did not fit.
    :param records_in: records that the tasks have read from topics that none of them writes: the inputs of
        the run, or of the one subtopology that the operator runs. This and the next five are None where the
        counts of a task had no room beside its offsets, or another tool set these.
    :param records_out: records that the tasks have written to topics that none of them reads.
    :param records_late: records dropped because their windows had closed.
    :param read_per_topic: records read per source topic, topics between subtopologies among them, largest
        first.
    :param written_per_topic: records written per topic, largest first.
    :param left_out: records that went no further, per node and rule (``NODE: late``), largest first.
    :param counts_omitted: number of topics and nodes whose counts did not fit.
    :param records_skipped: records that the tasks have left out because a backfill keeps to its interval.
    :param already_finished: whether the run had finished before the operator came, so that nothing was
        processed now.
    :param finished_at: time at which the run finished, ISO 8601; empty if it has not.
    :param topology: first digits of the topology's hash.
    :param records_misdated: records with an implausible time that the tasks have processed: later than
        ``max.timestamp.ahead.ms`` allows, where nothing goes by stream time, or in the weeks of 1970 in which
        seconds lie that are taken for milliseconds.
    :param state: ``begun``, ``completed``, or ``completed_with_parked(n)`` when the finished run left records
        parked for their next attempt.
    :param parked: node -> number of records that the tasks have left parked so far, largest first; None where
        the number is not known.
    :param parked_omitted: number of nodes with parked records that did not fit.
    :param parked_due: time at which the first parked record is due, ISO 8601; empty when none is parked, or
        the time is not known.
    :param records_behind_cut: records behind the cut of its data interval that are dated before it, which are
        the next run's, counted when the run began; None where no such cut was made.
    :param snapshots: name of a table's sink -> the snapshot that the finished run made of it: ``table`` (its
        identifier or URI), ``table_id``, ``sequence``, ``snapshot``, ``rows`` and ``files``.
    :param snapshots_omitted: number of snapshots that did not fit.
    """

    run_id: str
    application_id: str
    generation: int
    finished: bool
    empty: bool
    record_span: int
    records_per_topic: dict[str, int]
    topics_omitted: int
    records_in: int | None
    records_out: int | None
    records_late: int | None
    read_per_topic: dict[str, int] | None
    written_per_topic: dict[str, int] | None
    left_out: dict[str, int] | None
    counts_omitted: int
    records_skipped: int
    already_finished: bool
    finished_at: str
    topology: str
    records_misdated: int
    state: str
    parked: dict[str, int | None]
    parked_omitted: int
    parked_due: str
    records_behind_cut: int | None
    snapshots: dict[str, dict[str, Any]]
    snapshots_omitted: int


class NewDataResult(TypedDict):
    """Records that no run has processed.

    :param application_id: application whose input the records are.
    :param records: number of records, counted no further than the sensor asked for.
    :param records_per_topic: input topic -> number of its records, largest first; parked records that are due
        under their retry topic.
    :param topics_omitted: number of topics that did not fit.
    :param oldest_ms: smallest timestamp among the first new records of the partitions, epoch milliseconds;
        where only parked records are due, the time at which the sensor saw that.
    """

    application_id: str
    records: int
    records_per_topic: dict[str, int]
    topics_omitted: int
    oldest_ms: int


class StopOffsetsResult(TypedDict):
    """A subtopology that is at its stop offsets.

    :param application_id: id of the application.
    :param run_id: id of the run.
    :param subtopology: id of the subtopology.
    :param stop_offsets: ``topic-partition`` -> stop offset; empty once the run is finished, and where they do
        not fit.
    """

    application_id: str
    run_id: str
    subtopology: int
    stop_offsets: dict[str, int]


class ReplayResult(TypedDict):
    """A replay of dead letters.

    :param replay_id: id of the replay.
    :param application_id: application that wrote the dead letters.
    :param dead_letter_topic: topic that holds the dead letters.
    :param records: records brought back to the topics they came from.
    :param records_per_topic: topic -> number of records brought back to it, largest first.
    :param topics_omitted: number of topics that did not fit.
    :param without_origin: letters that stayed because they belong to no consumed record, as those of timers.
    :param left_out: letters that stayed because they do not hold their whole record, which did not fit.
    :param expired: offsets that the topic's retention deleted before they were replayed.
    :param unselected: letters that were left to later replays, because they do not match ``where``.
    :param repeated: letters whose record came back by another letter of the same record, in this replay or an
        earlier one.
    :param limit_reached: whether letters past the limit were left to later replays, too.
    :param late_per_store: windowed store, or join of streams -> number of records brought back after all of
        their windows in it had closed, largest first: the next run drops them there, and counts them in its
        ``records_late``.
    :param stores_omitted: number of stores that did not fit.
    :param late_unknown: records brought back of which it is not known whether they are late somewhere.
    """

    replay_id: str
    application_id: str
    dead_letter_topic: str
    records: int
    records_per_topic: dict[str, int]
    topics_omitted: int
    without_origin: int
    left_out: int
    expired: int
    unselected: int
    repeated: int
    limit_reached: bool
    late_per_store: dict[str, int]
    stores_omitted: int
    late_unknown: int


class ResetResult(TypedDict):
    """A reset of an application.

    :param application_id: id of the application.
    :param done_before: whether an earlier try had done it; its counts are left out.
    :param partitions_per_topic: topic -> number of its partitions whose offset was set.
    :param topics_omitted: number of topics that did not fit.
    :param topics_deleted: number of internal topics that were deleted.
    :param runs_taken_back: number of finished runs that may run again under their ids.
    :param dropped_run: id of the unfinished run whose slice was dropped; empty for none.
    :param finished_run: id of a run that was to be dropped, and was finished instead, because its rows were
        in a table; empty for none.
    :param parked_given_up: number of parked records that went with their retry topics; None where that is not
        known.
    """

    application_id: str
    done_before: bool
    partitions_per_topic: dict[str, int]
    topics_omitted: int
    topics_deleted: int
    runs_taken_back: int
    dropped_run: str
    finished_run: str
    parked_given_up: int | None


class PartitionsResult(TypedDict):
    """A topic that was to grow.

    :param application_id: application on whose behalf the topic was grown.
    :param topic: name of the topic.
    :param partitions_before: its partition count before; equal to ``partitions`` when an earlier try, or
        another program, had grown it.
    :param partitions: its partition count now.
    :param kinds: arithmetic by which producers may place keys, as far as counts and keys tell: ``linear``,
        ``modulo`` or both; empty where no state depends on the keys.
    :param tasks: number of tasks of the subtopology that reads the topic.
    :param would_wait: number of new partitions that would wait until the older partitions of their keys are
        read, if a run began now.
    """

    application_id: str
    topic: str
    partitions_before: int
    partitions: int
    kinds: list[str]
    tasks: int
    would_wait: int


class ProcessorsResult(TypedDict):
    """A subtopology that is to have more processors.

    :param application_id: id of the application.
    :param subtopology: id of the subtopology.
    :param processors: number of its processors now.
    :param processors_asked: number of processors that it is to have; the run that takes over gives it that
        many.
    :param entries_copied: entries of its stores copied for the new processors so far, deletions among them; 0
        when a run has taken over.
    :param bytes_copied: size of these entries.
    :param records_left: changelog records between the end of the copy and the end of the changelogs when they
        were last looked at.
    """

    application_id: str
    subtopology: int
    processors: int
    processors_asked: int
    entries_copied: int
    bytes_copied: int
    records_left: int


def iso_of(epoch_ms: int) -> str:
    """Return a time in ISO 8601, in UTC."""
    return datetime.fromtimestamp(epoch_ms / 1000, tz=UTC).isoformat()


def new_data_result(application_id: str, per_topic: Mapping[str, int], oldest_ms: int) -> NewDataResult:
    """Describe the records that no run has processed."""
    result = NewDataResult(
        application_id=application_id,
        records=sum(per_topic.values()),
        records_per_topic={},
        topics_omitted=0,
        oldest_ms=oldest_ms,
    )
    new = {topic: count for topic, count in per_topic.items() if count}
    result["records_per_topic"], result["topics_omitted"] = _largest(result, new)
    return result


def stop_offsets_result(
    application_id: str, run_id: str, subtopology: int, stops: Mapping[TopicPartition, int]
) -> StopOffsetsResult:
    """Describe a subtopology that is at its stop offsets."""
    result = StopOffsetsResult(
        application_id=application_id,
        run_id=run_id,
        subtopology=subtopology,
        stop_offsets={str(tp): stop for tp, stop in sorted(stops.items())},
    )
    if len(json.dumps(result)) > MAX_RESULT_BYTES:
        result["stop_offsets"] = {}
    return result


def replay_result(application_id: str, replay: Replay) -> ReplayResult:
    """Describe a replay of dead letters."""
    result = ReplayResult(
        replay_id=replay.replay_id,
        application_id=application_id,
        dead_letter_topic=replay.dead_letter_topic,
        records=replay.records,
        records_per_topic={},
        topics_omitted=0,
        without_origin=replay.without_origin,
        left_out=replay.left_out,
        expired=replay.expired,
        unselected=replay.unselected,
        repeated=replay.repeated,
        limit_reached=replay.at_limit,
        late_per_store={},
        stores_omitted=0,
        late_unknown=replay.late_unknown,
    )
    result["late_per_store"], result["stores_omitted"] = _largest(result, replay.late)
    result["records_per_topic"], result["topics_omitted"] = _largest(result, replay.records_per_topic)
    return result


def reset_result(done: ResetPlan) -> ResetResult:
    """Describe a reset that was made."""
    result = ResetResult(
        application_id=done.request.application_id,
        done_before=done.done_before,
        partitions_per_topic={},
        topics_omitted=0,
        topics_deleted=len(done.deleted),
        runs_taken_back=len(done.taken_back),
        dropped_run=done.dropped_run or "",
        finished_run=done.finished_run,
        parked_given_up=sum_parked(parked_total(done.given_up)),
    )
    moved = Counter(change.partition.topic for change in done.offsets)
    result["partitions_per_topic"], result["topics_omitted"] = _largest(result, moved)
    return result


def partitions_result(plan: GrowthPlan) -> PartitionsResult:
    """Describe a topic that has grown."""
    return PartitionsResult(
        application_id=plan.application_id,
        topic=plan.topic,
        partitions_before=plan.before,
        partitions=plan.count,
        kinds=list(plan.grown.kinds) if plan.grown is not None else [],
        tasks=plan.tasks,
        would_wait=len(plan.waits),
    )


def processors_result(plan: ProcessorPlan) -> ProcessorsResult:
    """Describe a subtopology whose state is copied, or has been taken over."""
    return ProcessorsResult(
        application_id=plan.application_id,
        subtopology=plan.sub.id,
        processors=plan.before,
        processors_asked=plan.before if plan.after is None else plan.after.count,
        entries_copied=sum(each.told.copied for each in plan.sources),
        bytes_copied=sum(each.told.copied_bytes for each in plan.sources),
        records_left=sum(each.lag for each in plan.sources),
    )


def result_of_slice(
    slice_: Slice,
    tasks: Iterable[TaskReport] = (),
    *,
    subtopologies: Collection[SubtopologyPlan] | None = None,
    counts: RecordCounts | None = None,
) -> RunResult:
    """Describe a slice that has begun.

    :param tasks: reports of its tasks, as they have committed them so far.
    :param subtopologies: subtopologies whose tasks these are; all unless given.
    :param counts: record counts of these tasks; None if not known.
    """
    reports = tuple(tasks)
    known = counts if reports else RecordCounts()
    return _run_result(summary_so_far(slice_, reports, known, subtopologies=subtopologies), finished=False)


def result_so_far(summary: RunSummary) -> RunResult:
    """Describe a run that is not finished.

    :param summary: summary of what its tasks have committed so far.
    """
    return _run_result(summary, finished=False)


def result_of_summary(summary: RunSummary, *, already: bool = False) -> RunResult:
    """Describe a finished run.

    :param already: whether the run had finished before, so that nothing was processed now.
    """
    return _run_result(summary, finished=True, already=already)


def _run_result(summary: RunSummary, *, finished: bool, already: bool = False) -> RunResult:
    per_topic = {read.topic: read.stop - read.start for read in summary.reads}
    due_ms, behind = summary.parked_due_ms, summary.behind_cut
    result = RunResult(
        run_id=summary.run_id,
        application_id=summary.application_id,
        generation=summary.generation,
        finished=finished,
        empty=summary.empty,
        record_span=sum(per_topic.values()),
        records_per_topic={},
        topics_omitted=0,
        records_in=summary.records_in,
        records_out=summary.records_out,
        records_late=None,
        read_per_topic=None,
        written_per_topic=None,
        left_out=None,
        counts_omitted=0,
        records_skipped=summary.records_skipped,
        already_finished=already,
        finished_at=finished_at(summary) if finished else "",
        topology=topology_of(summary),
        records_misdated=summary.records_misdated,
        state=summary.state if finished else "begun",
        parked={},
        parked_omitted=0,
        parked_due="" if due_ms is None else iso_of(due_ms),
        records_behind_cut=None if behind is None else behind.total,
        snapshots={},
        snapshots_omitted=0,
    )
    _add_snapshots(result, snapshots_of(summary))
    _add_parked(result, summary.parked)
    result["records_per_topic"], result["topics_omitted"] = _largest(result, per_topic)
    _add_counts(result, summary.counts)
    return result


def _add_snapshots(result: RunResult, snapshots: Mapping[str, dict[str, Any]]) -> None:
    """Add the snapshots as far as they fit, in the order of the sinks' names."""
    for name, snapshot in snapshots.items():
        kept = {**result["snapshots"], name: snapshot}
        if len(json.dumps({**result, "snapshots": kept})) > MAX_RESULT_BYTES // 2:
            result["snapshots_omitted"] = len(snapshots) - len(result["snapshots"])
            return
        result["snapshots"] = kept


def _add_parked(result: RunResult, parked: Mapping[str, int | None]) -> None:
    """Add the parked counts as far as they fit; an unknown count is taken for the largest."""
    by_size = {node: sys.maxsize if count is None else count for node, count in parked.items()}
    kept, result["parked_omitted"] = _largest(result, by_size)
    result["parked"] = {node: parked[node] for node in kept}


def _add_counts(result: RunResult, counts: RecordCounts | None) -> None:
    """Add counts by topic and node as far as they fit; records that went no further come first."""
    if counts is None:
        return
    result["records_late"] = counts.by("late")
    nodes = {f"{entry.node or 'other nodes'}: {entry.rule}": entry.records for entry in counts.left_out}
    result["left_out"], nodes_omitted = _largest(result, nodes)
    result["read_per_topic"], read_omitted = _largest(result, counts.read)
    result["written_per_topic"], written_omitted = _largest(result, counts.output)
    result["counts_omitted"] = nodes_omitted + read_omitted + written_omitted


def _largest(result: object, per_topic: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Return the largest numbers that fit into a result beside the rest of it, and how many do not."""
    room = MAX_RESULT_BYTES - len(json.dumps(result)) - len(str(len(per_topic)))
    kept: dict[str, int] = {}
    for topic, number in Counter(per_topic).most_common():
        room -= len(json.dumps({topic: number}))
        if room < 0:
            break
        kept[topic] = number
    return kept, len(per_topic) - len(kept)
