"""Restoring a task's stores from their changelogs.

Only called after ``init_transactions`` settled whatever an older attempt of the task left open. The changelog
partition has no other writer, so its high watermark is final and every committed record below it is visible.
"""

from __future__ import annotations

from airflow_kstreams.streams.errors import StateStoreError
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, TopicPartition
from airflow_kstreams.streams.runtime.stream_task import StreamTask
from airflow_kstreams.streams.settings import ApplicationSettings

_BATCH_RECORDS = 10_000
_POLL_SECONDS = 0.1


def restore_stores(
    task: StreamTask, cluster: ClusterPort, admin: AdminPort, settings: ApplicationSettings, clock: Clock
) -> int:
    """Replay every changelog partition of a task into its stores.

    :return: how many changelog records were replayed.
    :raises StateStoreError: a changelog could not be read to its end in time, or holds what the store's serde
        refuses.
    """
    stores = {
        TopicPartition(topic, task.task_id.group): task.stores[name]
        for name, topic in task.changelogs.items()
    }
    if not stores:
        return 0
    ends = admin.end_offsets(stores, isolation="read_uncommitted")
    starts = admin.start_offsets(stores)
    waiting = {partition for partition in stores if starts[partition] < ends[partition]}
    if not waiting:
        return 0
    restored = 0
    reader = cluster.reader(group_id=settings.application_id)
    try:
        reader.assign({partition: starts[partition] for partition in sorted(waiting)})
        progressed = clock.monotonic_seconds()
        while waiting:
            fetched = reader.poll(max_records=_BATCH_RECORDS, timeout_seconds=_POLL_SECONDS)
            for partition, records in fetched.records.items():
                restore = stores[partition].restore
                for record in records:
                    restore(record.key(), record.value(), record.timestamp()[1])
                restored += len(records)
                if records and records[-1].offset() + 1 >= ends[partition]:
                    waiting.discard(partition)
            for partition, end in fetched.ends.items():
                if end >= ends[partition]:
                    waiting.discard(partition)
            now = clock.monotonic_seconds()
            if fetched.records:
                progressed = now
            elif (now - progressed) * 1000 > settings.run_stall_timeout_ms:
                raise StateStoreError(
                    f"task {task.task_id}: changelog partitions {', '.join(map(str, sorted(waiting)))} "
                    "cannot be read "
                    f"to their end",
                    fix="look for a hanging transaction on them: kafka-transactions --find-hanging",
                )
    finally:
        reader.close()
    return restored
