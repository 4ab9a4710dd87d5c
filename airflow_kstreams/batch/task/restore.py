"""Restoring a task's stores: from their local files as far as a checkpoint goes, then from their changelogs.

Only called after ``init_transactions`` settled whatever an older attempt of the task left open. The changelog
partition has no other writer, so its high watermark is final and every committed record below it is visible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from airflow_kstreams.batch.protocol.data_loss import describe_producers
from airflow_kstreams.batch.task.restore_progress import RestoreProgress
from airflow_kstreams.batch.task.task_state import TaskState
from airflow_kstreams.streams.errors import StateStoreError
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, ReaderPort, Record, TopicPartition
from airflow_kstreams.streams.runtime.stream_task import StreamTask
from airflow_kstreams.streams.settings import ApplicationSettings

_BATCH_RECORDS = 10_000
_POLL_SECONDS = 0.1

#: Applies changelog records to a store and returns how many bytes they have.
RestoreBatch = Callable[[Sequence[Record]], int]


def restore_stores(
    task: StreamTask,
    state: TaskState,
    cluster: ClusterPort,
    admin: AdminPort,
    settings: ApplicationSettings,
    clock: Clock,
) -> int:
    """Open a task's stores and replay every changelog partition into them.

    :param state: the task's local files.
    :return: how many changelog records were replayed.
    :raises StateStoreError: a changelog could not be read to its end in time, or holds what the store's serde
        refuses; or local files cannot be written.
    """
    stores = {
        TopicPartition(topic, task.task_id.group): task.stores[name]
        for name, topic in task.changelogs.items()
    }
    ends = admin.end_offsets(stores, isolation="read_uncommitted")
    starts = state.open(admin.start_offsets(stores), ends)
    waiting = {partition: start for partition, start in starts.items() if start < ends[partition]}
    if not waiting:
        return 0
    progress = RestoreProgress(
        str(task.task_id), sum(ends[partition] - start for partition, start in waiting.items()), clock
    )
    reader = cluster.reader(group_id=settings.application_id)
    try:
        restore = {partition: stores[partition].restore_batch for partition in waiting}
        replay = _Replay(restore, ends, progress, clock=clock, patience_ms=settings.run_stall_timeout_ms)
        replay.run(reader, waiting)
    finally:
        reader.close()
    progress.finish()
    return progress.records


class _Replay:
    """Reads changelog partitions to their end.

    :param restore: the bulk path of each partition's store.
    :param ends: where to stop.
    :param patience_ms: how long to wait for a record.
    """

    def __init__(
        self,
        restore: Mapping[TopicPartition, RestoreBatch],
        ends: Mapping[TopicPartition, int],
        progress: RestoreProgress,
        *,
        clock: Clock,
        patience_ms: int,
    ) -> None:
        self._restore = restore
        self._ends = ends
        self._progress = progress
        self._clock = clock
        self._patience_ms = patience_ms
        self._positions: dict[TopicPartition, int] = {}

    def run(self, reader: ReaderPort, starts: Mapping[TopicPartition, int]) -> None:
        """Replay every partition from its start.

        :raises StateStoreError: nothing came for too long.
        """
        self._positions = dict(sorted(starts.items()))
        reader.assign(self._positions)
        progressed = self._clock.monotonic_seconds()
        while waiting := self._waiting():
            fetched = reader.poll(max_records=_BATCH_RECORDS, timeout_seconds=_POLL_SECONDS)
            for partition, records in fetched.records.items():
                self._apply(partition, records)
            for partition, end in fetched.ends.items():
                self._move(partition, end, records=0, size_bytes=0)
            now = self._clock.monotonic_seconds()
            if fetched.records:
                progressed = now
            elif (now - progressed) * 1000 > self._patience_ms:
                raise StateStoreError(
                    f"task {self._progress.task_id}: changelog partitions "
                    f"{', '.join(map(str, waiting))} cannot be read to their end",
                    fix="find the producers of open transactions on them with: "
                    f"{'; '.join(map(describe_producers, waiting))}; then retry the run: its slice is kept",
                )

    def _waiting(self) -> list[TopicPartition]:
        return [
            partition for partition, position in self._positions.items() if position < self._ends[partition]
        ]

    def _apply(self, partition: TopicPartition, records: Sequence[Record]) -> None:
        size_bytes = self._restore[partition](records)
        self._move(partition, records[-1].offset() + 1, records=len(records), size_bytes=size_bytes)

    def _move(self, partition: TopicPartition, position: int, *, records: int, size_bytes: int) -> None:
        moved = max(0, position - self._positions[partition])
        self._positions[partition] += moved
        self._progress.add(records=records, size_bytes=size_bytes, offsets=moved)
