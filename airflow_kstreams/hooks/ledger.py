"""What sensors and reports read of an application: its finished runs, and the last values of a topic."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from airflow_kstreams.streams.errors import ConfigError, KafkaClientError
from airflow_kstreams.streams.ports import TopicPartition

if TYPE_CHECKING:
    from airflow_kstreams.batch.protocol.model import RunSummary
    from airflow_kstreams.kafka.cluster import KafkaCluster

__all__ = ["finished_run", "last_values"]

_POLL_SECONDS = 0.5
_MAX_RECORDS = 10_000


def finished_run(cluster: KafkaCluster, application_id: str, run_id: str | None) -> RunSummary | None:
    """Return the ledger's entry of a run, None while it is not finished.

    :param cluster: where the application runs.
    :param application_id: the application.
    :param run_id: the run; None means the one that finished last.
    """
    from airflow_kstreams.batch.protocol.ledger import read_ledger

    # What an open transaction hides is not finished yet: a reader that decides nothing need not wait for it.
    ledger = read_ledger(cluster, application_id, wait_ms=0)
    return ledger.last() if run_id is None else ledger.runs.get(run_id)


def last_values(cluster: KafkaCluster, topic: str, *, timeout_seconds: float = 60.0) -> dict[bytes, bytes]:
    """Read a whole topic, as committed, and return the last value of every key; a null value deletes its key.

    Meant for small result topics: it reads from the log's start, without a group, and commits nothing.

    :param cluster: where the topic is.
    :param topic: its name; records without a key do not count.
    :param timeout_seconds: how long reading may take.
    :raises ConfigError: there is no such topic.
    :raises KafkaClientError: the broker does not answer, or the topic's end was not reached in time.
    """
    admin = cluster.admin()
    try:
        description = admin.describe_topics([topic]).get(topic)
        if description is None:
            raise ConfigError(f"topic {topic!r} does not exist", fix="create it, or correct its name")
        partitions = [TopicPartition(topic, number) for number in range(description.partitions)]
        starts = admin.start_offsets(partitions)
        ends = admin.end_offsets(partitions, isolation="read_committed")
    finally:
        admin.close()
    unread = {partition: end for partition, end in ends.items() if starts[partition] < end}
    values: dict[bytes, bytes] = {}
    reader = cluster.reader(group_id=f"{topic}-last-values")
    try:
        reader.assign({partition: starts[partition] for partition in unread})
        deadline = time.monotonic() + timeout_seconds
        while unread:
            fetched = reader.poll(max_records=_MAX_RECORDS, timeout_seconds=_POLL_SECONDS)
            for partition, records in fetched.records.items():
                for record in records:
                    key, value = record.key(), record.value()
                    if key is None:
                        continue
                    if value is None:
                        values.pop(key, None)
                    else:
                        values[key] = value
                if records and records[-1].offset() + 1 >= unread.get(partition, 0):
                    unread.pop(partition, None)
            for partition, end in fetched.ends.items():
                if end >= unread.get(partition, 0):
                    unread.pop(partition, None)
            if unread and time.monotonic() > deadline:
                raise KafkaClientError(
                    f"topic {topic!r} was not read to its end within {timeout_seconds:g} s, partitions left: "
                    f"{', '.join(str(partition) for partition in unread)}",
                    fix="try again, or allow more time",
                    code="_TIMED_OUT",
                    retriable_code=True,
                )
    finally:
        reader.close()
    return values
