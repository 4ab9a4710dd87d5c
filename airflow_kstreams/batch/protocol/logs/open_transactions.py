"""Describes open transactions that hold a last stable offset back: their age, and how to find the producer.

The client has no call that names the producers of a partition; Kafka's own tool has. The age is that of the
record at the last stable offset, which is the transaction's first in this partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from airflow_kstreams.batch.protocol.logs.data_loss import describe_producers
from airflow_kstreams.streams.bounded_read import BoundedRead, Patience
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.ports import Clock, ClusterPort, TopicPartition

#: For all partitions together: the age only helps the person who reads it.
_PATIENCE = Patience(seconds=3.0, since="start", error=None)
_POLL_SECONDS = 0.5


def ages(
    cluster: ClusterPort, stable: Mapping[TopicPartition, int], *, group_id: str, clock: Clock
) -> dict[TopicPartition, str]:
    """Return how long transactions have been open, in words.

    :param stable: partition -> last stable offset, below its high watermark.
    :param group_id: of a reader; nothing is committed.
    """
    found: dict[TopicPartition, str] = {}
    # The caller has something to say that matters more, and must not fail here.
    with suppress(KStreamsError):
        for partition, began_ms in begun(cluster, stable, group_id=group_id, clock=clock).items():
            found[partition] = f"open for {_duration((clock.now_ms() - began_ms) / 1000)}"
    return {partition: found.get(partition, "of unknown age") for partition in stable}


def warnings_of(
    cluster: ClusterPort,
    held: Mapping[TopicPartition, tuple[int, int]],
    *,
    group_id: str,
    clock: Clock,
    comes_again: bool = True,
    advanced: bool = False,
) -> tuple[str, ...]:
    """Describe open transactions that keep records from a run.

    :param held: partition -> (last stable offset, high watermark).
    :param comes_again: whether a later run begins where this one stops.
    :param advanced: whether stream time advances past them all the same, where windows or joins go by it.
    """
    if not held:
        return ()
    old = ages(cluster, {tp: stable for tp, (stable, _) in held.items()}, group_id=group_id, clock=clock)
    lot = "goes to a later run" if comes_again else "is left out, and no later run of this backfill reads it"
    if comes_again and advanced:
        lot += ", where what is dated before the end of this one is late by its windows' own grace"
    return tuple(
        f"{tp}: a transaction {old[tp]} holds the last stable offset at {stable}, below the high watermark "
        f"{high}; what lies behind it, at most {high - stable} records, {lot} (find the "
        f"producer with: {describe_producers(tp)})"
        for tp, (stable, high) in sorted(held.items())
    )


def begun(
    cluster: ClusterPort, stable: Mapping[TopicPartition, int], *, group_id: str, clock: Clock
) -> dict[TopicPartition, int]:
    """Return when open transactions began, epoch milliseconds, where that is found out in a moment.

    :param stable: partition -> last stable offset, below its high watermark.
    :param group_id: of a reader; nothing is committed.
    :raises KStreamsError: the broker does not answer.
    """
    reader = cluster.reader(group_id=group_id, isolation="read_uncommitted")
    found: dict[TopicPartition, int] = {}
    try:
        read = BoundedRead(
            reader,
            {partition: (offset, offset + 1) for partition, offset in stable.items()},
            clock=clock,
            max_records=len(stable),
            poll_seconds=_POLL_SECONDS,
            patience=_PATIENCE,
        )
        for fetched in read:
            found |= {partition: records[0].timestamp()[1] for partition, records in fetched.items()}
    finally:
        reader.close()
    return found


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
