"""Defines the execution of a task and its progress, and brings stream time to the run's moment at the end.

An execution takes the task's records from the partition group through the topology. There are two.
:class:`~airflow_kstreams.streams.runtime.stream_task.InlineExecution` processes each record to its end at
once. In a pipeline (:class:`~airflow_kstreams.streams.runtime.pipeline.async_pipeline.AsyncPipeline`) records
go through stages while calls of asynchronous nodes run. A record is *released* when all that it brought about
belongs to the next commit; inline, that is when it was processed.

When all of a task's records are processed, stream time of each topic comes to the largest timestamp that was
read of it: the records before a last one out of order close windows, too. At the end of a run a task then
brings its stream time to the run's moment.

Rule: one moment at which a timer is due after the other, all topics together, each as far as it goes, and at
last the whole way. So timers find the stream time that a record dated when they are due would have brought,
and what follows from one is there before the next one comes. What is only cleared away goes on the way, and
makes no moments of its own: a join by seconds has thousands of them an hour. A topic without a record yet
takes the stream time of the others first: what was due before the task's first record is not made up for.
What is cached is emitted before the first moment and behind each one, so that it is not late for windows
below it that the next one closes, and so that what comes out does not depend on where commits lie. Where a
record is parked on the way, the task stays at the moment that it has come to.

Between two moments nothing is in flight, and the task may be committed: what has happened depends on the
stores and on stream time alone, which is restored with them, so an attempt that begins there goes on alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from airflow_kstreams.streams.figures.call_figures import CallFigures
from airflow_kstreams.streams.figures.record_counts import RecordCounts
from airflow_kstreams.streams.graph.services import NEVER
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.records.record_queue import LastRecord, PartitionTimes
from airflow_kstreams.streams.records.stream_clock import StreamClock
from airflow_kstreams.streams.state.stores.state_store import LoggedChanges


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgress:
    """The counts of a task since its slice's start, as of a commit; they travel in the offset metadata.

    :param records_in: records consumed.
    :param records_out: records handed to sinks.
    :param records_dropped: records dropped by rule, and those an error handler skipped.
    :param records_dead_lettered: records sent to the dead-letter topic.
    :param counts: the same by topic and node; None if an earlier attempt had no room for it beside its
        offsets.
    :param partition_times: times of each partition.
    :param last_records: the last record before each committed offset.
    :param parked: node -> how many records are parked in its retry topic; nodes without such are absent.
    :param parked_due_ms: when the first parked record is due, epoch milliseconds; None when none is parked,
        or its time is not known.
    """

    records_in: int = 0
    records_out: int = 0
    records_dropped: int = 0
    records_dead_lettered: int = 0
    counts: RecordCounts | None = field(default_factory=RecordCounts)
    partition_times: Mapping[TopicPartition, PartitionTimes] = field(default_factory=dict)
    last_records: Mapping[TopicPartition, LastRecord] = field(default_factory=dict)
    parked: Mapping[str, int] = field(default_factory=dict)
    parked_due_ms: int | None = None


class Execution(Protocol):
    """Processes the records of one task.

    :ivar records_in: records released since the slice's start, by all attempts.
    :ivar commit_requested: whether user code has asked for a commit since the last one.
    """

    records_in: int
    commit_requested: bool

    def open(self, time_ms: int) -> None:
        """Start the caller, if there is one, and the processors.

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
        """Fire the wall-clock timers that are due, and return whether there is anything new to commit."""
        ...

    def pass_time(self, to_ms: Mapping[str, int]) -> None:
        """Bring the stream time of topics to moments, and wait until all that follows is released."""
        ...

    def emit(self) -> None:
        """Emit cached results."""
        ...

    def close_processors(self, time_ms: int) -> None:
        """Close the processors.

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
        """Ask for a commit point soon, though none is due by the number of records."""
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
        """The moment at which the next parked record is due, epoch milliseconds; None when none is parked."""
        ...

    def call_figures(self) -> CallFigures | None:
        """Return the figures of the calls of this attempt; None of a task that makes none."""
        ...


def pass_moments(
    to_ms: Mapping[str, int], clocks: Sequence[StreamClock], execution: Execution, *, held: Callable[[], bool]
) -> Iterator[None]:
    """Bring stream time of topics to moments; yields between two moments, where the task may be committed.

    A task without stream time stays without: it never saw a record, or nothing in it goes by time.

    :param clocks: stream time of each stage.
    :param held: returns whether records are parked that may be dated before any moment.
    """
    first_ms, times = clocks[-1].latest_ms, clocks[-1].topics
    if first_ms < 0 or held() or all(times[topic].time_ms >= moment_ms for topic, moment_ms in to_ms.items()):
        return
    execution.emit()
    for clock in clocks:
        clock.aim_at(to_ms)
        for topic, moment_ms in to_ms.items():
            if clock.topics[topic].time_ms < 0:
                clock.advance(topic, min(first_ms, moment_ms))
    passed = False
    while not held() and (moment_ms := min(clock.next_moment_ms for clock in clocks)) < NEVER:
        if passed:
            yield
        execution.pass_time({topic: min(moment_ms, its_ms) for topic, its_ms in to_ms.items()})
        execution.emit()
        passed = True
    for clock in () if held() else clocks:
        clock.bring_to(to_ms)


def next_needed_ms(clocks: Sequence[StreamClock]) -> int | None:
    """Return the first stream time for which a run is worth it though no record comes; None if there is none.

    :param clocks: stream time of each stage.
    """
    needed_ms = min(clock.next_needed_ms for clock in clocks)
    return None if needed_ms == NEVER else needed_ms
