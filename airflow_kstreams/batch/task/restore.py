"""Restores a task's stores: from their local files as far as a checkpoint goes, then from their changelogs.

Entries whose keys have moved to another processor stay in the changelog of the one that had them, and are
left out (:mod:`airflow_kstreams.batch.growing.homes`).

Only called after ``init_transactions`` settled what an older attempt of the task left open. The changelog
partition has no other writer, so its high watermark is final and every committed record below it is visible.
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_kstreams.batch.protocol.logs.data_loss import describe_producers
from airflow_kstreams.batch.task.changelog_evidence import ChangelogEvidence
from airflow_kstreams.batch.task.restore_progress import RestoreProgress
from airflow_kstreams.batch.task.task_state import TaskState
from airflow_kstreams.streams.bounded_read import BoundedRead, Patience
from airflow_kstreams.streams.errors import StateStoreError
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, TopicPartition
from airflow_kstreams.streams.runtime.stream_task import StreamTask
from airflow_kstreams.streams.settings import ApplicationSettings

_POLL_SECONDS = 0.1


def restore_stores(
    task: StreamTask,
    state: TaskState,
    cluster: ClusterPort,
    admin: AdminPort,
    settings: ApplicationSettings,
    clock: Clock,
    evidence: ChangelogEvidence | None = None,
) -> int:
    """Open a task's stores and replay every changelog partition into them.

    :param state: the task's local files.
    :param evidence: compares the changelogs with the committed offsets.
    :return: how many changelog records were replayed.
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
    reader = cluster.reader(group_id=settings.application_id)
    try:
        read = BoundedRead(
            reader,
            {partition: (start, ends[partition]) for partition, start in sorted(waiting.items())},
            clock=clock,
            poll_seconds=_POLL_SECONDS,
            patience=Patience(
                seconds=settings.run_stall_timeout_ms / 1000,
                since="record",
                error=lambda left, _: _stuck(task, left),
            ),
        )
        passed = sum(read.positions.values())
        for fetched in read:
            size_bytes = sum(
                stores[partition].restore_batch(state.own(partition, records))
                for partition, records in fetched.items()
            )
            restored |= {partition: records[-1].offset() + 1 for partition, records in fetched.items()}
            before, passed = passed, sum(read.positions.values())
            if passed > before:
                records = sum(map(len, fetched.values()))
                progress.add(records=records, size_bytes=size_bytes, offsets=passed - before)
    finally:
        reader.close()
    if evidence is not None:
        evidence.refuse_ahead(restored)
    progress.finish()
    return progress.records


def _stuck(task: StreamTask, changelogs: Sequence[TopicPartition]) -> StateStoreError:
    return StateStoreError(
        f"task {task.task_id}: changelog partitions {', '.join(map(str, changelogs))} cannot be read to "
        "their end",
        fix="find the producers of open transactions on them with: "
        f"{'; '.join(map(describe_producers, changelogs))}; then retry the run: its slice is kept",
    )
