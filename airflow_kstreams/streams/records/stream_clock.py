"""Keeps the stream time of a task, one clock per source topic, and fires the timers of its nodes, by stream
time and by the wall clock.

Rule (KIP-28, "Stream Time"): a topic's stream time is the smallest partition time of its unfinished
partitions and never goes back; a node inherits the stream time of its parents, and where several meet, the
larger one. So a node's stream time is the largest among the topics that lead to it. Partition times are the
business of ``partition_group.py``; they arrive here with each record.

Timers call back in this order:

1. Time passes (:meth:`StreamClock.pass_time`). Before a record that brings stream time further is processed,
   windows close and joins give up waiting: each timer that gives something calls back at its own moment, with
   stream time there and no further. The earliest moment comes first, then topological order. A callback may
   forward, and so let others become due on the way: a window that takes the element closes at its own moment.
2. Stream time is the record's, and the record is processed.
3. Punctuations call back (:meth:`StreamClock.fire`), behind the record that brought stream time to their
   multiple, as in Kafka Streams: the earliest first. Nothing below a processor goes by stream time ahead of a
   repartition topic, as it may change keys, so no result is late by that.

So windows and joins below judge the results of a timer by its own due time, not by the time of the record
that ends a quiet period. That makes results of step 1 independent of where runs end: the end of a run brings
stream time forward in the same steps (``runtime/execution.py``), all topics together, and the timers due by
then come ahead of the records behind it, in one run as in two.

A timer that only deletes expired entries calls back with the next moment at which a timer gives a result, or
with the record, and makes no moments of its own: a join by seconds would have tens of thousands of them in a
quiet day. (A table of windows with a cache may emit as it deletes. Its keys are windows, so there, too, a
topic lies ahead of the nodes that go by time.) Where a single node goes by stream time, no other node can see
the moments in between: then one callback serves all of them (:attr:`StreamClock.steps`). Its results, and
their order, are the same.

A topic without a record yet takes the stream time of the others first: a timer that would have been due
before the task's first record does not call back for that time.

Crash argument: a record and the callbacks ahead of it are one step, between whose parts no commit comes.
Moments depend on the content of stores, which is restored, and on the stream time of records.

Rule of the wall clock: a timer calls back once when its moment has come, however many periods have passed
since, and the next moment lies on its own grid; as in Kafka Streams. The host looks at the clock between
records. Results that depend on the wall clock differ when a run is repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from airflow_kstreams.streams.graph.services import NEVER
from airflow_kstreams.streams.records.record_context import TaskRecordContext

#: (True if the timer calls back behind the record, its due time in epoch milliseconds, the place of its node
#: in topological order): timers call back in the order of these.
Moment = tuple[bool, int, int]
#: A moment behind every other.
AT_LAST: Moment = (True, NEVER, 0)


class StreamClock:
    """The clocks and timers of one task.

    :param topics: the task's source topics, real names.
    :param order: names of the nodes in topological order.
    :param record_context: the record being processed.
    :ivar steps: True if time passes through the moments of timers one by one.
    :ivar moment: moment of the timer that is calling back; None at other times.
    """

    def __init__(
        self, topics: Iterable[str], order: Sequence[str], record_context: TaskRecordContext
    ) -> None:
        self.topics = {topic: TopicClock(topic) for topic in topics}
        self._rank = {node: number for number, node in enumerate(order)}
        #: Sorted by place.
        self._timers: list[NodeTimer] = []
        self._record_context = record_context
        self.steps = True
        self.moment: Moment | None = None

    def advance(self, topic: str, time_ms: int) -> None:
        """Bring a topic's stream time to at least ``time_ms``, e.g. to the one that a run committed."""
        clock = self.topics[topic]
        clock.time_ms = max(clock.time_ms, time_ms)

    @property
    def latest_ms(self) -> int:
        """The largest stream time of a topic, -1 before the first record."""
        latest_ms = -1
        for clock in self.topics.values():
            if clock.time_ms > latest_ms:
                latest_ms = clock.time_ms
        return latest_ms

    @property
    def next_moment_ms(self) -> int:
        """The next time, epoch milliseconds, at which to stop on the way to the target times of
        :meth:`aim_at`: the first for which a run is worth it, else the last if any timer is due;
        :data:`NEVER` if none is.
        """
        due = [timer for timer in self._timers if timer.due_ms <= timer.target_ms]
        return min(
            (timer.needed_ms for timer in due if timer.needed_ms <= timer.target_ms),
            default=max((timer.target_ms for timer in due), default=NEVER),
        )

    @property
    def next_needed_ms(self) -> int:
        """The first time, epoch milliseconds, for which a run is worth it though no record comes."""
        return min((timer.needed_ms for timer in self._timers), default=NEVER)

    def aim_at(self, to_ms: Mapping[str, int]) -> None:
        """Set the times to which topics are brought, step by step.

        :param to_ms: topic -> stream time, epoch milliseconds.
        """
        for topic, time_ms in to_ms.items():
            self.topics[topic].target_ms = time_ms

    def bring_to(self, to_ms: Mapping[str, int]) -> None:
        """Bring topics' stream time to at least these times; no timer calls back here.

        :param to_ms: topic -> stream time, epoch milliseconds.
        """
        for topic, time_ms in to_ms.items():
            self.advance(topic, time_ms)

    def node_time(self, topics: Iterable[str]) -> Callable[[], int]:
        """Return a function that gives the stream time of a node below these topics."""
        first, *others = (self.topics[topic] for topic in sorted(topics))
        if not others:
            return lambda: first.time_ms
        if len(others) == 1:
            second = others[0]
            return lambda: first.time_ms if first.time_ms > second.time_ms else second.time_ms
        clocks = (first, *others)
        return lambda: max(clock.time_ms for clock in clocks)

    def timer(
        self, node: str, topics: Iterable[str], callback: Callable[[int], None], *, behind: bool = False
    ) -> NodeTimer:
        """Make a timer of a node below these topics.

        :param node: name of the node.
        :param topics: topics above the node.
        :param callback: function that takes the node's stream time, epoch milliseconds.
        :param behind: True if it calls back behind the record that brings stream time to its due time.
        """
        names = sorted(topics)
        clocks = [self.topics[topic] for topic in names]
        place = (behind, self._rank[node])
        kept_in = [self._timers, *(clock.timers for clock in clocks)]
        now = self.node_time(names)
        timer = NodeTimer(place, clocks, now, callback, kept_in)
        for timers in kept_in:
            timers.append(timer)
            timers.sort(key=lambda timer: timer.place)
        return timer

    def pass_time(self, clock: TopicClock, to_ms: int, before: Moment = AT_LAST) -> None:
        """Bring a topic's stream time to ``to_ms``, ahead of a record, through the moments of timers before
        it.

        :param before: the moment at which to stop; timers due at it or later do not call back.
        """
        if clock.time_ms < 0:
            clock.time_ms = min(self.latest_ms, to_ms)
        last_ms = min(to_ms, before[1])
        if self.steps and clock.time_ms >= 0:
            while (moment_ms := _next_given_ms(clock)) <= last_ms:
                if moment_ms > clock.time_ms:
                    clock.time_ms = moment_ms
                self._call_back(before, ahead=True)
                if moment_ms == before[1]:
                    break
        if last_ms > clock.time_ms:
            clock.time_ms = last_ms
        if any(timer.due_ms <= clock.time_ms for timer in clock.timers):
            self._call_back(before, ahead=True)
        self._look_again()

    def fire(self, before: Moment = AT_LAST) -> None:
        """Call back the timers that are due, then compute when the next ones are.

        :param before: the moment at which to stop; timers due at it or later do not call back.
        """
        self._call_back(before)
        self._look_again()

    def _call_back(self, before: Moment, *, ahead: bool = False) -> None:
        """Call back the timers that are due before a moment.

        :param ahead: True if a record is still to come; timers that call back behind it are left out.
        """
        record_context = self._record_context
        timestamp_ms = record_context.timestamp_ms
        latest_ms = self.latest_ms
        while (due := self._first_due(latest_ms, ahead=ahead)) is not None:
            moment, timer = due
            if moment >= before:
                break
            self.moment = moment
            record_context.record = None
            record_context.timestamp_ms = now_ms = timer.stream_time()
            timer.due_ms = timer.needed_ms = NEVER
            timer.callback(now_ms)
        self.moment = None
        record_context.timestamp_ms = timestamp_ms

    def _first_due(self, latest_ms: int, *, ahead: bool) -> tuple[Moment, NodeTimer] | None:
        """Return the timer to call back next, with the moment at which it gives a result; None if none is
        due.

        :param latest_ms: the largest stream time of a topic, epoch milliseconds.
        :param ahead: True if a record is still to come; timers that call back behind it are left out.
        """
        first: NodeTimer | None = None
        first_ms = NEVER
        for timer in self._timers:  # by place: the first one of equal ones
            due_ms = timer.due_ms
            if due_ms > latest_ms:
                continue
            if timer.place[0] and (ahead or (first is not None and not first.place[0])):
                break
            now_ms = timer.stream_time()
            if due_ms <= now_ms:
                if timer.needed_ms <= now_ms:
                    due_ms = timer.needed_ms
                if first is None or due_ms < first_ms:
                    first, first_ms = timer, due_ms
        if first is None:
            return None
        behind, rank = first.place
        return (behind, first_ms, rank), first

    def _look_again(self) -> None:
        for clock in self.topics.values():
            due_ms = NEVER
            for timer in clock.timers:
                if timer.due_ms < due_ms:
                    due_ms = timer.due_ms
            clock.due_ms = due_ms


class TopicClock:
    """Stream time of one topic in one task.

    :ivar time_ms: stream time, epoch milliseconds; -1 before the first record.
    :ivar due_ms: stream time below which no timer is due, epoch milliseconds.
    :ivar target_ms: stream time to which the end of a run brings the topic; -1 before that.
    :ivar timers: timers of the nodes below the topic, sorted by place.
    """

    __slots__ = ("due_ms", "target_ms", "time_ms", "timers", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.time_ms = self.target_ms = -1
        self.due_ms = NEVER
        self.timers: list[NodeTimer] = []


class NodeTimer:
    """A timer of one node; see :class:`~airflow_kstreams.streams.graph.services.StreamTimer`."""

    def __init__(
        self,
        place: tuple[bool, int],
        clocks: Sequence[TopicClock],
        stream_time: Callable[[], int],
        callback: Callable[[int], None],
        kept_in: Sequence[list[NodeTimer]],
    ) -> None:
        #: (True if it calls back behind the record, its node's place in topological order).
        self.place = place
        self.due_ms = self.needed_ms = NEVER
        self.stream_time = stream_time
        self.callback = callback
        self._clocks = clocks
        self._kept_in = kept_in

    @property
    def target_ms(self) -> int:
        """The stream time to which the end of a run brings the node, epoch milliseconds; -1 before that."""
        return max(clock.target_ms for clock in self._clocks)

    def reached_ms(self) -> int:
        """Return the node's stream time, or the later time to which it is being brought."""
        return max(self.stream_time(), self.target_ms)

    def set(self, due_ms: int | None, needed_ms: int | None = None) -> None:
        """Arm the timer; see :meth:`StreamTimer.set`."""
        self.due_ms = NEVER if due_ms is None else due_ms
        self.needed_ms = self.due_ms if needed_ms is None else needed_ms
        # Where several topics meet, another one's time may have reached the due time: then look at once.
        look_ms = self.due_ms if self.due_ms > self.stream_time() else -1
        for clock in self._clocks:
            if look_ms < clock.due_ms:
                clock.due_ms = look_ms

    def end(self) -> None:
        """Disarm the timer for good."""
        self.due_ms = self.needed_ms = NEVER
        for timers in self._kept_in:
            timers.remove(self)


def _next_given_ms(clock: TopicClock) -> int:
    """Return the first time, epoch milliseconds, at which a timer below a topic gives a result ahead of a
    record.
    """
    first_ms = NEVER
    for timer in clock.timers:
        if timer.needed_ms < first_ms and not timer.place[0]:
            first_ms = timer.needed_ms
    return first_ms


class TaskWallClock:
    """The wall clock as one task sees it, and the timers on it.

    :param now_ms: function that gives the time, epoch milliseconds.
    :param record_context: the record being processed.
    """

    def __init__(self, now_ms: Callable[[], int], record_context: TaskRecordContext) -> None:
        self.now_ms = now_ms
        self._record_context = record_context
        self._timers: list[WallClockTimer] = []

    def every(self, interval_ms: int, callback: Callable[[int], None]) -> Callable[[], None]:
        """Call back at an interval, first when one interval has passed.

        :param interval_ms: milliseconds from one call to the next.
        :param callback: function that takes the wall-clock time, epoch milliseconds.
        :return: function that cancels the timer; it may be called twice.
        """
        timer = WallClockTimer(interval_ms, self.now_ms() + interval_ms, callback)
        self._timers.append(timer)

        def cancel() -> None:
            if timer in self._timers:
                self._timers.remove(timer)

        return cancel

    def due(self) -> bool:
        """Return True if any timer is due."""
        if not self._timers:
            return False
        now_ms = self.now_ms()
        return any(timer.due_ms <= now_ms for timer in self._timers)

    def fire(self) -> bool:
        """Call back the timers that are due; return True if any was."""
        if not self._timers:
            return False
        now_ms = self.now_ms()
        due = [timer for timer in self._timers if timer.due_ms <= now_ms]
        context = self._record_context
        before = context.timestamp_ms
        for timer in due:
            if timer not in self._timers:  # an earlier callback cancelled it
                continue
            context.record = None
            context.timestamp_ms = now_ms
            timer.due_ms += ((now_ms - timer.due_ms) // timer.interval_ms + 1) * timer.interval_ms
            timer.callback(now_ms)
        context.timestamp_ms = before
        return bool(due)


@dataclass(slots=True)
class WallClockTimer:
    """A repeating timer on the wall clock.

    :ivar interval_ms: milliseconds from one call to the next.
    :ivar due_ms: time of the next call, epoch milliseconds.
    :ivar callback: function that takes the wall-clock time, epoch milliseconds.
    """

    interval_ms: int
    due_ms: int
    callback: Callable[[int], None]


def system_clock_ms() -> int:
    """Return the machine's time, epoch milliseconds."""
    return time.time_ns() // 1_000_000
