"""What one task has to do for a slice, worked out from the fold and the committed offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_kstreams.batch.metadata import Folded
from airflow_kstreams.batch.model import Slice
from airflow_kstreams.batch.stops import Notification, notifications_for, stops_of, task_partitions
from airflow_kstreams.batch.topics import refuse_other_topics
from airflow_kstreams.streams.errors import DataLossError
from airflow_kstreams.streams.ports import AdminPort, CommittedOffset, ReaderPort, TopicPartition
from airflow_kstreams.streams.runtime.stream_task import TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSlice:
    """One task's share of a slice.

    :param bounds: (position to resume at, stop offset) of each of its partitions.
    :param committed: what the group had committed when this was worked out; partitions without are absent.
    :param notify: every (input partition, intermediate partition) pair it must notify with its last commit.
    :param notified: whether all of those notifications are in the metadata topic already.
    """

    bounds: Mapping[TopicPartition, tuple[int, int]]
    committed: Mapping[TopicPartition, CommittedOffset]
    notify: tuple[Notification, ...]
    notified: bool

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
    _refuse_loss(slice_, stops, admin)
    committed = reader.committed(sorted(stops))
    starts = _starts(slice_, stops, committed, admin)
    notify = tuple(notifications_for(slice_, task_id.subtopology, task_id.group))
    return TaskSlice(
        bounds={partition: (starts[partition], stops[partition]) for partition in sorted(stops)},
        committed=committed,
        notify=notify,
        notified=all(pair in folded.notifications for pair in notify),
    )


def _stops(slice_: Slice, folded: Folded, task_id: TaskId) -> dict[TopicPartition, int]:
    partitions = task_partitions(slice_, task_id.subtopology, task_id.group)
    stops = stops_of(folded, slice_, {partition.topic for partition in partitions})
    return {partition: stops[partition] for partition in partitions}


def _refuse_loss(slice_: Slice, stops: Mapping[TopicPartition, int], admin: AdminPort) -> None:
    """Refuse to wait for stop offsets that the logs will never reach."""
    refuse_other_topics(admin, slice_, {partition.topic for partition in stops})
    ends = admin.end_offsets(sorted(stops), isolation="read_uncommitted")
    for partition, stop in sorted(stops.items()):
        if ends[partition] < stop:
            raise DataLossError(
                f"{partition}: the log ends at {ends[partition]}, but run {slice_.run_id!r} stops at {stop}: "
                "the log was truncated",
                fix="restore the topic, or reset the application and begin a new run",
                run_id=slice_.run_id,
            )


def _starts(
    slice_: Slice,
    stops: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, CommittedOffset],
    admin: AdminPort,
) -> dict[TopicPartition, int]:
    frozen = {part.topic_partition: part.start_offset for part in slice_.inputs}
    log_starts = admin.start_offsets(sorted(stops))
    starts: dict[TopicPartition, int] = {}
    for partition, stop in stops.items():
        known = committed[partition].offset if partition in committed else frozen.get(partition)
        start = log_starts[partition] if known is None else known
        if start < log_starts[partition] and start < stop:
            raise DataLossError(
                f"{partition}: records from offset {start} to {log_starts[partition]} are gone; run "
                f"{slice_.run_id!r} had to read [{start}, {stop})",
                fix="restore the topic, or accept the gap by resetting the application's offsets past it",
                run_id=slice_.run_id,
            )
        # A stop below the committed offset is possible for an intermediate partition that got nothing in this
        # slice.
        starts[partition] = min(start, stop) if known is None else start
    return starts
