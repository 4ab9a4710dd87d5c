"""Checks that a task's changelogs are those that its offsets were committed with.

Each transaction of a task holds its changelog records and its offsets, and beside each offset the ends of the
changelogs right before the commit. So, when no older attempt can write any more, a changelog

- that begins beyond offset 0, or ends before that end, has lost state;
- that holds a committed record at or past that end knows of a later commit: the offsets were taken back, and
  what was processed between the two would be processed twice. Nothing but markers and aborted records may lie
  there.

A younger attempt can write, and this one may not have noticed that it is fenced. So records past the end are
a loss only if the offsets still are as they were read: that attempt moves them with its records.

Offsets that an operator or another run committed, and those of versions that kept no ends, prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from airflow_kstreams.batch.protocol.logs.data_loss import (
    changelog_deleted,
    changelog_truncated,
    data_loss,
    progress_taken_back,
)
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.streams.errors import TaskFencedError
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.streams.runtime.stream_task import StreamTask


class ChangelogEvidence:
    """Compares one task's changelogs with its committed offsets.

    :param committed: of the task's source partitions, once no older attempt can move them.
    :param committed_now: reads them again.
    :ivar ends: high watermark of each changelog partition when the stores were restored; empty before.
    """

    def __init__(
        self,
        slice_: Slice,
        task: StreamTask,
        committed: Mapping[TopicPartition, CommittedOffset],
        committed_now: Callable[[], Mapping[TopicPartition, CommittedOffset]],
    ) -> None:
        self._slice = slice_
        self._task = str(task.task_id)
        self._committed = committed
        self._committed_now = committed_now
        self._known = _known(slice_, changelogs_of(task), committed)
        self.ends: Mapping[TopicPartition, int] = {}

    def refuse_lost(self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """Refuse changelogs that are not whole.

        :param starts: first offset of every changelog partition.
        :param ends: high watermark of every changelog partition.
        :raises DataLossError: records of one were deleted, or it was truncated.
        """
        self.ends = ends
        plan, losses = self._slice.plan.topology, []
        why = f"the committed offset of task {self._task} was committed when it ended at"
        for tp, log_end in sorted(ends.items()):
            if starts[tp]:
                losses.append(changelog_deleted(plan, tp, log_start=starts[tp], drop_slice=True))
            elif log_end < self._known.get(tp, 0):
                losses.append(
                    changelog_truncated(
                        plan, tp, log_end=log_end, expected=self._known[tp], why=why, drop_slice=True
                    )
                )
        if losses:
            raise data_loss(losses, plan.application_id, run_id=self._slice.run_id)

    def refuse_ahead(self, restored: Mapping[TopicPartition, int]) -> None:
        """Refuse state of a later commit than that of the offsets.

        :param restored: changelog partition -> offset behind the last record that the stores hold.
        :raises TaskFencedError: another attempt has written them since.
        :raises DataLossError: the offsets were taken back.
        """
        ahead = {tp: to for tp, to in sorted(restored.items()) if to > self._known.get(tp, to)}
        if ahead:
            changelog, to = next(iter(ahead.items()))
            if self._committed_now() != self._committed:
                raise TaskFencedError(
                    f"task {self._task}: another attempt has committed since this one read the offsets: "
                    f"changelog {changelog} holds a record at offset {to - 1}",
                    fix="nothing: the attempt that claimed the task's transactional id last goes on with it",
                    task_id=self._task,
                )
            loss = progress_taken_back(
                {tp: offset.offset for tp, offset in sorted(self._committed.items())},
                text=f"task {self._task}: changelog {changelog} holds a record at offset {to - 1}, but the "
                f"committed offsets were committed when it ended at {self._known[changelog]}",
            )
            raise data_loss(loss, self._slice.plan.topology.application_id, run_id=self._slice.run_id)


def changelogs_of(task: StreamTask) -> list[TopicPartition]:
    """Return the changelog partitions of a task, in the order in which their ends are kept beside offsets."""
    return [TopicPartition(topic, task.task_id.group) for topic in sorted(task.changelogs.values())]


def _known(
    slice_: Slice, changelogs: list[TopicPartition], committed: Mapping[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for offset in committed.values():
        metadata = OffsetMetadata.decode(offset.metadata)
        if metadata.run_id != slice_.run_id or len(metadata.changelog_ends) != len(changelogs):
            continue
        for tp, end in zip(changelogs, metadata.changelog_ends, strict=True):
            found[tp] = max(end, found.get(tp, 0))
    return found
