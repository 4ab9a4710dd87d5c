"""Shows what waits for the next run: offsets between where it would start and the ends of the logs.

Transaction markers, aborted and compacted records take offsets, too, so the lag is an upper bound of the
records. It is made of the same reading as the status.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

import msgspec

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.inspect.notebook_form import ShownInNotebooks
from airflow_kstreams.batch.inspect.runs.suspicions import (
    COMPARED,
    Bounds,
    Suspicion,
    nothing_new,
    of_run,
    untaken,
)
from airflow_kstreams.batch.inspect.status import RunStatus, read_status
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.protocol.offsets.parked import parked_total, sum_parked
from airflow_kstreams.batch.protocol.slice.metadata import RunState
from airflow_kstreams.streams.ports import Clock, ClusterPort, TopicPartition
from airflow_kstreams.streams.settings import ApplicationSettings

#: Number of partitions that are shown one by one, unless asked for otherwise.
PARTITIONS = 20


class PartitionLag(msgspec.Struct, frozen=True, kw_only=True):
    """The lag of one partition.

    :param topic: name of the topic.
    :param partition: number of the partition.
    :param position: offset at which the next run starts, or the tasks of the run under way have committed.
    :param end: last stable offset; null if the partition is gone.
    :param lag: number of offsets between the two; null if the partition is gone.
    :param stop: offset at which the run under way stops; null without one, or if it is not frozen yet.
    :param start: offset at which the run under way began; null without one, and for topics between
        subtopologies.
    """

    topic: str
    partition: int
    position: int
    end: int | None
    lag: int | None
    stop: int | None = None
    start: int | None = None


class TopicLag(msgspec.Struct, frozen=True, kw_only=True):
    """The lag of one topic.

    :param topic: name of the topic.
    :param between: whether the application writes it itself, between two subtopologies.
    :param partitions: number of partitions that are read.
    :param gone: number of them that do not exist any more.
    :param lag: number of offsets that wait.
    :param of_run: number of these that the run under way reads.
    :param largest: the largest lag of one partition.
    :param read_to_ms: largest timestamp of the records that runs have read, epoch milliseconds; null if it is
        not known.
    """

    topic: str
    between: bool
    partitions: int
    gone: int
    lag: int
    of_run: int
    largest: int
    read_to_ms: int | None = None


class SeenLag(ShownInNotebooks, frozen=True, kw_only=True):
    """The offsets that wait, of an application.

    :param application_id: id of the application.
    :param now_ms: time of the look, epoch milliseconds.
    :param lag: number of offsets that wait in topics from outside.
    :param of_run: number of these that the run under way reads.
    :param run_id: the run under way; null without one.
    :param driver: name of the driver that holds the lease; null without one. It may be dead.
    :param parked: number of parked records that wait; null where it is not known.
    :param last_begun_ms: time at which the last run began, epoch milliseconds; null without one.
    :param topics: the topics, the largest lag first.
    :param partitions: the partitions with the largest lags.
    :param more_partitions: number of further partitions with a lag.
    :param suspicions: what is odd about it.
    """

    application_id: str
    now_ms: int
    lag: int
    of_run: int
    run_id: str | None
    driver: str | None
    parked: int | None
    last_begun_ms: int | None
    topics: tuple[TopicLag, ...]
    partitions: tuple[PartitionLag, ...]
    more_partitions: int
    suspicions: tuple[Suspicion, ...] = ()


def read_lag(
    cluster: ClusterPort,
    settings: ApplicationSettings,
    *,
    partitions: int = PARTITIONS,
    clock: Clock | None = None,
) -> SeenLag:
    """Read the lag of an application.

    :param settings: of the look, which may give other thresholds than the runs began with.
    :param partitions: number of partitions to show one by one.
    :raises ConfigError: the cluster has nothing of an application with this id.
    """
    clock = clock or SystemClock()
    status = read_status(cluster, settings.application_id, clock=clock)
    return lag_of(status, settings, now_ms=clock.now_ms(), partitions=partitions)


def lag_of(
    status: RunStatus, settings: ApplicationSettings, *, now_ms: int, partitions: int = PARTITIONS
) -> SeenLag:
    """Return the lag that a status shows."""
    found = [*_partitions(status)]
    topics = sorted(_topics(status, found), key=lambda each: (each.between, -each.lag, each.topic))
    waiting = sorted((part for part in found if part.lag), key=lambda part: -(part.lag or 0))
    outside = [each for each in topics if not each.between]
    run = status.slice if status.state is RunState.RUNNING and status.continuous is None else None
    begun = [] if run is None else [run.plan.begun_ms]
    own = None if run is None else run.plan.thresholds
    if run is None and status.runs:
        own = status.runs[-1].thresholds
    begun += [each.begun_ms for each in reversed(status.runs[-COMPARED - 1 :])]
    lag = sum(each.lag for each in outside)
    free = status.lease is None and status.continuous is None
    return SeenLag(
        application_id=status.application_id,
        now_ms=now_ms,
        lag=lag,
        of_run=sum(each.of_run for each in outside),
        run_id=None if run is None else run.run_id,
        driver=None if status.lease is None else status.lease.owner,
        parked=sum_parked(parked_total(status.parked)),
        last_begun_ms=begun[0] if begun else None,
        topics=tuple(topics),
        partitions=tuple(waiting[:partitions]),
        more_partitions=max(0, len(waiting) - partitions),
        suspicions=_odd(status, lag, begun, now_ms, Bounds(settings=settings, own=own)) if free else (),
    )


def oddities(status: RunStatus, settings: ApplicationSettings, *, now_ms: int) -> tuple[Suspicion, ...]:
    """Return what is odd about an application although it may be green: about its last run, and about what
    waits, or does not come.

    :param settings: of the look, which may give other thresholds than the runs began with.
    """
    runs = status.runs[::-1]
    waiting = lag_of(status, settings, now_ms=now_ms, partitions=0).suspicions
    # An empty run shows that nothing new comes; what is seen now says so with later figures.
    of_last = of_run(runs[0], runs[1:], settings) if runs and not runs[0].empty else ()
    return (*of_last, *waiting)


def _odd(
    status: RunStatus, lag: int, begun: Sequence[int], now_ms: int, bounds: Bounds
) -> tuple[Suspicion, ...]:
    if lag:
        return untaken(lag, begun, now_ms, bounds)
    return nothing_new(now_ms, [run for run in reversed(status.runs) if not run.empty], bounds)


def _partitions(status: RunStatus) -> Iterator[PartitionLag]:
    running = status.slice is not None and status.state is RunState.RUNNING
    own: dict[TopicPartition, tuple[int, int]] = {}
    if running and status.slice is not None:
        own = {part.topic_partition: (part.start_offset, part.stop_offset) for part in status.slice.inputs}
    for tp, position in sorted(status.positions.items()):
        start, stop = own.get(tp, (None, None))
        yield PartitionLag(
            topic=tp.topic,
            partition=tp.partition,
            position=position,
            end=status.ends.get(tp),
            lag=status.lag.get(tp),
            stop=stop,
            start=start,
        )


def _topics(status: RunStatus, found: Iterable[PartitionLag]) -> Iterator[TopicLag]:
    between = _topics_between(status)
    for topic, of_topic in groupby(found, key=attrgetter("topic")):
        parts = list(of_topic)
        committed = (status.committed.get(TopicPartition(topic, part.partition)) for part in parts)
        times = [OffsetMetadata.decode(each.metadata).latest_ms for each in committed if each is not None]
        read_to = max(times, default=-1)
        yield TopicLag(
            topic=topic,
            between=topic in between,
            partitions=len(parts),
            gone=sum(part.end is None for part in parts),
            lag=sum(part.lag or 0 for part in parts),
            of_run=sum(max(0, part.stop - part.position) for part in parts if part.stop is not None),
            largest=max(part.lag or 0 for part in parts),
            read_to_ms=read_to if read_to >= 0 else None,
        )


def _topics_between(status: RunStatus) -> set[str]:
    """Return the topics that the application writes and reads."""
    work = status.slice if status.continuous is None else status.continuous
    if work is not None:
        return {*work.plan.topology.intermediates}
    subs = [sub for run in status.runs[-1:] for sub in run.topics]
    return {topic for sub in subs for topic in sub.sources} & {topic for sub in subs for topic in sub.sinks}
