"""Restores a task's stores: from their local files as far as a checkpoint goes, then from their changelogs,
once these are found to be those that its offsets were committed with.

Entries whose keys have moved to another processor stay in the changelog of the one that had them, and are
left out (:mod:`airflow_kstreams.batch.growing.state_copy`).

Only called after ``init_transactions`` settled the transactions that an older attempt of the task left open.
The changelog partition has no other writer, so its high watermark is final and every committed record below
it is visible.

Each transaction of a task holds its changelog records and its offsets, and beside each offset the ends of the
changelogs right before the commit. So, when no older attempt can write any more, a changelog

- that begins beyond offset 0, or ends before that end, has lost state;
- that holds a committed record at or past that end knows of a later commit: the offsets were taken back, and
  what was processed between the two would be processed twice. Nothing but markers and aborted records may lie
  there.

A younger attempt can write, and this one may not have noticed that it is fenced. So records past the end are
a loss only if the offsets still are as they were read: that attempt moves them with its records. Offsets that
an operator or another run committed prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from airflow_kstreams.batch.protocol.logs.data_loss import (
    changelog_deleted,
    changelog_truncated,
    data_loss,
    end_transactions,
    progress_taken_back,
)
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.task.task_state import TaskState
from airflow_kstreams.streams.bounded_read import BoundedRead, Patience
from airflow_kstreams.streams.errors import StateStoreError, TaskFencedError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.ports import (
    AdminPort,
    Clock,
    CommittedOffset,
    ReaderPort,
    Record,
    TopicPartition,
)
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.runtime.stream_task import StreamTask
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.state.stores.state_store import StateStore

log = package_log(__name__)
#: Between two lines of the log. Seldom enough for a log of many tasks, often enough to see that one lives.
_EVERY_SECONDS = 5.0
_POLL_SECONDS = 0.1


def restore_stores(
    task: StreamTask,
    state: TaskState,
    reader: ReaderPort,
    admin: AdminPort,
    settings: ApplicationSettings,
    clock: Clock,
    evidence: ChangelogEvidence | None = None,
) -> int:
    """Open a task's stores and replay every changelog partition into them.

    :param reader: the task's reader; its earlier assignment is lost.
    :param state: local files of the task.
    :param evidence: compares the changelogs with the committed offsets.
    :return: number of changelog records that were replayed.
    :raises StateStoreError: a changelog could not be read to its end in time, or holds what the store's serde
        refuses; or local files cannot be written.
    :raises DataLossError: changelogs and committed offsets contradict each other.
    """
    stores = {
        TopicPartition(topic, task.task_id.group): task.stores[name]
        for name, topic in task.changelogs.items()
    }
    ends = admin.end_offsets(stores, isolation="read_uncommitted")
    log_starts = admin.start_offsets(stores)
    if evidence is not None:
        evidence.refuse_lost(log_starts, ends)
    starts = state.open(log_starts, ends)
    restored = dict(starts)
    waiting = {partition: start for partition, start in starts.items() if start < ends[partition]}
    if evidence is not None:
        evidence.refuse_ahead(restored)
    if not waiting:
        return 0
    progress = RestoreProgress(
        str(task.task_id), sum(ends[partition] - start for partition, start in waiting.items()), clock
    )
    read = BoundedRead(
        reader,
        {partition: (start, ends[partition]) for partition, start in sorted(waiting.items())},
        clock=clock,
        poll_seconds=_POLL_SECONDS,
        patience=Patience(
            seconds=settings.run_stall_timeout_ms / 1000,
            since="record",
            error=lambda left, _: _stuck(task, left, admin),
        ),
    )
    passed = sum(read.positions.values())
    for fetched in read:
        size_bytes = sum(
            _restored(stores[partition], state.own(partition, records), f"changelog {partition.topic!r}")
            for partition, records in fetched.items()
        )
        restored |= {partition: records[-1].offset() + 1 for partition, records in fetched.items()}
        before, passed = passed, sum(read.positions.values())
        if passed > before:
            records = sum(map(len, fetched.values()))
            progress.add(records=records, size_bytes=size_bytes, offsets=passed - before)
    if evidence is not None:
        evidence.refuse_ahead(restored)
    progress.finish()
    return progress.records


def _restored(store: StateStore, records: Sequence[Record], _serde_of: str) -> int:
    return store.restore_batch(records)


def _stuck(task: StreamTask, changelogs: Sequence[TopicPartition], admin: AdminPort) -> StateStoreError:
    stable = admin.end_offsets(changelogs, isolation="read_committed")
    high = admin.end_offsets(changelogs, isolation="read_uncommitted")
    held = {tp: at for tp, at in stable.items() if at < high[tp]}
    return StateStoreError(
        f"task {task.task_id}: changelog partitions {', '.join(map(str, changelogs))} cannot be read to "
        "their end",
        fix=f"{end_transactions(held)}; then retry the run: its slice is kept",
    )


class RestoreProgress:
    """Counts the replayed records, and logs the count every five seconds and once at the end.

    :param task_id: id of the task for the log.
    :param offsets: number of offsets to replay in all. The number of records among them is not known in
        advance, because compaction and transaction markers leave gaps.
    """

    def __init__(self, task_id: str, offsets: int, clock: Clock) -> None:
        self.task_id = task_id
        self.records = 0
        self.size_bytes = 0
        self._offsets = offsets
        self._passed = 0
        self._clock = clock
        self._started = self._logged = clock.monotonic_seconds()

    def add(self, *, records: int, size_bytes: int, offsets: int) -> None:
        """Count a batch.

        :param records: number of records replayed.
        :param size_bytes: size of their keys and values.
        :param offsets: number of offsets by which the position moved on.
        """
        self.records += records
        self.size_bytes += size_bytes
        self._passed += offsets
        now = self._clock.monotonic_seconds()
        if now - self._logged >= _EVERY_SECONDS:
            self._logged = now
            log.info(
                "task %s: restored %s, %.1f MB, %d %%, about %.0f s left",
                self.task_id,
                counted(self.records, "changelog record"),
                self.size_bytes / 1e6,
                100 * self._passed // max(1, self._offsets),
                self.seconds_left(),
            )

    def seconds_left(self) -> float:
        """Return the seconds that the rest takes at the pace so far; 0 before anything was replayed."""
        if not self._passed:
            return 0.0
        spent = self._clock.monotonic_seconds() - self._started
        return spent * max(0, self._offsets - self._passed) / self._passed

    def finish(self) -> None:
        """Log the total, unless nothing was replayed."""
        if not self.records:
            return
        seconds = self._clock.monotonic_seconds() - self._started
        log.info(
            "task %s: restored %s, %.1f MB, in %.1f s (%s records/s)",
            self.task_id,
            counted(self.records, "changelog record"),
            self.size_bytes / 1e6,
            seconds,
            f"{self.records / seconds if seconds else self.records:,.0f}",
        )


class ChangelogEvidence:
    """Compares one task's changelogs with its committed offsets.

    :param committed: committed offset of each source partition of the task, read when no older attempt can
        move it any more.
    :param committed_now: reads these offsets again.
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
        :raises DataLossError: records of a changelog were deleted, or it was truncated.
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
        :raises TaskFencedError: another attempt has written the changelogs since.
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
