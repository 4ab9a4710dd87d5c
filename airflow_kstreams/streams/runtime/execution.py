"""Defines the execution of a task and its progress, and advances stream time at the end of a run.

An execution takes the task's records from the partition group through the topology. There are two.
:class:`~airflow_kstreams.streams.runtime.stream_task.InlineExecution` processes each record to its end at
once. In a pipeline (:class:`~airflow_kstreams.streams.runtime.pipeline.async_pipeline.AsyncPipeline`) records
go through stages while calls of asynchronous nodes run. A record is *released* when all of its results and
changes belong to the next commit; inline, that is when it was processed.

When all of a task's records are processed, stream time of each topic comes to the largest timestamp that was
read of it: the records before a last one out of order close windows, too. At the end of a run a task then
advances its stream time to the time that the run has fixed (``stream.time.advance``).

Rule: stream time stops at each time at which a timer is due, all topics together, each topic up to its own
target, and goes to the targets last. So a timer finds the stream time that a record of its due time would
have brought, and its results are processed before the next timer calls back. A timer that only deletes
expired entries calls back on the way, and makes no stop of its own: a join by seconds has thousands of them
an hour. A topic without a record yet takes the stream time of the others first: a timer that would have been
due before the task's first record does not call back for that time. Cached results are emitted before the
first stop and behind each one, so that they are not late for windows below that the next stop closes, and so
that results do not depend on the places of commits. Where a record is parked on the way, stream time stays at
that stop.

Between two stops no record is in flight, and the task may be committed: its further results depend on the
stores and on stream time alone, which is restored with them, so an attempt that begins there gives the same
ones.
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
    :param records_dropped: records dropped by rule, and records that an error handler skipped.
    :param records_dead_lettered: records sent to the dead-letter topic.
    :param counts: the counts by topic and node; None if an earlier attempt had no room for them beside its
        offsets.
    :param partition_times: partition -> its times.
    :param last_records: partition -> the last record before its committed offset.
    :param parked: node -> number of records parked in its retry topic; nodes without such are absent.
    :param parked_due_ms: time at which the first parked record is due, epoch milliseconds; None when none is
        parked, or its time is not known.
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

    :ivar records_in: number of records released since the slice's start, by all attempts.
    :ivar commit_requested: True if user code has asked for a commit since the last one.
    """

    records_in: int
    commit_requested: bool

    def open(self, time_ms: int) -> None:
        """Start the caller, if there is one, and the processors.

        :param time_ms: timestamp of the processors' results, epoch milliseconds.
        """
        ...

    def process(self, limit: int) -> int:
        """Process records up to the next commit point or request for a commit.

        :param limit: most records to release.
        :return: number of records released.
        """
        ...

    def settle(self) -> None:
        """Wait until every chosen record is released."""
        ...

    def punctuate(self) -> bool:
        """Fire the wall-clock timers that are due, and return True if there are new results to commit."""
        ...

    def pass_time(self, to_ms: Mapping[str, int]) -> None:
        """Bring the stream time of topics forward, and wait until all results of timers are released.

        :param to_ms: topic -> stream time, epoch milliseconds.
        """
        ...

    def emit(self) -> None:
        """Emit cached results."""
        ...

    def close_processors(self, time_ms: int) -> None:
        """Close the processors.

        :param time_ms: timestamp of the processors' results, epoch milliseconds.
        """
        ...

    def close(self) -> None:
        """Give up the calls that run, and close their resources."""
        ...

    def unreleased(self) -> Iterator[tuple[TopicPartition, int]]:
        """Yield (partition, offset after the record) of every record that is chosen and not released."""
        ...

    def changes(self, store: str, changelog: str) -> LoggedChanges:
        """Return the changes of a store by released records since the last call, one change per key.

        :param store: name of the store.
        :param changelog: name of its changelog topic.
        """
        ...

    def undrained_count(self, store: str) -> int:
        """Return the number of changes of a store that wait for a commit to log them."""
        ...

    @property
    def at_point(self) -> bool:
        """True if the record released last is a commit point."""
        ...

    @property
    def complete(self) -> bool:
        """True if every record up to the stop offsets is released, and the task need not wait for a retry."""
        ...

    @property
    def in_flight(self) -> bool:
        """True if records were chosen that are not released yet."""
        ...

    @property
    def wants_records(self) -> bool:
        """True if calls would run out unless more records are fetched."""
        ...

    @property
    def at_capacity(self) -> bool:
        """True if no record can be chosen before others are released or retried."""
        ...

    @property
    def waits_for_retries(self) -> bool:
        """True if the task goes on only by retrying parked records."""
        ...

    @property
    def may_commit(self) -> bool:
        """True if a commit may come now: no cached result of a released record waits for a later record."""
        ...

    def ask_for_commit_point(self) -> None:
        """Ask for a commit point soon, though none is due by the number of records."""
        ...

    def calls_ended(self) -> bool:
        """Return True if any call has ended since the last call of this method."""
        ...

    def waiting_for(self) -> str:
        """Return a text, for an error message, about the calls for which the first record in flight waits."""
        ...

    @property
    def parked(self) -> Mapping[str, int]:
        """Node -> number of records parked in its retry topic; nodes without such are absent."""
        ...

    @property
    def parked_due_ms(self) -> int | None:
        """Time at which the next parked record is due, epoch milliseconds; None when none is parked."""
        ...

    def call_figures(self) -> CallFigures | None:
        """Return the figures of the calls of this attempt; None for a task that makes none."""
        ...


def pass_moments(
    to_ms: Mapping[str, int], clocks: Sequence[StreamClock], execution: Execution, *, held: Callable[[], bool]
) -> Iterator[None]:
    """Bring stream time of topics forward, and yield between two stops, where the task may be committed.

    A task without stream time stays without: it never saw a record, or no node in it goes by time.

    :param to_ms: topic -> stream time to reach, epoch milliseconds.
    :param clocks: the stream clock of each stage.
    :param execution: the task's execution.
    :param held: function that returns True while records are parked: they may have any date, so that stream
        time must stay.
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
    """Return the first stream time, epoch milliseconds, for which a run is worth it though no record comes;
    None if there is none.

    :param clocks: the stream clock of each stage.
    """
    needed_ms = min(clock.next_needed_ms for clock in clocks)
    return None if needed_ms == NEVER else needed_ms
