"""Defines the task: one partition group of one subtopology, its bound topology and its stores.

A task goes through these states::

                  restored()              open()            stop()
    +---------+   stores    +----------+  processors +------+  no more  +---------+
    | CREATED | ----------> | RESTORED | ----------> | OPEN | --------> | AT_STOP |
    +---------+             +----------+             +------+           +---------+
         |                       |                      |                    |
         |  close()              |  close()             |  close()           |  close()
         v                       v                      v                    v
    +-----------------------------------------------------------------------------+
    |                                   CLOSED                                    |
    +-----------------------------------------------------------------------------+

- CREATED: the topology is bound, the stores are empty.
- RESTORED: the stores hold the entries that earlier commits logged.
- OPEN: the processors have started; the task processes records and wall-clock timers, and may be committed.
- AT_STOP: every chosen record is released, and no further one is processed; the windows that these records
  closed are emitted. The end of the run may bring stream time further and closes the processors; the last
  commit follows.
- CLOSED: no call runs, and no resource of calls is open. Uncommitted results are void. A closed task may be
  closed again.

Every other transition, and every step in a state in which it must not come, raises a
:class:`~airflow_kstreams.streams.errors.TaskStateError`.

The task is pure: records come in by :meth:`StreamTask.add`, results leave through ``produce``, and its host
decides when to fetch, lets wall-clock timers fire, and commits when :meth:`StreamTask.commit_due` says so.
Its :class:`~airflow_kstreams.streams.runtime.execution.Execution` processes the records; where no node calls
functions asynchronously that is an :class:`InlineExecution`.

Commit points: with cached results (tables), a task emits only at points counted in released records from the
slice's start (``commit.every.records``) and at its end. A crash resumes at an earlier point with the same
count, so the same emissions come again. It does not matter for them at which of these points the task
commits: unless the user set their number, the clock decides, and the number of changes that wait to be
logged, so that a key that changes all the time is logged once in ``commit.interval.ms``. Without cached
results every record is a commit point. A commit that user code asks for comes right after the record, in
either case: it depends on the records alone, so a crash does not change it.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any

from airflow_kstreams.streams.calls.call import AsyncNode, Caller
from airflow_kstreams.streams.calls.measured_caller import MeasuredCaller
from airflow_kstreams.streams.errors import TaskStateError
from airflow_kstreams.streams.figures.record_counts import RecordCounts
from airflow_kstreams.streams.partitioning.topic_growth import GrowthKind
from airflow_kstreams.streams.ports import Record, TimedRecords, TopicPartition
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.records.dead_letter_format import Produce
from airflow_kstreams.streams.records.key_check import KeyCheck
from airflow_kstreams.streams.records.partition_group import PartitionGroup
from airflow_kstreams.streams.records.record_queue import PartitionTimes
from airflow_kstreams.streams.runtime.execution import Execution, TaskProgress, next_needed_ms, pass_moments
from airflow_kstreams.streams.runtime.flow_check import FlowCheck, Unbalanced
from airflow_kstreams.streams.runtime.pipeline.async_pipeline import AsyncPipeline
from airflow_kstreams.streams.runtime.pipeline.in_flight_record import in_flight_limit
from airflow_kstreams.streams.runtime.processor_topology import ProcessorTopology
from airflow_kstreams.streams.runtime.task_environment import TaskEnvironment, partition_bytes_of
from airflow_kstreams.streams.runtime.window_closings import closings_in
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.state.stores.state_store import LoggedChanges, changes_of
from airflow_kstreams.streams.topology.topology import Topology

log = package_log(__name__)

#: Released records between two commit points of a task with cached results, unless the user sets a number.
CACHED_COMMIT_EVERY_RECORDS = 100_000
#: Number of changes to log at which the task commits at its next commit point, even before
#: ``commit.interval.ms`` has passed: changes take memory, and stores on disk keep no more entries as objects.
UNDRAINED_CHANGES = 100_000


class Lifecycle(Enum):
    """The states of a task; the module's diagram has the transitions between them."""

    CREATED = "created"
    RESTORED = "restored"
    OPEN = "open"
    AT_STOP = "at its stop"
    CLOSED = "closed"


#: State -> the states that may follow it.
_TRANSITIONS: Mapping[Lifecycle, frozenset[Lifecycle]] = {
    Lifecycle.CREATED: frozenset((Lifecycle.RESTORED, Lifecycle.CLOSED)),
    Lifecycle.RESTORED: frozenset((Lifecycle.OPEN, Lifecycle.CLOSED)),
    Lifecycle.OPEN: frozenset((Lifecycle.AT_STOP, Lifecycle.CLOSED)),
    Lifecycle.AT_STOP: frozenset((Lifecycle.CLOSED,)),
    Lifecycle.CLOSED: frozenset((Lifecycle.CLOSED,)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskId:
    """A task.

    :param subtopology: id of its subtopology.
    :param group: number of its partition group.
    """

    subtopology: int
    group: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.group}"


class StreamTask:
    """One task.

    :param topology: the whole topology.
    :param task_id: its subtopology and partition group.
    :param bounds: partition of the group, with the topic's real name -> (start offset, stop offset).
    :param produce: function that sends one record, see ``WriterPort``.
    :param settings: the application's settings.
    :param progress: the counts that an earlier attempt committed for this slice, and the partition times that
        earlier runs committed.
    :param environment: clock, topics and limits; None for the machine's clock and topics of one partition.
    :ivar state: its state, see the diagram above.
    :ivar execution: its execution, which processes the records.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        task_id: TaskId,
        bounds: Mapping[TopicPartition, tuple[int, int]],
        produce: Produce,
        settings: ApplicationSettings,
        progress: TaskProgress,
        environment: TaskEnvironment | None = None,
    ) -> None:
        self.task_id = task_id
        self.state = Lifecycle.CREATED
        environment = environment or TaskEnvironment()
        subtopology = next(s for s in topology.subtopologies() if s.id == task_id.subtopology)
        self._bound = ProcessorTopology(
            topology,
            subtopology,
            settings=settings,
            task_id=str(task_id),
            produce=produce,
            environment=environment,
            closings=closings_in(progress.partition_times.values()),
        )
        self._explaining = self._bound.errors.explaining
        #: True after the warning about implausible times was logged: once, since there may be many.
        self._misdated_said = False
        self._before = progress
        self._read = dict.fromkeys(sorted({partition.topic for partition in bounds}), 0)
        self._flows = FlowCheck(
            subtopology, lambda topic: topology.real_topic(topic, settings.application_id)
        )
        times = progress.partition_times
        self.group = PartitionGroup(
            bounds,
            buffered=settings.buffered_records_per_partition,
            timed=self._bound.timed,
            times=times,
            last_records=progress.last_records,
            read_timestamps=self._bound.read_timestamps(times, list(bounds)),
            allowed=self._bound.latest_allowed,
            looked_at=environment.looked_at,
        )
        self._key_check: KeyCheck | None = None
        if environment.grown:
            partition_bytes = partition_bytes_of(topology, subtopology, settings.application_id)
            self._key_check = KeyCheck(
                environment.grown,
                partition_bytes,
                task_id=str(task_id),
                group=task_id.group,
                processors=environment.processors,
            )
        for partition, left in times.items():
            for clock in self._bound.clocks:
                clock.advance(partition.topic, left.stream_time_ms)
        self._bound.closings.start()
        every = settings.commit_every_records
        points_every = every or (CACHED_COMMIT_EVERY_RECORDS if self._bound.cached else 0)
        self._commits_at_points = every > 0
        self._changelogs = {
            spec.name: topology.changelog_topic(spec.name, settings.application_id)
            for spec in subtopology.stores
            if spec.logged
        }
        self.execution = self._execution_of(settings, environment, points_every)

    def _execution_of(
        self, settings: ApplicationSettings, environment: TaskEnvironment, points_every: int
    ) -> Execution:
        bound, records_in = self._bound, self._before.records_in
        if not bound.stages.last:
            return InlineExecution(
                bound, self.group, points_every=points_every, records_in=records_in, read=self._read
            )
        threads, task_id = settings.num_threads_per_task, str(self.task_id)

        def threaded_caller(async_nodes: Sequence[AsyncNode]) -> Caller:
            # Tasks without calls need no event loop, and asyncio takes its time to import.
            from airflow_kstreams.streams.calls.threaded_caller import ThreadedCaller

            return ThreadedCaller(async_nodes, threads=threads, task_id=task_id)

        limit = in_flight_limit(bound.async_nodes, settings)
        caller = MeasuredCaller(
            (environment.make_caller or threaded_caller)(bound.async_nodes),
            bound.async_nodes[::-1],  # nodes are bound from below
            threads=threads,
            in_flight=lambda: limit.records,
        )
        return AsyncPipeline(
            self.group,
            bound.staged,
            caller,
            limit,
            points_every=points_every,
            records_in=records_in,
            read=self._read,
        )

    def restored(self) -> None:
        """Enter RESTORED: the stores hold the entries that earlier commits logged."""
        self._become(Lifecycle.RESTORED)

    def open(self) -> bool:
        """Start the processors, before the first record.

        :return: True if they wrote records, dead letters included; these belong to the first commit.
        :raises RecordError: a processor's ``init``, or the opening of a resource, failed.
        """
        self._become(Lifecycle.OPEN)
        counters = self._bound.counters
        before = counters.output + counters.dead_lettered
        with self._explaining:
            self.execution.open(self._latest_ms())
        # Every attempt opens: emission must not depend on the number of attempts.
        self.execution.commit_requested = False
        return counters.output + counters.dead_lettered > before

    def add(self, partition: TopicPartition, records: Sequence[Record]) -> None:
        """Buffer fetched records of one partition.

        :raises TopologyError: a key of a topic that has grown lies in a partition in which its growth does
            not put it.
        """
        if isinstance(records, TimedRecords):
            self._bound.columns_of = records.columns_of
        if self._key_check is not None:
            records = self._key_check.look_at(partition, records, self.group.read_to(partition))
        self.group.add(partition, records)

    def process(self, limit: int) -> int:
        """Process the next records, up to a commit point at most; there, cached results are emitted.

        :param limit: most records to release; a request for a commit ends the call earlier.
        :return: number of released records; 0 means that more must be fetched first, that calls still run,
            or that all records are released.
        :raises RecordError: a record could not be decoded, processed or encoded.
        """
        self._require(Lifecycle.OPEN)
        with self._explaining:
            return self.execution.process(limit)

    def punctuate(self) -> bool:
        """Fire the wall-clock timers that are due, between two calls of :meth:`process`.

        :return: True if any was due; its results belong to the next commit.
        :raises RecordError: user code failed.
        """
        self._require(Lifecycle.OPEN)
        with self._explaining:
            return self.execution.punctuate()

    def settle(self) -> None:
        """Wait until every chosen record is released.

        :raises RecordError: as :meth:`process`.
        """
        with self._explaining:
            self.execution.settle()

    def flush(self) -> None:
        """Emit cached results; the first step of every commit.

        A commit that user code asks for meanwhile is this one. If the request was kept, another commit would
        come after the next record, unless a crash lost the request: emission would depend on crashes.

        :raises RecordError: a downstream function or serde failed.
        """
        self._require(Lifecycle.OPEN, Lifecycle.AT_STOP)
        self._emit()
        self.execution.commit_requested = False
        if not self._misdated_said and (warning := self.group.misdated_warning()):
            self._misdated_said = True
            log.warning("task %s: %s", self.task_id, warning)

    def changes(self) -> Iterator[LoggedChanges]:
        """Yield the changes for each changelog topic: one change per key that changed since the last call."""
        for name, changelog in self._changelogs.items():
            yield self.execution.changes(name, changelog)

    def stop(self) -> None:
        """Process no more records; those in flight are released first. If all are processed, stream time
        comes to the largest timestamp: no buffered record holds it back.

        :raises RecordError: as :meth:`process`, or the callback of a timer failed.
        """
        self._become(Lifecycle.AT_STOP)
        self.settle()
        known, latest = self._bound.clock.topics, self.group.latest_times()
        to_ms = {topic: time_ms for topic, time_ms in latest.items() if known[topic].time_ms >= 0}
        with self._explaining:
            for _ in pass_moments(to_ms, self._bound.clocks, self.execution, held=lambda: False):
                """No commit comes in between, as with the moments that a record passes."""

    def end_of_run(self, to_ms: int, also: Collection[str] = ()) -> Iterator[None]:
        """Bring stream time forward, see :mod:`airflow_kstreams.streams.runtime.execution`.

        :param to_ms: stream time to reach, epoch milliseconds.
        :param also: names of nodes whose parked records do not hold stream time back.
        :return: an iterator that yields at each point at which the task may be committed.
        :raises RecordError: the callback of a timer failed.
        """
        self._require(Lifecycle.AT_STOP)
        with self._explaining:
            yield from pass_moments(
                dict.fromkeys(self._bound.clock.topics, to_ms),
                self._bound.clocks,
                self.execution,
                held=lambda: not self.execution.parked.keys() <= {*also},
            )

    def close_processors(self) -> None:
        """Close the processors, before the last commit, which holds their results and changes.

        :raises RecordError: a processor's close failed.
        """
        self._require(Lifecycle.AT_STOP)
        with self._explaining:
            self.execution.close_processors(self._latest_ms())

    def close(self) -> None:
        """Give up the calls that run, and close their resources."""
        self._become(Lifecycle.CLOSED)
        self.execution.close()

    def commit_due(self, *, interval_elapsed: bool, processed: bool = True) -> bool:
        """Return True if the task is to be committed now, between two calls of :meth:`process`.

        :param interval_elapsed: True if ``commit.interval.ms`` has passed since the last commit.
        :param processed: True if the last call released any record; a commit point counts once.
        """
        execution = self.execution
        if execution.commit_requested:
            return True
        if execution.at_point and self._commits_at_points:
            return processed
        if self._bound.cached:
            return execution.at_point and (interval_elapsed or self._undrained() >= UNDRAINED_CHANGES)
        return interval_elapsed

    @property
    def next_due_ms(self) -> int | None:
        """Stream time, epoch milliseconds, at which the task gives a result next though no record comes; None
        if there is none.
        """
        return next_needed_ms(self._bound.clocks)

    @property
    def stores(self) -> Mapping[str, Any]:
        """Store name -> the task's store."""
        return self._bound.stores

    @property
    def changelogs(self) -> Mapping[str, str]:
        """Name of a logged store -> its changelog topic."""
        return self._changelogs

    @property
    def progress(self) -> TaskProgress:
        """Counts since the slice's start."""
        topics, counters, before = self._bound.clock.topics, self._bound.counters, self._before
        closings = self._bound.closings.now()
        return TaskProgress(
            records_in=self.execution.records_in,
            records_out=before.records_out + counters.output,
            records_dropped=before.records_dropped + counters.dropped,
            records_dead_lettered=before.records_dead_lettered + counters.dead_lettered,
            counts=self._counts(),
            partition_times={
                partition: PartitionTimes(time_ms, latest_ms, topics[partition.topic].time_ms, closings)
                for partition, (time_ms, latest_ms) in self.group.partition_times().items()
            },
            last_records=self.group.last_records(),
            parked=self.execution.parked,
            parked_due_ms=self.execution.parked_due_ms,
        )

    def ruled_out(self, topic: str) -> tuple[GrowthKind, ...]:
        """Return the kinds of growth of a topic that its keys exclude, as far as they were read."""
        return () if self._key_check is None else self._key_check.ruled_out(topic)

    def holds_results(self, topic: str) -> bool:
        """Return whether a topic is one of results: neither a changelog nor the dead-letter topic."""
        return topic != self._bound.errors.dead_letter_topic and topic not in self._changelogs.values()

    def unbalanced(self, counts: RecordCounts) -> Sequence[Unbalanced]:
        """Return the topics for which counts of this task do not fit together."""
        return self._flows.unbalanced(counts)

    def _become(self, state: Lifecycle) -> None:
        if state not in _TRANSITIONS[self.state]:
            raise TaskStateError(
                f"task {self.task_id} is {self.state.value} and cannot become {state.value}: "
                "airflow-kstreams took a step of the task out of order, which is to be reported",
                task_id=str(self.task_id),
            )
        self.state = state

    def _require(self, *states: Lifecycle) -> None:
        if self.state not in states:
            raise TaskStateError(
                f"task {self.task_id} is {self.state.value}, and this step needs one that is "
                f"{' or '.join(state.value for state in states)}: airflow-kstreams took a step of the task "
                "out of order, which is to be reported",
                task_id=str(self.task_id),
            )

    def _emit(self) -> None:
        with self._explaining:
            self.execution.emit()

    def _counts(self) -> RecordCounts | None:
        before = self._before.counts
        if before is None:
            return None
        return before + self._bound.counters.counts(read=self._read, outside=self.group.skipped_by_topic())

    def _undrained(self) -> int:
        """Return the number of changes that wait to be logged."""
        return sum(map(self.execution.undrained_count, self._changelogs))

    def _latest_ms(self) -> int:
        """Return the largest timestamp of the records processed, in this run or before it; 0 if none was.

        It is committed with the offsets, so results at the end have the same time in an attempt that has no
        record left to process.
        """
        return max(0, *(latest_ms for _, latest_ms in self.group.partition_times().values()))


#: Length of a run of one partition below which records of several partitions are run together where allowed.
_SHORT_RUN = 64


class InlineExecution:
    """Processes each record of one task to its end at once.

    Its commit points are counted in records from the slice's start, so that every attempt has the same ones;
    between two of them cached results wait.

    :param topology: the bound topology, of one stage.
    :param group: the task's record queues.
    :param points_every: number of records between two commit points; 0 for none.
    :param records_in: number of records processed by earlier attempts.
    :param read: topic -> number of its records processed, counted here.
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
        """True if user code has asked for a commit since the last one."""
        return self._topology.commit_requested

    @commit_requested.setter
    def commit_requested(self, requested: bool) -> None:
        self._topology.commit_requested = requested

    @property
    def at_point(self) -> bool:
        """True if the record processed last is a commit point."""
        return self._points_every > 0 and self.records_in % self._points_every == 0

    @property
    def complete(self) -> bool:
        """True if every record up to the stop offsets was processed."""
        return self._group.complete

    def open(self, time_ms: int) -> None:
        """Start the processors."""
        self._topology.open(time_ms)

    def process(self, limit: int) -> int:
        """Run records, of one partition after the other, up to a commit point, where cached results
        are emitted.

        Where partitions alternate, few records lie in a row, and each call of this method and each run costs
        time; then records of several partitions are run together.
        """
        if self._points_every:
            limit = min(limit, self._points_every - self.records_in % self._points_every)
        group, topology, processed = self._group, self._topology, 0
        while processed < limit and (chosen := group.choose(limit - processed)) is not None:
            count = topology.run(chosen)
            processed += self._ran(chosen.partition, count)
            if self._topology.commit_requested:
                break
            if count < _SHORT_RUN and topology.mixes and processed < limit:
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
        """Fire the wall-clock timers that are due, and return True if there were any."""
        return self._topology.wall_clock.fire()

    def pass_time(self, to_ms: Mapping[str, int]) -> None:
        """Bring the stream time of topics forward, and fire the timers that are due then."""
        clock = self._topology.clock
        clock.bring_to(to_ms)
        clock.fire()

    def emit(self) -> None:
        """Emit cached results."""
        self._topology.flush()

    def close_processors(self, time_ms: int) -> None:
        """Close the processors."""
        self._topology.flush()
        self._topology.close(time_ms)

    def close(self) -> None:
        """Do nothing: no call runs."""

    def unreleased(self) -> Iterator[tuple[TopicPartition, int]]:
        """Yield nothing: a chosen record is processed at once."""
        return iter(())

    def changes(self, store: str, changelog: str) -> LoggedChanges:
        """Return the changes of a store since the last call."""
        return changes_of(self._topology.stores[store], changelog)

    def undrained_count(self, store: str) -> int:
        """Return how many changes of a store wait for a commit to log them."""
        count: int = self._topology.stores[store].undrained_count()
        return count

    def ask_for_commit_point(self) -> None:
        """Do nothing: a commit may come at any time."""

    def calls_ended(self) -> bool:
        """Return False: there are no calls."""
        return False

    def waiting_for(self) -> str:
        """Return ``nothing``: no record in flight waits for a call."""
        return "nothing"

    def call_figures(self) -> None:
        """Return None: there are no calls."""
