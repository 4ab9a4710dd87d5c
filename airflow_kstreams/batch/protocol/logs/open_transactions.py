"""Checks how long transactions may be before anything is written, and describes open ones that hold a last
stable offset back.

A transaction lasts from one commit to the next, ``commit.interval.ms`` at most unless user functions or the
cluster are slow. The broker aborts it after ``transaction.timeout.ms``, and refuses a timeout above its own
``transaction.max.timeout.ms``. Each must leave room for the one before.

The age of an open transaction is that of the record at the last stable offset, which is the transaction's
first in this partition. The client has no call that names the producers of a partition; Kafka's own tool has.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress

from airflow_kstreams.batch.protocol.logs.data_loss import describe_producers
from airflow_kstreams.streams.bounded_read import BoundedRead, Patience
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError, KStreamsError
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, TopicPartition
from airflow_kstreams.streams.settings import ApplicationSettings

log = logging.getLogger(__name__)
MAX_TIMEOUT = "transaction.max.timeout.ms"
#: How many commit intervals a transaction must be able to last: a commit that is due has to be made, too.
_INTERVALS = 2
#: For all partitions together: the age only helps the person who reads it.
_PATIENCE = Patience(seconds=3.0, since="start", error=None)
_POLL_SECONDS = 0.5


def refuse_unfit_timeouts(settings: ApplicationSettings, admin: AdminPort) -> None:
    """Compare the settings with each other and with the broker's limit.

    A broker that does not let this user see its settings is not asked twice: it refuses a timeout above its
    limit itself when a task claims its transactional id, which is before the task writes anything.

    :raises ConfigError: naming both values and what to set.
    """
    timeout_ms, interval_ms = settings.transaction_timeout_ms, settings.commit_interval_ms
    if settings.exactly_once and interval_ms * _INTERVALS > timeout_ms:
        raise ConfigError(
            f"commit.interval.ms = {interval_ms} leaves a transaction no room below transaction.timeout.ms = "
            f"{timeout_ms}: the broker would abort it before its commit",
            fix=f"set commit.interval.ms to {timeout_ms // _INTERVALS} or less, or transaction.timeout.ms to "
            f"{interval_ms * _INTERVALS} or more",
        )
    try:
        limit_ms = int(admin.broker_configs().get(MAX_TIMEOUT, timeout_ms))
    except KafkaClientError as error:
        if error.is_retriable:
            raise
        log.debug("the broker's %s is not known: %s", MAX_TIMEOUT, error.cause)
        return
    if timeout_ms > limit_ms:
        raise ConfigError(
            f"transaction.timeout.ms = {timeout_ms} exceeds the broker's limit {MAX_TIMEOUT} = {limit_ms}",
            fix=f"set transaction.timeout.ms to {limit_ms} or less, or raise {MAX_TIMEOUT} in the brokers' "
            "configuration",
        )


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
