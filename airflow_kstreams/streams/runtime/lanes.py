"""Takes the records of a task with asynchronous nodes through its stages, and releases them in input order.

Rule: records are chosen in the order of ``partition_group.py`` while there is room; each begins in stage 0 at
once. A record enters the next stage when it is the first of its stage and all calls that it made there have
ended. With the last stage it is released: what it wrote, changed and counted is part of the next commit, and
the committable offset moves behind it. A commit point, and a commit that user code asked for, are part of the
life of their record: tables emit in it, each in its stage, behind all else that the record brought about.

Invariant: between two releases, everything that a commit would hold is as of the last record released.

Crash argument: ``docs/internals/async.md``. Nothing of a record leaves the task before its release, and all
of it leaves in one step of the task's own thread; stores of earlier stages are restored from changelogs that
hold released changes only.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from airflow_kstreams.streams.calls.call import Call, Station
from airflow_kstreams.streams.calls.caller import Caller
from airflow_kstreams.streams.errors import KStreamsError, TopologyError
from airflow_kstreams.streams.graph.stages import Stages
from airflow_kstreams.streams.record_counts import Counters
from airflow_kstreams.streams.records.partition_group import PartitionGroup, RecordRun
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.records.stream_clock import StreamClock
from airflow_kstreams.streams.records.wall_clock import TaskWallClock
from airflow_kstreams.streams.runtime.life import Crossings, Entry, Life
from airflow_kstreams.streams.runtime.value_sizes import size_of
from airflow_kstreams.streams.settings import ApplicationSettings

#: Records chosen between two looks at what may be released.
_CHOSEN_AT_ONCE = 64
#: Lives for each call that may run, unless the user sets their number: a slow one does not stop the rest.
_WAITING_PER_CALL = 20
#: Key, value or None, timestamp.
Change = tuple[bytes, bytes | None, int]
#: What each node does when something happens, in topological order.
NodeCallbacks = Sequence[tuple[str, Callable[[], None]]]


class Room(NamedTuple):
    """How much may be under way.

    :param records: lives.
    :param size_bytes: of what they hold.
    """

    records: int
    size_bytes: int


def room_for(stations: Sequence[Station], settings: ApplicationSettings) -> Room:
    """Return how much may be under way in a task with these asynchronous nodes."""
    most = max((station.max_in_flight for station in stations), default=1)
    return Room(settings.max_waiting_results or _WAITING_PER_CALL * most, settings.max_waiting_bytes)


class StagedTopology(NamedTuple):
    """What lanes need of a bound subtopology.

    :param clocks: stream time of each stage.
    :param wall_clocks: wall-clock timers of each stage.
    :param early_stores: the logged stores of each stage but the last, by name.
    :param cached: node -> stage, of the nodes that emit at commit points.
    :param flushes: emit at commit points.
    :param requests: has ``commit_requested``, whether user code asks for a commit.
    :param begin: runs a record through the first stage.
    """

    stages: Stages
    crossings: Crossings
    context: TaskRecordContext
    clocks: Sequence[StreamClock]
    wall_clocks: Sequence[TaskWallClock]
    early_stores: Sequence[Mapping[str, Any]]
    counters: Counters
    cached: Mapping[str, int]
    flushes: NodeCallbacks
    requests: Any
    begin: Callable[[RecordRun], None]


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
    :ivar at_point: whether it is a commit point.
    :ivar failing: whether a record under way is going to fail the task.
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
        self._crossings = topology.crossings
        self._context = topology.context
        self._last = topology.stages.last
        self._caller = caller
        self._room = room
        self._points_every = points_every
        self._chosen = released
        self._read = read
        self._queues: list[deque[Life]] = [deque() for _ in range(self._last)]
        self._size_bytes = 0
        self._under_way = 0
        self._ticking: set[int] = set()
        self._ticked = self._point_asked = False
        self._moves = self._moves_seen = 0
        #: Store -> its released changes that no commit has logged.
        self._changes: dict[str, dict[bytes, tuple[bytes | None, int]]] = {}
        self.commit_requested = False
        self.at_point = points_every > 0 and released % points_every == 0
        self.failing = self.hungry = False
        topology.crossings.start = caller.start

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._under_way

    @property
    def at_cut(self) -> bool:
        """Whether a commit may come now: all that is cached up to the record released last was emitted, or
        can be.
        """
        return not self._topology.cached or self.at_point or self.idle

    def moved(self) -> bool:
        """Say whether a call has ended since this was asked last."""
        seen, self._moves_seen = self._moves_seen, self._moves
        return seen != self._moves

    def waiting_for(self) -> str:
        """Say, for messages, what the first record under way waits for."""
        for stage in reversed(range(self._last)):
            for life in self._queues[stage]:
                nodes = [entry.arguments[0].station.node for entry in life.entries if _is_call(entry)]
                where = next((e.record for e in life.entries if e.record is not None), None)
                place = (
                    f"{where.topic()}-{where.partition()}@{where.offset()}"
                    if where is not None
                    else "no record"
                )
                return f"{place} waits for {life.pending} calls of {', '.join(sorted({*nodes})) or 'no node'}"
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
                return released
            if self._choose():
                continue
            wait = min(patience, ends - time.monotonic())
            if released or self.idle or wait <= 0:
                return released
            self._note(self._caller.ended(wait))

    def settle(self) -> None:
        """Wait until nothing is under way."""
        while not self.idle:
            self._note(self._caller.ended(min(1.0, self._caller.patience_seconds)))
            self._advance(sys.maxsize, halting=False)

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
        of = self._topology.stages.of
        life.entries = [
            Entry(of[node], context, callback, ()) for each in callbacks for node, callback in each
        ]
        self._under_way += 1
        self._run(life, 0)
        self._wait(life, 0)
        self.settle()

    def flush(self) -> None:
        """Emit what is cached, unless that was done with the record released last."""
        if self._topology.cached and self.idle:
            self.step(self._topology.flushes)

    def ask_for_point(self) -> None:
        """Make the next record chosen a commit point."""
        self._point_asked = True

    def tick(self) -> bool:
        """Let the wall-clock timers fire that are due, each in its stage, behind what is under way.

        :return: whether any has fired since this was asked last.
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
            self._under_way += 1
            self._run(life, 0)
            self._wait(life, 0)
        ticked, self._ticked = self._ticked, False
        return ticked

    def drain_changes(self, store: str) -> Iterator[Change] | None:
        """Return the released changes of a store of an earlier stage; None if it is in the last."""
        if not any(store in stores for stores in self._topology.early_stores):
            return None
        changed = self._changes.pop(store, {})
        return ((key, value, timestamp_ms) for key, (value, timestamp_ms) in changed.items())

    def undrained_count(self, store: str) -> int:
        """Return how many released changes of a store no commit has logged."""
        return len(self._changes.get(store, ()))

    def _choose(self) -> bool:
        """Begin the records that there is room for, some at a time, and say whether there were any."""
        chosen = 0
        self.hungry = False
        while chosen < _CHOSEN_AT_ONCE and not self.failing and self._has_room():
            run = self._group.choose(1)
            if run is None:
                self.hungry = True
                break
            self._begin(run)
            chosen += 1
        return chosen > 0

    def _has_room(self) -> bool:
        return not self._under_way or (
            self._under_way < self._room.records and self._size_bytes < self._room.size_bytes
        )

    def _begin(self, run: RecordRun) -> None:
        time_ms = run.stream_times_ms[0] if run.stream_times_ms else -1
        life = Life(self._group.take(run.partition), run.partition.topic, time_ms)
        self._chosen += 1
        if self._points_every:
            life.point = self._point_asked or self._chosen % self._points_every == 0
            self._point_asked = self._point_asked and not life.point
        life.timestamp_ms = run.timestamps_ms[0]
        size_bytes = _record_bytes(run.records[0])
        life.size_bytes += size_bytes
        self._size_bytes += size_bytes
        self._under_way += 1
        self._context.replaced_headers = None
        self._run(life, 0, run)
        self._wait(life, 0)

    def _wait(self, life: Life, stage: int) -> None:
        """Let a life wait for its calls in a stage, or go on at once."""
        self._queues[stage].append(life)

    def _note(self, ended: Sequence[Call]) -> None:
        for call in ended:
            life = call.owner
            life.pending -= 1
            size = size_of(call.result)
            life.size_bytes += size
            self._size_bytes += size
        self._moves += len(ended)

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
                    self._wait(life, stage + 1)
                    continue
                self._release(life)
                released += life.taken is not None
                if halting and (life.point or life.commit):
                    return released, True
        return released, False

    def _run(self, life: Life, stage: int, chosen: RecordRun | None = None) -> None:
        """Do what a stage does for a life."""
        crossings, topology, held_before = self._crossings, self._topology, life.size_bytes
        crossings.life, crossings.stage, crossings.clock = life, stage, topology.clocks[stage]
        try:
            entries, life.entries = life.entries, []
            crossings.entries = life.entries
            clock = topology.clocks[stage]
            topic_clock = clock.topics.get(life.topic)
            if topic_clock is not None and life.time_ms > topic_clock.time_ms:
                topic_clock.time_ms = life.time_ms
            if chosen is not None:
                topology.begin(chosen)
            self._do([entry for entry in entries if entry.moment is None], stage)
            self._context.timestamp_ms = life.timestamp_ms
            self._do_timed([entry for entry in entries if entry.moment is not None], stage)
            if topic_clock is not None and topic_clock.time_ms >= topic_clock.due_ms:
                clock.fire()
            self._at_end(life, stage)
        except KStreamsError:
            raise
        except Exception as error:
            if stage == self._last:
                raise
            # What comes before the record is released, and committed if that is due, before the task fails.
            self.failing = True
            crossings.later(self._last, _fail, error)
        self._take_effects(life, stage)
        self._size_bytes += life.size_bytes - held_before

    def _do(self, entries: Sequence[Entry], stage: int) -> None:
        crossings, context = self._crossings, self._context
        later = crossings.entries
        for entry in entries:
            if entry.stage == stage:
                crossings.moment = entry.moment
                entry.run(context)
            else:
                later.append(entry)
        crossings.moment = None
        context.replaced_headers = None

    def _do_timed(self, entries: Sequence[Entry], stage: int) -> None:
        """Do what timers of earlier stages brought about, among the timers of this one in the order of their
        moments.
        """
        clock = self._topology.clocks[stage]
        for entry in entries:
            if entry.moment is not None:
                clock.fire(entry.moment)
            self._do([entry], stage)
            self._context.timestamp_ms = self._crossings.life.timestamp_ms

    def _at_end(self, life: Life, stage: int) -> None:
        """Do what a stage does behind a record: emit what waited for a commit point."""
        topology, context = self._topology, self._context
        of = topology.stages.of
        at_end, life.at_end = life.at_end, []
        self._crossings.entries = life.at_end
        requested = topology.requests.commit_requested
        if requested:
            topology.requests.commit_requested = False
            life.commit = True
        if (requested and not life.point) or (life.point and stage == 0):
            self._refuse_unready_flush(stage)
            life.point = True
            context.record = None
            at_end += [
                Entry(of[node], context, flush, ()) for node, flush in topology.flushes if of[node] >= stage
            ]
        self._do(at_end, stage)
        if topology.requests.commit_requested:
            topology.requests.commit_requested = False
            life.commit = True

    def _refuse_unready_flush(self, stage: int) -> None:
        ahead = [node for node, at in self._topology.cached.items() if at < stage]
        if ahead:
            raise TopologyError(
                f"a processor below an asynchronous node asks for a commit, and {ahead[0]!r} above that node "
                "emits at commit points: it has seen later records by now",
                fix="give the table's store cached=False, or ask for the commit above the asynchronous node",
            )

    def _take_effects(self, life: Life, stage: int) -> None:
        """Keep what a stage before the last has changed and counted until the life is released."""
        topology = self._topology
        counts = topology.counters.take_early()
        if counts:
            life.counts += counts
        if stage == self._last:
            return
        for name, store in topology.early_stores[stage].items():
            if store.undrained_count():
                changes = list(store.drain_changes())
                life.changes.append((name, changes))
                life.size_bytes += sum(len(key) + len(value or b"") for key, value, _ in changes)

    def _release(self, life: Life) -> None:
        self._under_way -= 1
        self._size_bytes -= life.size_bytes
        self._topology.counters.add(life.counts)
        for name, changes in life.changes:
            merged = self._changes.setdefault(name, {})
            for key, value, timestamp_ms in changes:
                merged[key] = (value, timestamp_ms)
        if life.commit:
            self.commit_requested = True
        if life.taken is not None:
            self._group.release(life.taken)
            self._read[life.topic] += 1
            self.at_point = life.point

    def _fire(self, stage: int) -> None:
        self._ticking.discard(stage)
        self._ticked = self._topology.wall_clocks[stage].fire() or self._ticked


def _record_bytes(record: Any) -> int:
    raw = getattr(record, "raw", record)
    return len(raw.key() or b"") + len(raw.value() or b"")


def _fail(error: Exception) -> None:
    raise error


def _is_call(entry: Entry) -> bool:
    return bool(entry.arguments) and hasattr(entry.arguments[0], "station")
