"""What one task has to do for a slice, worked out from the fold and the committed offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_kstreams.batch.protocol.data_loss import (
    Loss,
    cut_off,
    data_loss,
    deleted,
    progress_lost,
)
from airflow_kstreams.batch.protocol.evidence import refuse_foreign_progress
from airflow_kstreams.batch.protocol.metadata import Folded
from airflow_kstreams.batch.protocol.model import Slice
from airflow_kstreams.batch.protocol.stops import (
    Notification,
    notifications_for,
    slice_starts,
    stops_of,
    task_partitions,
)
from airflow_kstreams.batch.protocol.topics import refuse_other_topics
from airflow_kstreams.streams.ports import AdminPort, CommittedOffset, ReaderPort, TopicPartition
from airflow_kstreams.streams.reset_command import drop_slice_command
from airflow_kstreams.streams.runtime.stream_task import TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSlice:
    """One task's share of a slice.

    :param bounds: (position to resume at, stop offset) of each of its partitions.
    :param committed: what the group had committed when this was worked out; partitions without are absent.
    :param notify: every (input partition, intermediate partition) pair it must notify with its last commit.
    :param notified: whether all of those notifications are in the metadata topic already.
    :param kept_ms: the interval in which records are processed, of each partition that has one.
    """

    bounds: Mapping[TopicPartition, tuple[int, int]]
    committed: Mapping[TopicPartition, CommittedOffset]
    notify: tuple[Notification, ...]
    notified: bool
    kept_ms: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        """Whether nothing is left to do, not even a commit: the stops are committed and notified."""
        return self.notified and all(
            partition in self.committed and self.committed[partition].offset >= stop
            for partition, (_, stop) in self.bounds.items()
        )

    @property
    def intermediates(self) -> tuple[TopicPartition, ...]:
        """The intermediate partitions it may write, sorted."""
        return tuple(sorted({intermediate for _, intermediate in self.notify}))


def task_slice(
    slice_: Slice, folded: Folded, task_id: TaskId, reader: ReaderPort, admin: AdminPort
) -> TaskSlice:
    """Work out a task's share of a slice.

    :raises UpstreamNotDoneError: an intermediate topic it reads has no complete set of done notifications.
    :raises DataLossError: records it must read are gone.
    """
    stops = _stops(slice_, folded, task_id)
    committed = reader.committed(sorted(stops))
    bounds = {partition: (_start(slice_, partition, committed), stop) for partition, stop in stops.items()}
    refuse_slice_loss(admin, slice_, bounds)
    refuse_lost_progress(slice_, bounds, committed)
    refuse_foreign_progress(slice_, committed)
    notify = tuple(notifications_for(slice_, task_id.subtopology, task_id.group))
    kept, inputs = slice_.plan.kept_ms, {part.topic_partition for part in slice_.inputs}
    return TaskSlice(
        bounds={partition: bounds[partition] for partition in sorted(bounds)},
        committed=committed,
        notify=notify,
        notified=all(pair in folded.notifications for pair in notify),
        kept_ms={} if kept is None else dict.fromkeys(sorted(inputs & bounds.keys()), kept),
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
            losses.append(cut_off(partition, span=span, log_end=end, run=run, drop=drop))
        elif position < min(stop, starts[partition]):
            had = f"; {run} had to read [{position}, {stop})"
            losses.append(deleted(partition, expected=position, log_start=starts[partition], reader=had))
    if losses:
        raise data_loss(losses, application_id, run_id=slice_.run_id)


def _stops(slice_: Slice, folded: Folded, task_id: TaskId) -> dict[TopicPartition, int]:
    partitions = task_partitions(slice_, task_id.subtopology, task_id.group)
    stops = stops_of(folded, slice_, {partition.topic for partition in partitions})
    return {partition: stops[partition] for partition in partitions}


def _start(
    slice_: Slice, partition: TopicPartition, committed: Mapping[TopicPartition, CommittedOffset]
) -> int:
    if partition in committed:
        return committed[partition].offset
    return slice_starts(slice_).get(partition, 0)


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
