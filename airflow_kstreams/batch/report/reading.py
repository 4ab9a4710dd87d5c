"""Reads an application for sensors and reports: its finished runs, and the last values of a topic."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from itertools import chain

from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.streams.bounded_read import BoundedRead, Patience
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError
from airflow_kstreams.streams.ports import ClusterPort, TopicPartition

_POLL_SECONDS = 0.5


def finished_run(cluster: ClusterPort, application_id: str, run_id: str | None) -> RunSummary | None:
    """Return what a run did, None while it is not finished.

    What it has per task and partition is kept of the last runs only (``ledger.details.kept``): of an older
    one ``without_details`` is true.

    :param cluster: where the application runs.
    :param application_id: the application.
    :param run_id: the run; None means the one that finished last.
    """
    # What an open transaction hides is not finished yet: a reader that decides nothing need not wait for it.
    with closing(cluster.reader(group_id=application_id)) as reader:
        ledger = read_ledger(cluster, application_id, reader=reader, wait_ms=0)
        found = ledger.last() if run_id is None else ledger.find(run_id)
        return None if found is None else ledger.detailed(found)


def last_values(cluster: ClusterPort, topic: str, *, timeout_seconds: float = 60.0) -> dict[bytes, bytes]:
    """Read a whole topic, as committed, and return the last value of every key; a null value deletes its key.

    Meant for small result topics: it reads from the log's start, without a group, and commits nothing.

    :param cluster: where the topic is.
    :param topic: its name; records without a key do not count.
    :param timeout_seconds: how long reading may take.
    :raises ConfigError: there is no such topic.
    :raises KafkaClientError: the broker does not answer, or the topic's end was not reached in time.
    """
    with closing(cluster.admin()) as admin:
        description = admin.describe_topics([topic]).get(topic)
        if description is None:
            raise ConfigError(f"topic {topic!r} does not exist", fix="create it, or correct its name")
        partitions = [TopicPartition(topic, number) for number in range(description.partitions)]
        starts = admin.start_offsets(partitions)
        ends = admin.end_offsets(partitions, isolation="read_committed")

    def too_long(left: Sequence[TopicPartition], _: float) -> KafkaClientError:
        return KafkaClientError(
            f"topic {topic!r} was not read to its end within {timeout_seconds:g} s, partitions left: "
            f"{', '.join(map(str, left))}",
            fix="try again, or allow more time",
            code="_TIMED_OUT",
            retriable_code=True,
        )

    values: dict[bytes, bytes] = {}
    with closing(cluster.reader(group_id=f"{topic}-last-values")) as reader:
        read = BoundedRead(
            reader,
            {partition: (starts[partition], end) for partition, end in ends.items()},
            poll_seconds=_POLL_SECONDS,
            patience=Patience(seconds=timeout_seconds, since="start", error=too_long),
        )
        for fetched in read:
            for record in chain.from_iterable(fetched.values()):
                key, value = record.key(), record.value()
                if key is not None and value is not None:
                    values[key] = value
                elif key is not None:
                    values.pop(key, None)
    return values
