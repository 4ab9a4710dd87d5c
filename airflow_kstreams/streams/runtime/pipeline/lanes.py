"""Takes the records of a task with asynchronous nodes through its stages, and releases them in input order.

Rule: records are chosen in the order of ``partition_group.py`` while there is room; each begins in stage 0 at
once. A record enters the next stage when it is the first of its stage and all calls that it made there have
ended. With the last stage it is released: what it wrote, changed and counted is part of the next commit, and
the committable offset moves behind it. A commit point, and a commit that user code asked for, are part of the
life of their record: tables emit in it, each in its stage, behind all else that the record brought about.
The call of a parked record (``parking.py``) runs beside the lives; when it has ended, a life of its own takes
what it gave through the stages.

Invariant: between two releases, everything that a commit would hold is as of the last record released.

Crash argument: ``docs/internals/async.md``. Nothing of a record leaves the task before its release, and all
of it leaves in one step of the task's own thread; stores of earlier stages are restored from changelogs that
hold released changes only.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import repeat

from airflow_kstreams.streams.calls.call import Call
from airflow_kstreams.streams.calls.caller import Caller
from airflow_kstreams.streams.ports import Record, TopicPartition
from airflow_kstreams.streams.records.partition_group import PartitionGroup, RecordRun
from airflow_kstreams.streams.runtime.pipeline.life import Entry, Life
from airflow_kstreams.streams.runtime.pipeline.released_changes import Change, ReleasedChanges
from airflow_kstreams.streams.runtime.pipeline.room import Room
from airflow_kstreams.streams.runtime.pipeline.stage_runner import StageRunner
from airflow_kstreams.streams.runtime.pipeline.staged_topology import NodeCallbacks, StagedTopology

#: Records chosen between two looks at what may be released.
_CHOSEN_AT_ONCE = 64


class Lanes:
    """The lives of one task.

    :param group: its record queues.
    :param topology: what the lives pass through.
    :param caller: runs their calls.
    :param room: how much may be under way.
    :param points_every: records between two commit points, 0 for none.
    :param released: records released by earlier attempts.
    :param read: counts what is released, by topic.
    :ivar commit_requested: whether the record released last asked for a commit.
    :ivar at_point: whether it is a commit point, and nothing of the task's own has come behind it.
    :ivar parked: node -> records in its retry topic, those of released lives.
    :ivar hungry: whether there is room for more records than have been fetched.
    """

    def __init__(
        self,
        group: PartitionGroup,
        topology: StagedTopology,
        caller: Caller,
        room: Room,
        *,
        points_every: int,
        released: int,
        read: dict[str, int],
    ) -> None:
        self._group = group
        self._topology = topology
        self._runner = StageRunner(topology)
        self._context = topology.context
        self._last = topology.stages.last
        self._caller = caller
        self._running = 0
        #: Lives under way in which parked records are called again.
        self._again = 0
        self._retries = topology.retries
        self.parked: dict[str, int] = {}
        self._room = room
        self._points_every = points_every
        self._chosen = released
        self._read = read
        self._queues: list[deque[Life]] = [deque() for _ in range(self._last)]
        self._ticking: set[int] = set()
        self._ticked = self._point_asked = self._point_comes = False
        self._moves = self._moves_seen = 0
        self._changes = ReleasedChanges([name for stores in topology.early_stores for name in stores])
        self.commit_requested = False
        self.at_point = points_every > 0 and released % points_every == 0
        self.hungry = False
        topology.crossings.start = self._start

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._room.lives

    def unreleased(self) -> Iterator[tuple[TopicPartition, int]]:
        """Yield for every record under way its partition and the offset behind it."""
        for queue in self._queues:
            for life in queue:
                if life.taken is not None:
                    yield life.taken.partition, life.taken.position

    @property
    def at_cut(self) -> bool:
        """Whether a commit may come now: all that is cached up to the record released last was emitted, or
        can be.
        """
        return not self._topology.cached or self.at_point or self.idle

    @property
    def sated(self) -> bool:
        """Whether there was no room for another record when one was to be chosen last."""
        return not self.hungry and not self._may_choose()

    @property
    def held_up(self) -> bool:
        """Whether only parked records bring the task on: all else is processed, or so much is parked that no
        more is chosen.
        """
        return self._retries.parks and (self._retries.full or self._group.complete)

    @property
    def parked_due_ms(self) -> int | None:
        """When the next parked record is due, epoch milliseconds; None when none is parked."""
        return self._retries.parked_due_ms if any(self.parked.values()) else None

    def moved(self) -> bool:
        """Say whether a call has ended since this was asked last."""
        seen, self._moves_seen = self._moves_seen, self._moves
        return seen != self._moves

    def waiting_for(self) -> str:
        """Say, for messages, what the first record under way waits for."""
        for stage in reversed(range(self._last)):
            for life in self._queues[stage]:
                return life.waits_for()
        return "nothing"

    def process(self, limit: int) -> int:
        """Choose what there is room for, and release what is done.

        :param limit: the most records to release; a commit point or a request for a commit ends the call
            earlier.
        :return: how many were released; 0 means that more must be fetched first, that calls take their time,
            or that all is done.
        """
        patience = self._caller.patience_seconds
        ends = time.monotonic() + patience
        released = 0
        while True:
            self._note(self._caller.ended(0.0))
            number, halted = self._advance(limit - released)
            released += number
            if halted or released >= limit:
                self._caller.hurry()
                return released
            again = self._call_again()
            if self._choose() and not again:
                self._caller.hurry()
                continue
            wait = min(patience, ends - time.monotonic())
            if again and wait > 0:
                continue
            if released or self.idle or wait <= 0:
                self._caller.hurry()
                return released
            self._await_call(wait)

    def settle(self) -> None:
        """Wait until nothing is under way."""
        while not self.idle:
            self._repeat_in_place()
            self._await_call(min(1.0, self._caller.patience_seconds))
            self._advance(sys.maxsize, halting=False)

    def load(self) -> NodeCallbacks:
        """Take in what is parked, once the stores are restored.

        :return: what the nodes have to do with it in the first step.
        """
        sooner = self._retries.load()
        self.parked = self._retries.parked
        return sooner

    def stays(self) -> bool:
        """Say whether the task is to stay though its inputs are at their stop.

        What timers have brought about may be under way: that is waited for when the task closes, or timers
        would keep it for ever.
        """
        return self._again > 0 or self._retries.stays()

    def step(self, *callbacks: NodeCallbacks, timestamp_ms: int | None = None) -> None:
        """Let nodes do something between two records, and wait until all that follows from it is done.

        :param callbacks: each after the one before, in topological order of the nodes.
        :param timestamp_ms: of what they forward; that of the last record unless given.
        """
        self.settle()
        context = self._context
        context.record, context.replaced_headers = None, None
        if timestamp_ms is not None:
            context.timestamp_ms = timestamp_ms
        life = Life(None)
        life.timestamp_ms = context.timestamp_ms
        # What a node that calls does of its own accord belongs where it gives.
        stages = self._topology.stages.gives_in
        life.entries = [
            Entry(stages[node], context, callback, ()) for each in callbacks for node, callback in each
        ]
        self._enter(life)
        self.settle()

    def pass_time(self, moment_ms: int) -> None:
        """Bring stream time to a moment, on each topic and in each stage, and wait until all that follows is
        done.
        """
        context = self._context
        for topic in self._topology.clocks[0].topics:
            self.settle()
            context.record, context.replaced_headers = None, None
            context.timestamp_ms = moment_ms
            life = Life(None, topic, moment_ms)
            life.timestamp_ms = moment_ms
            self._enter(life)
        self.settle()

    def flush(self) -> None:
        """Emit what is cached, unless that was done with the record released last."""
        if self._topology.cached and self.idle:
            at_point = self.at_point
            self.step(self._topology.flushes)
            self.at_point = at_point

    def ask_for_point(self) -> None:
        """Make the next record chosen a commit point; if none will be, have one behind what is under way."""
        if not self.held_up:
            self._point_asked = True
        elif not self._point_comes:
            self._point_comes = True
            life = Life(None)
            life.point, life.timestamp_ms = True, self._context.timestamp_ms
            self._enter(life)

    def tick(self) -> bool:
        """Let the wall-clock timers fire that are due, each in its stage, behind what is under way.

        :return: whether any has fired, or a parked record was called again, since this was asked last.
        """
        due = [
            stage
            for stage, clock in enumerate(self._topology.wall_clocks)
            if stage not in self._ticking and clock.due()
        ]
        if due:
            self._ticking.update(due)
            life = Life(None)
            life.entries = [Entry(stage, self._context, self._fire, (stage,)) for stage in due]
            self._enter(life)
        ticked, self._ticked = self._ticked, False
        return ticked

    def keeps_changes(self, store: str) -> bool:
        """Say whether the released changes of a store are here: of any that is not in the last stage."""
        return self._changes.keeps(store)

    def drain_changes(self, store: str) -> Iterator[Change]:
        """Return the released changes of a store of an earlier stage, and forget them."""
        return self._changes.drain(store)

    def undrained_count(self, store: str) -> int:
        """Return how many released changes of a store no commit has logged."""
        return self._changes.count(store)

    def _choose(self) -> bool:
        """Begin the records that there is room for, some at a time, and say whether there were any."""
        chosen, room, runner = 0, self._room, self._runner
        self.hungry = False
        while chosen < _CHOSEN_AT_ONCE and self._may_choose():
            run = self._group.choose(_CHOSEN_AT_ONCE - chosen)
            if run is None:
                self.hungry = True
                break
            partition, records, timestamps_ms, times_ms = run
            for record, timestamp_ms, time_ms in zip(
                records, timestamps_ms, times_ms or repeat(None), strict=False
            ):
                self._begin(partition, record, timestamp_ms, time_ms)
                chosen += 1
                if not room.left or runner.failing:
                    break
        return chosen > 0

    def _may_choose(self) -> bool:
        return self._room.left and not (self._runner.failing or self._retries.full)

    def _begin(
        self, partition: TopicPartition, record: Record, timestamp_ms: int, time_ms: int | None
    ) -> None:
        """Begin one of the records chosen, and wait for the calls that it makes in the first stage.

        :param time_ms: stream time of its topic, if the task goes by it.
        """
        taken, topic = self._group.take(partition), partition.topic
        life = Life(taken, topic) if time_ms is None else Life(taken, topic, time_ms)
        self._chosen += 1
        if self._points_every:
            life.point = self._point_asked or self._chosen % self._points_every == 0
            self._point_asked = self._point_asked and not life.point
        life.timestamp_ms = timestamp_ms
        self._context.replaced_headers = None
        self._room.enter(life, record)
        times_ms = () if time_ms is None else (time_ms,)
        self._run(life, 0, RecordRun(partition, (record,), (timestamp_ms,), times_ms))
        self._queues[0].append(life)

    def _enter(self, life: Life) -> None:
        """Let a step of the task's own begin."""
        self._room.enter(life)
        self._run(life, 0)
        self._queues[0].append(life)

    def _run(self, life: Life, stage: int, run: RecordRun | None = None) -> None:
        before = life.size_bytes
        self._runner.run(life, stage, run)
        self._room.size_bytes += life.size_bytes - before

    def _start(self, call: Call) -> None:
        self._running += 1
        self._caller.start(call)

    def _await_call(self, seconds: float) -> None:
        """Wait until a call has ended or is to be repeated, for some time at most."""
        if self._running:
            self._note(self._caller.ended(seconds))
        else:
            self._retries.await_in_place(seconds)

    def _note(self, ended: Sequence[Call]) -> None:
        for call in ended:
            if call.again is None:
                self._room.ended(call)
                continue
            for done in call.again.node.ended(call):
                life = self._room.ended(done)
                if done.again.entry is not None:
                    self._run(life, 0)
                    self._queues[0].append(life)
        self._moves += len(ended)
        self._running -= len(ended)

    def _call_again(self) -> bool:
        """Make the calls again that are due, as far as there is room, and say whether there were any."""
        if self._runner.failing:
            return False
        begun = self._repeat_in_place()
        while self._room.left and (call := self._retries.next_parked()) is not None:
            self._room.enter(call.owner)
            self._again += 1
            self._start(call)
            begun += 1
        self._moves += begun
        return begun > 0

    def _repeat_in_place(self) -> int:
        begun = 0
        while (call := self._retries.next_in_place()) is not None:
            self._start(call)
            begun += 1
        return begun

    def _advance(self, limit: int, *, halting: bool = True) -> tuple[int, bool]:
        """Move lives on, in order.

        :return: how many records were released, and whether at the last one a commit may have to come.
        """
        released = 0
        for stage in range(self._last):
            queue = self._queues[stage]
            ends = stage + 1 == self._last
            while queue and not queue[0].pending and released < limit:
                life = queue.popleft()
                self._run(life, stage + 1)
                if not ends:
                    self._queues[stage + 1].append(life)
                    continue
                self._release(life)
                released += life.taken is not None
                if halting and (life.point or life.commit):
                    return released, True
        return released, False

    def _release(self, life: Life) -> None:
        self._room.leave(life)
        if life.counts:
            self._topology.counters.add(life.counts)
        if life.changes:
            self._changes.add(life.changes)
        if life.commit:
            self.commit_requested = True
        if life.parked:
            for node, change in life.parked.items():
                self.parked[node] += change
        self._ticked = self._ticked or life.again
        self._again -= life.again
        self.at_point = life.point
        if life.taken is None:
            self._point_comes = self._point_comes and not life.point
        else:
            self._group.release(life.taken)
            self._read[life.topic] += 1

    def _fire(self, stage: int) -> None:
        self._ticking.discard(stage)
        self._ticked = self._topology.wall_clocks[stage].fire() or self._ticked
