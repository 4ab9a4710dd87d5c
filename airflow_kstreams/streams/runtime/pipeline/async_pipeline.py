"""Executes a task with asynchronous nodes: a pipeline of stages that releases records in input order.

Rule: the pipeline chooses records in the order of ``partition_group.py`` while its limit allows more, and
runs each through stage 0 at once. A record enters the next stage when it is the first of its stage and all
calls that it made there have ended. The last stage releases it: its results, changes and counts belong to the
next commit, and the committable offset moves behind it. A commit point, and a commit that user code asked
for, belong to their record in flight: tables emit in it, each in its stage, after all other effects of the
record. The call of a parked record (``parking.py``) runs beside the records in flight; when it has ended, a
record in flight of its own takes its result through the stages.

Invariant: between two releases, a commit would hold exactly the effects of the records up to the last one
released.

Crash argument: ``docs/internals/async.md``. No result of a record leaves the task before its release, and all
of them leave in one step of the task's own thread; stores of earlier stages are restored from changelogs that
hold released changes only.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat

from airflow_kstreams.streams.calls.call import Call
from airflow_kstreams.streams.calls.measured_caller import MeasuredCaller
from airflow_kstreams.streams.figures.call_figures import CallFigures
from airflow_kstreams.streams.ports import Record, TopicPartition
from airflow_kstreams.streams.records.partition_group import PartitionGroup, RecordRun
from airflow_kstreams.streams.runtime.pipeline.in_flight_record import (
    InFlightLimit,
    InFlightRecord,
    PendingEffect,
)
from airflow_kstreams.streams.runtime.pipeline.released_changes import ReleasedChanges
from airflow_kstreams.streams.runtime.pipeline.stage_runner import NodeCallbacks, StagedTopology, StageRunner
from airflow_kstreams.streams.state.stores.state_store import LoggedChanges, changes_of

#: Most records chosen before the pipeline tries again to release some.
_CHOSEN_AT_ONCE = 64


class AsyncPipeline:
    """The records in flight of one task.

    :param group: the task's record queues.
    :param topology: the stages.
    :param caller: the caller, which runs the calls.
    :param limit: the limit of records in flight.
    :param points_every: number of records between two commit points; 0 for none.
    :param records_in: number of records released by earlier attempts.
    :param read: topic -> number of its records released, counted here.
    :ivar commit_requested: True if a record released since the last commit asked for a commit.
    :ivar at_point: True if the record released last is a commit point, and no step of the task's own has come
        after it.
    :ivar wants_records: True if the limit allowed more records than were fetched.
    """

    def __init__(
        self,
        group: PartitionGroup,
        topology: StagedTopology,
        caller: MeasuredCaller,
        limit: InFlightLimit,
        *,
        points_every: int,
        records_in: int,
        read: dict[str, int],
    ) -> None:
        self._group = group
        self._topology = topology
        self._runner = StageRunner(topology)
        self._context = topology.context
        self._last = topology.stages.last
        self._caller = caller
        #: Number of calls that run.
        self._running = 0
        #: Number of records in flight that take a parked record through the stages.
        self._retrying = 0
        self._retries = topology.retries
        #: Node -> number of records in its retry topic, as of the record released last.
        self._parked: dict[str, int] = {}
        self._limit = limit
        self._points_every = points_every
        #: Number of records chosen since the slice's start.
        self._chosen = self.records_in = records_in
        self._read = read
        self._queues: list[deque[InFlightRecord]] = [deque() for _ in range(self._last)]
        #: Stages whose wall-clock timers are to fire in a step in flight.
        self._ticking: set[int] = set()
        self._ticked = self._point_asked = self._point_comes = False
        self._ended = self._ended_seen = 0
        self._changes = ReleasedChanges([name for stores in topology.early_stores for name in stores])
        self.commit_requested = False
        self.at_point = points_every > 0 and records_in % points_every == 0
        self.wants_records = False
        topology.handoff.start = self._start

    @property
    def in_flight(self) -> bool:
        """True if records were chosen that are not released yet."""
        return self._limit.records > 0

    @property
    def complete(self) -> bool:
        """True if every record up to the stop offsets is released, and the task need not wait for a retry.

        Steps of timers may still be in flight: the task waits for those when it stops, or its timers would
        keep it for ever.
        """
        return self._group.complete and not self._retrying and not self._retries.stays()

    @property
    def may_commit(self) -> bool:
        """True if a commit may come now: all results cached up to the record released last were emitted, or
        can be.
        """
        return not self._topology.cached or self.at_point or not self.in_flight

    @property
    def at_capacity(self) -> bool:
        """True if no record can be chosen before others are released or retried."""
        return not (self.wants_records or self._may_choose() or self._group.complete)

    @property
    def waits_for_retries(self) -> bool:
        """True if the task goes on only by retrying parked records: all others are released, or so many are
        parked that no more is chosen.
        """
        return self._retries.parks and (self._retries.full or self._group.complete)

    @property
    def parked(self) -> Mapping[str, int]:
        """Node -> number of records parked in its retry topic; nodes without such are absent."""
        return {node: count for node, count in self._parked.items() if count}

    @property
    def parked_due_ms(self) -> int | None:
        """Time at which the next parked record is due, epoch milliseconds; None when none is parked."""
        return self._retries.parked_due_ms if any(self._parked.values()) else None

    def calls_ended(self) -> bool:
        """Return True if any call has ended since the last call of this method."""
        seen, self._ended_seen = self._ended_seen, self._ended
        return seen != self._ended

    def waiting_for(self) -> str:
        """Return a text, for an error message, about the calls for which the first record in flight waits."""
        for stage in reversed(range(self._last)):
            for flight in self._queues[stage]:
                return flight.waits_for()
        return "nothing"

    def call_figures(self) -> CallFigures:
        """Return the figures of the calls of this attempt."""
        return self._caller.figures()

    def open(self, time_ms: int) -> None:
        """Load the parked records, and start the caller and the processors."""
        moved_up = self._retries.load()
        self._parked = self._retries.parked
        self._caller.open()
        self._step(moved_up, self._topology.opens, timestamp_ms=time_ms)

    def close_processors(self, time_ms: int) -> None:
        """Close the processors, and wait until their results are released."""
        self.settle()
        self.emit()
        self._step(self._topology.closes, timestamp_ms=time_ms)

    def close(self) -> None:
        """Give up the calls that run, and close their resources."""
        self._caller.close()

    def process(self, limit: int) -> int:
        """Choose as many records as the in-flight limit allows, and release those that are done.

        :param limit: most records to release; a commit point or a request for a commit ends the call
            earlier.
        :return: number of records released; 0 means that more must be fetched first, that calls still run,
            or that all records are released.
        """
        patience = self._caller.patience_seconds
        ends = time.monotonic() + patience
        released = 0
        while True:
            self._take_ended(self._caller.ended(0.0))
            number, halted = self._move_on(limit - released)
            released += number
            if halted or released >= limit:
                if not released:
                    # Timers may ask for a commit at every turn: retries and new records must not wait for
                    # them.
                    self._retry()
                    self._choose()
                self._caller.hurry()
                return released
            retried = self._retry()
            if self._choose() and not retried:
                self._caller.hurry()
                continue
            wait = min(patience, ends - time.monotonic())
            if retried and wait > 0:
                continue
            if released or not self.in_flight or wait <= 0:
                self._caller.hurry()
                return released
            self._await_call(wait)

    def settle(self) -> None:
        """Wait until no record is in flight."""
        while self.in_flight:
            self._repeat_in_place()
            self._await_call(min(1.0, self._caller.patience_seconds))
            self._move_on(sys.maxsize, halting=False)

    def _step(self, *callbacks: NodeCallbacks, timestamp_ms: int | None = None) -> None:
        """Call nodes between two records, and wait until their results are released.

        :param callbacks: nodes with their callbacks, in the order in which they are called.
        :param timestamp_ms: timestamp of their results, epoch milliseconds; None for the last record's.
        """
        self.settle()
        context = self._context
        context.record, context.replaced_headers = None, None
        if timestamp_ms is not None:
            context.timestamp_ms = timestamp_ms
        flight = InFlightRecord(None)
        flight.timestamp_ms = context.timestamp_ms
        # A callback of an asynchronous node runs in the stage that takes the node's results.
        stages = self._topology.stages.gives_in
        flight.effects = [
            PendingEffect(stages[node], context, callback, ())
            for each in callbacks
            for node, callback in each
        ]
        self._enter(flight)
        self.settle()

    def pass_time(self, to_ms: Mapping[str, int]) -> None:
        """Bring the stream time of topics forward, in each stage, and wait until all results of timers are
        released.

        :param to_ms: topic -> stream time, epoch milliseconds.
        """
        context = self._context
        for topic, moment_ms in to_ms.items():
            self.settle()
            context.record, context.replaced_headers = None, None
            context.timestamp_ms = moment_ms
            flight = InFlightRecord(None, topic, moment_ms)
            flight.timestamp_ms = moment_ms
            self._enter(flight)
        self.settle()

    def emit(self) -> None:
        """Emit cached results, unless the record released last was a commit point."""
        if self._topology.cached and not self.in_flight:
            at_point = self.at_point
            self._step(self._topology.flushes)
            self.at_point = at_point

    def ask_for_commit_point(self) -> None:
        """Make the next chosen record a commit point; if no record will be chosen, make a commit point behind
        the records in flight.
        """
        if not self.waits_for_retries:
            self._point_asked = True
        elif not self._point_comes:
            self._point_comes = True
            flight = InFlightRecord(None)
            flight.point, flight.timestamp_ms = True, self._context.timestamp_ms
            self._enter(flight)

    def punctuate(self) -> bool:
        """Fire the wall-clock timers that are due, each in its stage, behind the records in flight.

        :return: True if any has fired, or a parked record was retried, since the last call.
        """
        due = [
            stage
            for stage, clock in enumerate(self._topology.wall_clocks)
            if stage not in self._ticking and clock.due()
        ]
        if due:
            self._ticking.update(due)
            flight = InFlightRecord(None)
            flight.effects = [PendingEffect(stage, self._context, self._fire, (stage,)) for stage in due]
            self._enter(flight)
        ticked, self._ticked = self._ticked, False
        return ticked

    def unreleased(self) -> Iterator[tuple[TopicPartition, int]]:
        """Yield (partition, offset after the record) of every record that is chosen and not released."""
        for queue in self._queues:
            for flight in queue:
                if flight.taken is not None:
                    yield flight.taken.partition, flight.taken.position

    def changes(self, store: str, changelog: str) -> LoggedChanges:
        """Return the changes of a store by released records since the last call."""
        if not self._changes.keeps(store):
            return changes_of(self._topology.stores[store], changelog)
        count = self._changes.count(store)
        return LoggedChanges(changelog, count, count, self._changes.drain(store))

    def undrained_count(self, store: str) -> int:
        """Return the number of changes of a store by released records that wait for a commit to log them."""
        in_store: int = self._topology.stores[store].undrained_count()
        return in_store + self._changes.count(store)

    def _choose(self) -> bool:
        """Begin records, some at a time, while the limit allows more, and return True if there were any."""
        chosen, limit, runner = 0, self._limit, self._runner
        self.wants_records = False
        while chosen < _CHOSEN_AT_ONCE and self._may_choose():
            run = self._group.choose(_CHOSEN_AT_ONCE - chosen)
            if run is None:
                self.wants_records = True
                break
            partition, records, timestamps_ms, times_ms = run
            for record, timestamp_ms, time_ms in zip(
                records, timestamps_ms, times_ms or repeat(None), strict=False
            ):
                self._begin(partition, record, timestamp_ms, time_ms)
                chosen += 1
                if not limit.allows_more or runner.failing:
                    break
        return chosen > 0

    def _may_choose(self) -> bool:
        return self._limit.allows_more and not (self._runner.failing or self._retries.full)

    def _begin(
        self, partition: TopicPartition, record: Record, timestamp_ms: int, time_ms: int | None
    ) -> None:
        """Run one of the chosen records through the first stage.

        :param timestamp_ms: timestamp of the record, epoch milliseconds.
        :param time_ms: stream time of its topic; None if no node goes by stream time.
        """
        taken, topic = self._group.take(partition), partition.topic
        flight = InFlightRecord(taken, topic) if time_ms is None else InFlightRecord(taken, topic, time_ms)
        self._chosen += 1
        if self._points_every:
            flight.point = self._point_asked or self._chosen % self._points_every == 0
            self._point_asked = self._point_asked and not flight.point
        flight.timestamp_ms = timestamp_ms
        self._context.replaced_headers = None
        self._limit.enter(flight, record)
        times_ms = () if time_ms is None else (time_ms,)
        self._run(flight, 0, RecordRun(partition, (record,), (timestamp_ms,), times_ms))
        self._queues[0].append(flight)

    def _enter(self, flight: InFlightRecord) -> None:
        """Run a step of the task's own through the first stage."""
        self._limit.enter(flight)
        self._run(flight, 0)
        self._queues[0].append(flight)

    def _run(self, flight: InFlightRecord, stage: int, run: RecordRun | None = None) -> None:
        before = flight.size_bytes
        self._runner.run(flight, stage, run)
        self._limit.size_bytes += flight.size_bytes - before

    def _start(self, call: Call) -> None:
        self._running += 1
        self._caller.start(call)

    def _await_call(self, seconds: float) -> None:
        """Wait until a call has ended or is due in place, for some time at most."""
        if self._running:
            self._take_ended(self._caller.ended(seconds))
        else:
            self._retries.await_in_place(seconds)

    def _take_ended(self, ended: Sequence[Call]) -> None:
        for call in ended:
            if call.again is None:
                self._limit.ended(call)
                continue
            for done in call.again.node.ended(call):
                flight = self._limit.ended(done)
                if done.again.entry is not None:
                    self._run(flight, 0)
                    self._queues[0].append(flight)
        self._ended += len(ended)
        self._running -= len(ended)

    def _retry(self) -> bool:
        """Begin the retries that are due, while the limit allows more, and return True if there were any."""
        if self._runner.failing:
            return False
        begun = self._repeat_in_place()
        while self._limit.allows_more and (call := self._retries.next_parked()) is not None:
            self._limit.enter(call.owner)
            self._retrying += 1
            self._start(call)
            begun += 1
        self._ended += begun
        return begun > 0

    def _repeat_in_place(self) -> int:
        begun = 0
        while (call := self._retries.next_in_place()) is not None:
            self._start(call)
            begun += 1
        return begun

    def _move_on(self, limit: int, *, halting: bool = True) -> tuple[int, bool]:
        """Move records whose calls have ended to the next stage, in order, and release those in the last.

        :param limit: most records to release.
        :param halting: True to stop behind a commit point and behind a request for a commit.
        :return: (number of records released, True if it stopped so).
        """
        released = 0
        for stage in range(self._last):
            queue = self._queues[stage]
            ends = stage + 1 == self._last
            while queue and not queue[0].pending and released < limit:
                flight = queue.popleft()
                self._run(flight, stage + 1)
                if not ends:
                    self._queues[stage + 1].append(flight)
                    continue
                self._release(flight)
                released += flight.taken is not None
                if halting and (flight.point or flight.commit):
                    return released, True
        return released, False

    def _release(self, flight: InFlightRecord) -> None:
        self._limit.leave(flight)
        if flight.counts:
            self._topology.counters.add(flight.counts)
        if flight.changes:
            self._changes.add(flight.changes)
        if flight.commit:
            self.commit_requested = True
        if flight.parked:
            for node, change in flight.parked.items():
                self._parked[node] += change
        self._ticked = self._ticked or flight.retry
        self._retrying -= flight.retry
        self.at_point = flight.point
        if flight.taken is None:
            self._point_comes = self._point_comes and not flight.point
        else:
            self._group.release(flight.taken)
            self._read[flight.topic] += 1
            self.records_in += 1

    def _fire(self, stage: int) -> None:
        self._ticking.discard(stage)
        self._ticked = self._topology.wall_clocks[stage].fire() or self._ticked
