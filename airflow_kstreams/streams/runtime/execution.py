"""Defines the execution of a task, which takes its records from the partition group through the topology.

There are two. :class:`InlineExecution` processes each record to its end at once; its commit points are
counted in records from the slice's start, so that every attempt has the same ones, and between two of them
cached results wait. :class:`~airflow_kstreams.streams.runtime.pipeline.async_pipeline.AsyncPipeline` takes
records through stages while calls of asynchronous nodes run. A record is *released* when all that it brought
about belongs to the next commit; inline, that is when it was processed.

At the end of a run a task brings its stream time to a moment, once all of its records are processed.

Rule: one moment at which a timer is due after the other, all topics together, and at last the moment itself.
So timers find the stream time that a record dated when they are due would have brought, and what follows
from one is there before the next one comes. What is only cleared away goes on the way, and makes no moments
of its own: a join by seconds has thousands of them an hour. A topic without a record yet takes the stream
time of the others first: what was due before the task's first record is not made up for. What is cached is
emitted before the first moment and behind each one, so that it is not late for windows below it that the
next one closes, and so that what comes out does not depend on where commits lie. Where a record is parked on
the way, the task stays at the moment that it has come to.

Between two moments nothing is in flight, and the task may be committed: what has happened depends on the
stores and on stream time alone, which is restored with them, so an attempt that begins there goes on alike.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from airflow_kstreams.streams.figures.call_figures import CallFigures
from airflow_kstreams.streams.graph.services import NEVER
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.records.partition_group import PartitionGroup
from airflow_kstreams.streams.records.stream_clock import StreamClock
from airflow_kstreams.streams.runtime.processor_topology import ProcessorTopology
from airflow_kstreams.streams.state.stores.state_store import LoggedChanges, changes_of


class Execution(Protocol):
    """Processes the records of one task.

    :ivar records_in: records released since the slice's start, by all attempts.
    :ivar commit_requested: whether user code has asked for a commit since the last one.
    """

    records_in: int
    commit_requested: bool

    def open(self, time_ms: int) -> None:
        """Start what runs calls, and let the processors start.

        :param time_ms: timestamp of what they forward.
        """
        ...

    def process(self, limit: int) -> int:
        """Process records up to the next commit point or request for a commit.

        :param limit: the most records to release.
        :return: how many were released.
        """
        ...

    def settle(self) -> None:
        """Wait until every chosen record is released."""
        ...

    def punctuate(self) -> bool:
        """Let the wall-clock timers fire that are due, and say whether there is anything new to commit."""
        ...

    def pass_time(self, moment_ms: int) -> None:
        """Bring stream time to a moment, and wait until all that follows is released."""
        ...

    def emit(self) -> None:
        """Emit cached results."""
        ...

    def close_processors(self, time_ms: int) -> None:
        """Let the processors close.

        :param time_ms: timestamp of what they forward.
        """
        ...

    def close(self) -> None:
        """Give up the calls that run, and close their resources."""
        ...

    def unreleased(self) -> Iterator[tuple[TopicPartition, int]]:
        """Yield for every record chosen and not released its partition and the offset behind it."""
        ...

    def changes(self, store: str, changelog: str) -> LoggedChanges:
        """Return the changes of a store by released records since this was asked last, once per key."""
        ...

    def undrained_count(self, store: str) -> int:
        """Return how many changes of a store wait for a commit to log them."""
        ...

    @property
    def at_point(self) -> bool:
        """Whether the record released last is a commit point."""
        ...

    @property
    def complete(self) -> bool:
        """Whether every record up to the stop offsets is released, and no retry is to be waited for."""
        ...

    @property
    def in_flight(self) -> bool:
        """Whether records were chosen that are not released yet."""
        ...

    @property
    def wants_records(self) -> bool:
        """Whether calls would run out unless more records are fetched."""
        ...

    @property
    def at_capacity(self) -> bool:
        """Whether no record can be chosen before others are released or retried."""
        ...

    @property
    def waits_for_retries(self) -> bool:
        """Whether the task goes on only by retrying parked records."""
        ...

    @property
    def may_commit(self) -> bool:
        """Whether a commit may come now: no cached result of a released record waits for a later record."""
        ...

    def ask_for_commit_point(self) -> None:
        """Have a commit point come soon, though none is due by the number of records."""
        ...

    def calls_ended(self) -> bool:
        """Return whether any call has ended since this was asked last."""
        ...

    def waiting_for(self) -> str:
        """Return, for an error message, which calls the first record in flight waits for."""
        ...

    @property
    def parked(self) -> Mapping[str, int]:
        """Node -> how many records are parked in its retry topic; nodes without such are absent."""
        ...

    @property
    def parked_due_ms(self) -> int | None:
        """When the next parked record is due, epoch milliseconds; None when none is parked."""
        ...

    def call_figures(self) -> CallFigures | None:
        """Return the figures of the calls of this attempt; None of a task that makes none."""
        ...


#: Where a partition has fewer records in a row, those of several partitions are run together if they may be.
SHORT_RUN = 64


class InlineExecution:
    """Runs the records of one task.

    :param topology: bound, of one stage.
    :param group: the task's record queues.
    :param points_every: records between two commit points, 0 for none.
    :param records_in: records processed by earlier attempts.
    :param read: counts processed records by topic.
    """

    in_flight = wants_records = at_capacity = waits_for_retries = False
    may_commit = True
    parked: Mapping[str, int] = MappingProxyType({})
    parked_due_ms = None

    def __init__(
        self,
        topology: ProcessorTopology,
        group: PartitionGroup,
        *,
        points_every: int,
        records_in: int,
        read: dict[str, int],
    ) -> None:
        self._topology = topology
        self._group = group
        self._points_every = points_every
        self.records_in = records_in
        self._read = read

    @property
    def commit_requested(self) -> bool:
        """Whether user code has asked for a commit since the last one."""
        return self._topology.commit_requested

    @commit_requested.setter
    def commit_requested(self, requested: bool) -> None:
        self._topology.commit_requested = requested

    @property
    def at_point(self) -> bool:
        """Whether the record processed last is a commit point."""
        return self._points_every > 0 and self.records_in % self._points_every == 0

    @property
    def complete(self) -> bool:
        """Whether every record up to the stop offsets was processed."""
        return self._group.complete

    def open(self, time_ms: int) -> None:
        """Let the processors start."""
        self._topology.open(time_ms)

    def process(self, limit: int) -> int:
        """Run records, of one partition after the other, up to a commit point, where cached results
        are emitted.

        Where partitions alternate, few records lie in a row, and each call of this method has its price; so
        has each run.
        """
        if self._points_every:
            limit = min(limit, self._points_every - self.records_in % self._points_every)
        group, topology, processed = self._group, self._topology, 0
        while processed < limit and (chosen := group.choose(limit - processed)) is not None:
            count = topology.run(chosen)
            processed += self._ran(chosen.partition, count)
            if self._topology.commit_requested:
                break
            if count < SHORT_RUN and topology.mixes and processed < limit:
                mixed = group.mix(limit - processed)
                if mixed is not None:
                    topology.run_mixed(mixed)
                    processed += sum(itertools.starmap(self._ran, mixed.counts.items()))
        if processed and self.at_point:
            topology.flush()
        return processed

    def _ran(self, partition: TopicPartition, count: int) -> int:
        self._group.advance(partition, count)
        self.records_in += count
        self._read[partition.topic] += count
        return count

    def settle(self) -> None:
        """Do nothing: a chosen record is processed at once."""

    def punctuate(self) -> bool:
        """Let the wall-clock timers fire that are due, and say whether there were any."""
        return self._topology.wall_clock.fire()

    def pass_time(self, moment_ms: int) -> None:
        """Bring stream time to a moment, and let the timers fire that are due then."""
        clock = self._topology.clock
        clock.bring_to(moment_ms)
        clock.fire()

    def emit(self) -> None:
        """Emit cached results."""
        self._topology.flush()

    def close_processors(self, time_ms: int) -> None:
        """Let the processors close."""
        self._topology.flush()
        self._topology.close(time_ms)

    def close(self) -> None:
        """Do nothing: no call runs."""

    def unreleased(self) -> Iterator[tuple[TopicPartition, int]]:
        """Yield nothing: a chosen record is processed at once."""
        return iter(())

    def changes(self, store: str, changelog: str) -> LoggedChanges:
        """Return the changes of a store since this was asked last."""
        return changes_of(self._topology.stores[store], changelog)

    def undrained_count(self, store: str) -> int:
        """Return how many changes of a store wait for a commit to log them."""
        count: int = self._topology.stores[store].undrained_count()
        return count

    def ask_for_commit_point(self) -> None:
        """Do nothing: a commit may come at any time."""

    def calls_ended(self) -> bool:
        """Say that no call has ended."""
        return False

    def waiting_for(self) -> str:
        """Say that no record in flight waits."""
        return "nothing"

    def call_figures(self) -> None:
        """Return None: there are no calls."""


def pass_moments(
    to_ms: int, clocks: Sequence[StreamClock], execution: Execution, *, held: Callable[[], bool]
) -> Iterator[None]:
    """Bring stream time to a moment; yields between two moments, where the task may be committed.

    A task without stream time stays without: it never saw a record, or nothing in it goes by time.

    :param clocks: stream time of each stage.
    :param held: says whether records are parked that may be dated before any moment.
    """
    if clocks[-1].latest_ms < 0 or held():
        return
    execution.emit()
    first_ms = clocks[-1].latest_ms
    for clock in clocks:
        clock.target_ms = to_ms
        for topic, its in clock.topics.items():
            if its.time_ms < 0:
                clock.advance(topic, min(first_ms, to_ms))
    passed = False
    while not held() and (moment_ms := _next_moment_ms(clocks, to_ms)) <= to_ms:
        if passed:
            yield
        execution.pass_time(moment_ms)
        execution.emit()
        passed = True
    for clock in () if held() else clocks:
        clock.bring_to(to_ms)


def _next_moment_ms(clocks: Sequence[StreamClock], to_ms: int) -> int:
    """Return the next moment to pass: the first that a run is worth, else the last if anything is due."""
    needed_ms = min(clock.next_needed_ms for clock in clocks)
    due_ms = min(clock.next_due_ms for clock in clocks)
    return to_ms if due_ms <= to_ms < needed_ms else needed_ms


def next_needed_ms(clocks: Sequence[StreamClock]) -> int | None:
    """Return the first stream time for which a run is worth it though no record comes; None if there is none.

    :param clocks: stream time of each stage.
    """
    needed_ms = min(clock.next_needed_ms for clock in clocks)
    return None if needed_ms == NEVER else needed_ms
