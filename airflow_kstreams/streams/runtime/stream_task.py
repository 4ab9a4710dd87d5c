"""A task: one partition group of one subtopology, its bound topology and its stores.

The task is pure: records come in by :meth:`StreamTask.add`, results leave through ``produce``, and its
host decides when to fetch, lets wall-clock timers fire, and commits when :meth:`StreamTask.commit_due`
says so.

Commit points: with cached results (tables), results are emitted only at points counted in consumed records
from the slice's start (``commit.every.records``) and at its end. A crash resumes at an earlier point with the
same count, so the same emissions come again. Which of the points are committed makes no difference to that:
unless the user set their number, the clock decides, and how many changes wait to be logged, so that a key
that changes all the time is logged once in ``commit.interval.ms``. Without cached results every record is a
commit point. A commit that user code asks for comes right after the record, in either case: what the records
say decides it, so a crash does not change it.

With asynchronous nodes, records are taken through stages and released one by one (``lanes.py``); what is said
here of consumed records is then said of released ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from airflow_kstreams.streams.calls.call import Station
from airflow_kstreams.streams.calls.caller import Caller
from airflow_kstreams.streams.calls.measured_caller import MeasuredCaller
from airflow_kstreams.streams.errors import KStreamsError, RecordError
from airflow_kstreams.streams.figures.call_figures import CallFigures
from airflow_kstreams.streams.figures.record_counts import RecordCounts
from airflow_kstreams.streams.partitioning.topic_growth import GrowthKind
from airflow_kstreams.streams.ports import Record, TopicPartition
from airflow_kstreams.streams.records.dead_letters import Produce
from airflow_kstreams.streams.records.key_check import KeyCheck
from airflow_kstreams.streams.records.partition_group import PartitionGroup
from airflow_kstreams.streams.records.record_queue import LastRecord, PartitionTimes
from airflow_kstreams.streams.runtime.end_of_run import EndOfRun
from airflow_kstreams.streams.runtime.flow_check import FlowCheck, Unbalanced
from airflow_kstreams.streams.runtime.pipeline.lanes import Lanes
from airflow_kstreams.streams.runtime.pipeline.released_changes import Change
from airflow_kstreams.streams.runtime.pipeline.room import room_for
from airflow_kstreams.streams.runtime.processor_topology import ProcessorTopology
from airflow_kstreams.streams.runtime.task_environment import TaskEnvironment
from airflow_kstreams.streams.runtime.wiring import partition_bytes_of
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.topology import Topology

T = TypeVar("T")

#: Commit points of a task with cached results, in consumed records, unless the user sets another number.
CACHED_COMMIT_EVERY_RECORDS = 100_000
#: With so many changes to log, the next such point is committed whatever the clock says: they take memory,
#: and stores on disk keep no more entries as objects.
UNDRAINED_CHANGES = 100_000
#: Where a partition has fewer records in a row, those of several partitions are run together if they may be.
SHORT_RUN = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskId:
    """A task: subtopology and partition group."""

    subtopology: int
    group: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.group}"


class LoggedChanges(NamedTuple):
    """The changes of one store that the next commit logs.

    :param changelog: topic.
    :param least: how many changes there are at least, as the store counted them.
    :param most: how many there are at most.
    :param changes: the changes.
    """

    changelog: str
    least: int
    most: int
    changes: Iterator[Change]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgress:
    """What a task had done for its slice when it last committed; it travels in the offset metadata.

    :param records_in: records consumed since the slice's start.
    :param records_out: records handed to sinks.
    :param records_dropped: records dropped by rule, and those an error handler skipped.
    :param records_dead_lettered: records sent to the dead-letter topic.
    :param counts: the same by topic and node; None if an earlier attempt had no room for it beside its
        offsets.
    :param partition_times: of each partition.
    :param last_records: the last record before each committed offset.
    :param parked: node -> how many records are parked in its retry topic as of this commit; nodes without
        such are absent.
    :param parked_due_ms: when the first of them is due, epoch milliseconds; None when none is parked, or that
        is not known.
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


class StreamTask:
    """One task.

    :param topology: the whole topology.
    :param task_id: which subtopology and group.
    :param bounds: start and stop offset of each partition of the group, real topic names.
    :param produce: sends one record, see ``WriterPort``.
    :param progress: what an earlier attempt had committed for this slice, and the partition times that
        earlier runs left.
    :param environment: the machine's clock and topics of one partition unless given.
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
        environment = environment or TaskEnvironment()
        subtopology = next(s for s in topology.subtopologies() if s.id == task_id.subtopology)
        self._bound = ProcessorTopology(
            topology,
            subtopology,
            settings=settings,
            task_id=str(task_id),
            produce=produce,
            environment=environment,
        )
        self._before = progress
        self._threads = settings.num_threads_per_task
        self._records_in = progress.records_in
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
        every = settings.commit_every_records
        self._points_every = every or (CACHED_COMMIT_EVERY_RECORDS if self._bound.cached else 0)
        self._commits_at_points = every > 0
        self._changelogs = {
            spec.name: topology.changelog_topic(spec.name, settings.application_id)
            for spec in subtopology.stores
            if spec.logged
        }
        self._caller: MeasuredCaller | None = None
        self._lanes: Lanes | None = None
        if self._bound.stages.last:
            make_caller = environment.make_caller or self._threaded_caller
            room = room_for(self._bound.stations, settings)
            self._caller = MeasuredCaller(
                make_caller(self._bound.stations),
                self._bound.stations[::-1],  # nodes are bound from below
                threads=self._threads,
                under_way=lambda: room.lives,
            )
            self._lanes = Lanes(
                self.group,
                self._bound.staged,
                self._caller,
                room,
                points_every=self._points_every,
                released=progress.records_in,
                read=self._read,
            )

    @property
    def commit_requested(self) -> bool:
        """Whether user code has asked for a commit since the last one."""
        return self._bound.commit_requested or (self._lanes is not None and self._lanes.commit_requested)

    @property
    def parked(self) -> Mapping[str, int]:
        """Node -> how many records are parked in its retry topic; nodes without such are absent."""
        return {} if self._lanes is None else {n: held for n, held in self._lanes.parked.items() if held}

    def advance_time(self, to_ms: int, also: Collection[str] = ()) -> Iterator[None]:
        """Bring stream time to a moment, once every record is processed; see
        :class:`~airflow_kstreams.streams.runtime.end_of_run.EndOfRun`.

        :param also: nodes whose parked records do not keep it from that.
        :return: yields where the task may be committed.
        :raises RecordError: what timers brought about failed.
        """
        self.settle()
        return self._end_of_run.advance(to_ms, lambda: not self.parked.keys() <= {*also})

    @property
    def next_due_ms(self) -> int | None:
        """Stream time at which the task has something to do next, though no record comes; None if at none."""
        return self._end_of_run.needed_ms

    @property
    def _end_of_run(self) -> EndOfRun:
        return EndOfRun(self._bound.clocks, self._lanes, self._guarded, self._emit)

    @property
    def complete(self) -> bool:
        """Whether every record up to the stop offsets was processed, and nothing parked is to be called again
        before the task leaves.
        """
        return self.group.complete and (self._lanes is None or not self._lanes.stays())

    @property
    def stores(self) -> Mapping[str, Any]:
        """The task's stores by name."""
        return self._bound.stores

    @property
    def changelogs(self) -> Mapping[str, str]:
        """Changelog topic of each logged store."""
        return self._changelogs

    @property
    def progress(self) -> TaskProgress:
        """Counts since the slice's start."""
        topics, counters, before = self._bound.clock.topics, self._bound.counters, self._before
        return TaskProgress(
            records_in=self._records_in,
            records_out=before.records_out + counters.output,
            records_dropped=before.records_dropped + counters.dropped,
            records_dead_lettered=before.records_dead_lettered + counters.dead_lettered,
            counts=self._counts(),
            partition_times={
                partition: PartitionTimes(time_ms, latest_ms, topics[partition.topic].time_ms)
                for partition, (time_ms, latest_ms) in self.group.partition_times().items()
            },
            last_records=self.group.last_records(),
            parked=self.parked,
            parked_due_ms=None if self._lanes is None else self._lanes.parked_due_ms,
        )

    def open(self) -> bool:
        """Let the processors start, once the stores are restored and before the first record.

        :return: whether they wrote anything, dead letters included; it belongs to the first commit.
        :raises RecordError: a processor's init failed, or what a resource's opening raised.
        """
        counters = self._bound.counters
        before = counters.output + counters.dead_lettered
        if self._lanes is None or self._caller is None:
            self._guarded(lambda: self._bound.open(self._latest_ms()))
        else:
            lanes, caller, time_ms = self._lanes, self._caller, max(self._latest_ms(), 0)
            sooner = lanes.load()
            self._guarded(caller.open)
            self._guarded(lambda: lanes.step(sooner, self._bound.opens, timestamp_ms=time_ms))
            lanes.commit_requested = False
        self._bound.commit_requested = False  # every attempt opens: emission must not depend on their number
        return counters.output + counters.dead_lettered > before

    def add(self, partition: TopicPartition, records: Sequence[Record]) -> None:
        """Buffer fetched records of one partition.

        :raises TopologyError: a key of a topic that has grown does not lie where that puts it.
        """
        if self._key_check is not None:
            self._key_check.look_at(partition, records, self.group.read_to(partition))
        self.group.add(partition, records)

    def ruled_out(self, topic: str) -> tuple[GrowthKind, ...]:
        """Return the kinds of growth of a topic that its keys exclude, as far as they were read."""
        return () if self._key_check is None else self._key_check.ruled_out(topic)

    def process(self, limit: int) -> int:
        """Process the next records, up to a commit point at most; there, cached results are emitted.

        :param limit: the most records to process; a request for a commit ends the call earlier.
        :return: how many were processed; 0 means that more must be fetched first, or that all is done.
        :raises RecordError: a record could not be decoded, processed or encoded.
        """
        if self._lanes is not None:
            return self._release(self._lanes, limit)
        if self._points_every:
            limit = min(limit, self._points_every - self._records_in % self._points_every)
        return self._guarded(lambda: self._run_up_to(limit))

    def _run_up_to(self, limit: int) -> int:
        """Run records, of one partition after the other, as many as may be chosen.

        Where partitions alternate, few records lie in a row, and each call of :meth:`process` has its price;
        so has each run.
        """
        group, bound, processed = self.group, self._bound, 0
        while processed < limit and (chosen := group.choose(limit - processed)) is not None:
            count = bound.run(chosen)
            processed += self._ran(chosen.partition, count)
            if bound.commit_requested:
                break
            if count < SHORT_RUN and bound.mixes and processed < limit:
                mixed = group.mix(limit - processed)
                if mixed is not None:
                    bound.run_mixed(mixed)
                    processed += sum(itertools.starmap(self._ran, mixed.counts.items()))
        if processed and self._at_point:
            bound.flush()
        return processed

    def _ran(self, partition: TopicPartition, count: int) -> int:
        """Take note that so many of the records chosen were run, and return how many."""
        self.group.advance(partition, count)
        self._records_in += count
        self._read[partition.topic] += count
        return count

    def punctuate(self) -> bool:
        """Let the wall-clock timers fire that are due, between two calls of :meth:`process`.

        :return: whether any was due; what it forwarded belongs to the next commit.
        :raises RecordError: user code failed.
        """
        if self._lanes is not None:
            return self._guarded(self._lanes.tick)
        return self._guarded(self._bound.wall_clock.fire)

    @property
    def under_way(self) -> bool:
        """Whether records were chosen that are not released yet."""
        return self._lanes is not None and not self._lanes.idle

    def unreleased(self) -> Iterator[tuple[TopicPartition, int]]:
        """Yield for every record chosen and not released its partition and the offset behind it."""
        return iter(()) if self._lanes is None else self._lanes.unreleased()

    @property
    def hungry(self) -> bool:
        """Whether records should be fetched though some are under way, so that calls do not run out."""
        return self._lanes is not None and self._lanes.hungry

    @property
    def sated(self) -> bool:
        """Whether no more records need to be fetched before some are released, or parked ones are done."""
        return self._lanes is not None and self._lanes.sated and not self.group.complete

    @property
    def held_up(self) -> bool:
        """Whether only parked records bring it on: it is at its stop offsets, or may choose no more."""
        return self._lanes is not None and self._lanes.held_up

    @property
    def at_cut(self) -> bool:
        """Whether a commit may come now: no result of a record released is held back by a later record."""
        return self._lanes is None or self._lanes.at_cut

    def ask_for_cut(self) -> None:
        """Have a commit possible soon, where commits come by the clock alone."""
        if self._lanes is not None:
            self._lanes.ask_for_point()

    def moved(self) -> bool:
        """Say whether any call has ended since this was asked last."""
        return self._lanes is not None and self._lanes.moved()

    def waiting_for(self) -> str:
        """Say what the first record under way waits for."""
        return "nothing" if self._lanes is None else self._lanes.waiting_for()

    def settle(self) -> None:
        """Wait until every record chosen is released.

        :raises RecordError: as :meth:`process`.
        """
        if self._lanes is not None:
            lanes, before = self._lanes, self._released
            self._guarded(lanes.settle)
            self._records_in += self._released - before

    @property
    def calls(self) -> CallFigures | None:
        """What was measured of the calls of this attempt; None of a task that makes none."""
        return None if self._caller is None else self._caller.figures()

    def stop_calls(self) -> None:
        """Give up the calls that run, and close their resources; the task is not used any more."""
        if self._caller is not None:
            self._caller.close()

    def commit_due(self, *, interval_elapsed: bool, processed: bool = True) -> bool:
        """Say whether to commit now, between two calls of :meth:`process`.

        :param interval_elapsed: whether ``commit.interval.ms`` has passed since the last commit.
        :param processed: whether the last call processed anything; a commit point counts once.
        """
        if self._lanes is not None and self._lanes.commit_requested:
            return True
        if self._bound.commit_requested:
            return True
        if self._at_point and self._commits_at_points:
            return processed
        if self._bound.cached:
            return self._at_point and (interval_elapsed or self._undrained() >= UNDRAINED_CHANGES)
        return interval_elapsed

    @property
    def _at_point(self) -> bool:
        """Whether a point counted in consumed records is reached."""
        if self._lanes is not None:
            return self._lanes.at_point
        return self._points_every > 0 and self._records_in % self._points_every == 0

    def flush(self) -> None:
        """Emit what is cached; the first step of every commit.

        What user code asks for meanwhile is this very commit. Kept, the request would bring another one after
        the next record, unless a crash forgot it: emission would depend on crashes.

        :raises RecordError: a downstream function or serde failed.
        """
        self._emit()
        self._bound.commit_requested = False
        if self._lanes is not None:
            self._lanes.commit_requested = False

    def changes(self) -> Iterator[LoggedChanges]:
        """Yield what goes to each changelog topic: one change per key that changed since the last call."""
        for name, changelog in self._changelogs.items():
            if self._lanes is not None and self._lanes.keeps_changes(name):
                count = self._lanes.undrained_count(name)
                yield LoggedChanges(changelog, count, count, self._lanes.drain_changes(name))
            else:
                store = self._bound.stores[name]
                least, most = store.undrained_at_least(), store.undrained_count()
                yield LoggedChanges(changelog, least, most, store.drain_changes())

    def close(self) -> None:
        """Let the processors close, before the last commit: what they forward or store is committed with it.

        :raises RecordError: a processor's close failed.
        """
        if self._lanes is not None:
            lanes, time_ms = self._lanes, max(self._latest_ms(), 0)
            self.settle()
            self._guarded(lanes.flush)
            self._guarded(lambda: lanes.step(self._bound.closes, timestamp_ms=time_ms))
            return
        self._guarded(self._bound.flush)
        self._guarded(lambda: self._bound.close(self._latest_ms()))

    def unbalanced(self, counts: RecordCounts) -> Sequence[Unbalanced]:
        """Return the topics for which counts of this task do not fit together."""
        return self._flows.unbalanced(counts)

    @property
    def _released(self) -> int:
        return sum(self._read.values())

    def _emit(self) -> None:
        """Emit what is cached."""
        self._guarded(self._bound.flush if self._lanes is None else self._lanes.flush)

    def _release(self, lanes: Lanes, limit: int) -> int:
        count: int = self._guarded(lambda: lanes.process(limit))
        self._records_in += count
        return count

    def _threaded_caller(self, stations: Sequence[Station]) -> Caller:
        # Tasks without calls need no event loop, and asyncio takes its time to import.
        from airflow_kstreams.streams.calls.threaded_caller import ThreadedCaller

        return ThreadedCaller(stations, threads=self._threads, task_id=str(self.task_id))

    def _counts(self) -> RecordCounts | None:
        before = self._before.counts
        if before is None:
            return None
        return before + self._bound.counters.counts(read=self._read, outside=self.group.skipped_by_topic())

    def _undrained(self) -> int:
        """Return how many changes wait to be logged."""
        released = 0 if self._lanes is None else sum(map(self._lanes.undrained_count, self._changelogs))
        undrained: int = sum(self._bound.stores[name].undrained_count() for name in self._changelogs)
        return released + undrained

    def _latest_ms(self) -> int:
        """Return the largest timestamp of all records processed so far, in this run or before it.

        It travels with the offsets, so what is forwarded at the end has the same time in an attempt that has
        nothing left to process.
        """
        return max((latest_ms for _, latest_ms in self.group.partition_times().values()), default=-1)

    def _guarded(self, step: Callable[[], T]) -> T:
        try:
            return step()
        except RecordError as error:
            explained = self._bound.errors.refused(error)
            if explained is error:
                raise
            raise explained from error
        except KStreamsError:
            raise
        except Exception as error:
            raise self._bound.errors.record_error(error) from error
