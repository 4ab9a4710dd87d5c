"""Works out what one task has to do for a slice, from the share that its driver shipped and the committed
offsets.

Rule: a task's last commit commits the stops of all of its partitions, says so beside them, and carries its
done notification if its driver found none. So the next attempt, of Spark or of a driver, processes and closes
nothing again. No other commit covers all stops, but of a task with retry topics, and of one whose stream time
advances in several transactions. Offsets at the stops alone do not say it: begin commits them there for a
task with nothing to read. Of these, and of one that has parked records, only that it says so does
(:mod:`airflow_kstreams.batch.protocol.offsets.parked`,
:mod:`airflow_kstreams.batch.protocol.slice.end_of_run`).

Begin commits every partition's start under the run's id. An offset that another run has committed therefore
means that this one is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from airflow_kstreams.batch.evidence.contradictions import refuse_foreign_progress
from airflow_kstreams.batch.protocol.logs.data_loss import (
    Loss,
    data_loss,
    deleted,
    progress_lost,
    truncated_below,
)
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.protocol.offsets.parked import owes_last_commit
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.task_share import TaskShare, end_epochs, looked_at, spans_of
from airflow_kstreams.batch.protocol.topics import refuse_other_topics
from airflow_kstreams.streams.errors import TaskFencedError
from airflow_kstreams.streams.naming.commands import drop_slice_command
from airflow_kstreams.streams.ports import AdminPort, CommittedOffset, ReaderPort, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSlice:
    """The work that is left to a task.

    :param bounds: (position to resume at, stop offset) of each of its partitions.
    :param committed: what the group had committed when this was worked out; partitions without are absent.
    :param processed: whether its last commit is made.
    :param notify: whether its done notification is to be written, with the last commit or, if that is made,
        alone.
    :param kept_ms: the interval in which records are processed, of each partition that has one.
    :param end_epochs: the leader epoch at each log's end when its stop was frozen, where it is known.
    :param looked_at: start, and end of what may be looked at, of each partition that waits for others.
    :param tables: topics of the global tables whose records without key it counts.
    """

    bounds: Mapping[TopicPartition, tuple[int, int]]
    committed: Mapping[TopicPartition, CommittedOffset]
    processed: bool = False
    notify: bool = False
    kept_ms: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    end_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    looked_at: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    tables: tuple[str, ...] = ()


def task_slice(slice_: Slice, share: TaskShare, reader: ReaderPort, admin: AdminPort) -> TaskSlice:
    """Work out what is left of a task's share of a slice.

    :param slice_: as the task knows it.
    :raises TaskFencedError: another run has begun.
    :raises DataLossError: records it must read are gone.
    """
    spans = spans_of(slice_, share)
    committed = reader.committed(sorted(spans))
    metadata = {tp: OffsetMetadata.decode(offset.metadata) for tp, offset in committed.items()}
    task_id = f"{share.subtopology}_{share.group}"
    passed = {tp for tp, offset in committed.items() if offset.offset >= spans[tp][1]}
    _refuse_next_run(slice_, task_id, metadata, passed=passed)
    bounds = {
        tp: (committed[tp].offset if tp in committed else start, stop)
        for tp, (start, stop) in sorted(spans.items())
    }
    refuse_slice_loss(admin, slice_, bounds)
    refuse_lost_progress(slice_, bounds, committed)
    refuse_foreign_progress(slice_, committed)
    at_stops = passed == spans.keys()
    complete = any(
        found.complete and (found.run_id, found.task_id) == (slice_.run_id, task_id)
        for found in metadata.values()
    )
    sub, moment_ms = (
        slice_.plan.topology.subtopology(share.subtopology),
        slice_.plan.moment_of(share.subtopology),
    )
    owes = owes_last_commit(slice_.run_id, metadata.values(), sub, moment_ms=moment_ms)
    kept = slice_.plan.kept_ms
    return TaskSlice(
        bounds=bounds,
        committed=committed,
        processed=at_stops and (complete or not (share.notify or owes)),
        notify=share.notify,
        kept_ms={} if kept is None else {part.topic_partition: kept for part in slice_.inputs},
        end_epochs=end_epochs(slice_, share),
        looked_at=looked_at(slice_, share),
        tables=share.tables,
    )


def _refuse_next_run(
    slice_: Slice,
    task_id: str,
    metadata: Mapping[TopicPartition, OffsetMetadata],
    *,
    passed: Set[TopicPartition],
) -> None:
    """Refuse a task that begins when its run is over. An offset that another run has committed before the
    stop is no sign of that: it was taken back.

    :param passed: partitions whose committed offset is at the stop, or behind it.
    """
    for tp, found in sorted(metadata.items()):
        if found.run_id not in ("", slice_.run_id) and tp in passed:
            raise TaskFencedError(
                f"task {task_id} belongs to run {slice_.run_id!r}, but the offset of {tp} was committed by "
                f"run {found.run_id!r}",
                fix="nothing: that run began when this one was finished",
                task_id=task_id,
            )


def refuse_slice_loss(
    admin: AdminPort, slice_: Slice, spans: Mapping[TopicPartition, tuple[int, int]]
) -> None:
    """Refuse to read what is not there any more, and to wait for stop offsets that logs will never reach.

    :param spans: partition -> (offset to read next, stop offset).
    :raises DataLossError: a topic was created again, a log was truncated, or records were deleted.
    """
    application_id, run = slice_.plan.topology.application_id, f"run {slice_.run_id!r}"
    refuse_other_topics(admin, slice_, {partition.topic for partition in spans})
    starts = admin.start_offsets(sorted(spans))
    ends = admin.end_offsets(sorted(spans), isolation="read_uncommitted")
    losses: list[Loss] = []
    for partition, span in sorted(spans.items()):
        position, stop = span
        if ends[partition] < stop:
            drop, end = drop_slice_command(application_id), ends[partition]
            losses.append(truncated_below(partition, span=span, log_end=end, run=run, drop=drop))
        elif position < min(stop, starts[partition]):
            had = f"; {run} had to read [{position}, {stop})"
            losses.append(deleted(partition, expected=position, log_start=starts[partition], reader=had))
    if losses:
        raise data_loss(losses, application_id, run_id=slice_.run_id)


def refuse_lost_progress(
    slice_: Slice,
    bounds: Mapping[TopicPartition, tuple[int, int]],
    committed: Mapping[TopicPartition, CommittedOffset],
) -> None:
    """Refuse to read a slice again that may have been read in part.

    Begin commits the start of every partition, so that an offset that is not there was there. Nothing is lost
    with it where nothing is to be read.

    :raises DataLossError: a committed offset is gone.
    """
    losses = [
        progress_lost(partition, start=start, stop=stop, run_id=slice_.run_id)
        for partition, (start, stop) in sorted(bounds.items())
        if partition not in committed and start < stop
    ]
    if losses:
        raise data_loss(losses, slice_.plan.topology.application_id, run_id=slice_.run_id)
