"""Keeps the stream time of a task, one clock per source topic, and fires the timers of its nodes, by stream
time and by the wall clock.

Rule (KIP-28, "Stream Time"): a topic's stream time is the smallest partition time of its unfinished
partitions and never goes back; a node inherits the stream time of its parents, and where several meet, the
larger one. So a node's stream time is the largest among the topics that lead to it. Partition times are the
business of ``partition_group.py``; they arrive here with each record.

What time brings comes in this order:

1. Time passes (:meth:`StreamClock.pass_time`). Before a record that brings stream time further is processed,
   windows close and joins give up waiting: each timer that gives something calls back at its own moment, with
   stream time there and no further. The earliest moment comes first, then topological order. A callback may
   forward, and so let others become due on the way: a window that takes the element closes at its own moment.
2. Stream time is the record's, and the record is processed.
3. Punctuations call back (:meth:`StreamClock.fire`), behind the record that brought stream time to their
   multiple, as in Kafka Streams: the earliest first. Nothing below a processor goes by stream time ahead of a
   repartition topic, as it may change keys, so no result is late by that.

So what a timer gives is judged, by windows and joins below, at the moment at which it is due: not at that of
the record that ends a quiet time. That makes results of step 1 independent of where runs end: the end of
a run brings stream time to a moment in the same steps (``runtime/execution.py``), all topics together, and
what is due by then comes ahead of the records behind it, in one run as in two.

What is only cleared away goes with the next moment at which something is given, or with the record, and
makes no moments of its own: a join by seconds has tens of thousands of them in a quiet day. (A table of
windows with a cache may emit as it clears away. Its keys are windows, so there, too, a topic lies ahead of
what goes by time.) Where a single node goes by stream time, nothing can see the moments in between: then one
callback serves all of them (:attr:`StreamClock.steps`). What it gives, and its order, are the same.

A topic without a record yet takes the stream time of the others first: what was due before the task's first
record is not made up for.

Crash argument: a record and what time brings ahead of it are one step, between whose parts no commit comes.
Moments depend on what stores hold, which is restored, and on the stream time of records.

Rule of the wall clock: a timer calls back once when its moment has come, however many periods have passed
since, and the next moment lies on its own grid; as in Kafka Streams. The host looks at the clock between
records. What depends on the wall clock is not the same when a run is repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from airflow_kstreams.streams.graph.services import NEVER
from airflow_kstreams.streams.records.record_context import TaskRecordContext

#: Whether a timer calls back behind the record, when it is due, and the place of its node in topological
#: order: timers call back in this order.
Moment = tuple[bool, int, int]
#: Behind every moment.
AT_LAST: Moment = (True, NEVER, 0)


class StreamClock:
    """The clocks and timers of one task.

    :param topics: the task's source topics, real names.
    :param order: names of the nodes in topological order.
    :ivar steps: whether time passes through the moments of timers one by one.
    :ivar moment: of the timer that calls back, while it does.
    """

    def __init__(
        self, topics: Iterable[str], order: Sequence[str], record_context: TaskRecordContext
    ) -> None:
        self.topics = {topic: TopicClock(topic) for topic in topics}
        self._rank = {node: number for number, node in enumerate(order)}
        #: By place.
        self._timers: list[NodeTimer] = []
        self._record_context = record_context
        self.steps = True
        self.moment: Moment | None = None

    def advance(self, topic: str, time_ms: int) -> None:
        """Bring a topic's stream time to at least a moment, e.g. the one an earlier run left."""
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
        """The next moment to pass on the way to where topics are brought: the first that a run is worth, else
        the last if anything is due.
        """
        due = [timer for timer in self._timers if timer.due_ms <= timer.target_ms]
        return min(
            (timer.needed_ms for timer in due if timer.needed_ms <= timer.target_ms),
            default=max((timer.target_ms for timer in due), default=NEVER),
        )

    @property
    def next_needed_ms(self) -> int:
        """The first moment for which a run is worth it though no record comes."""
        return min((timer.needed_ms for timer in self._timers), default=NEVER)

    def aim_at(self, to_ms: Mapping[str, int]) -> None:
        """Take note of the moments to which topics are brought, one moment of a timer after the other."""
        for topic, time_ms in to_ms.items():
            self.topics[topic].target_ms = time_ms

    def bring_to(self, to_ms: Mapping[str, int]) -> None:
        """Bring topics' stream time to at least these moments; timers wait until they are asked."""
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

        :param behind: whether it calls back behind the record that brings stream time to its moment.
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
        """Bring a topic's stream time to a moment, ahead of a record, through the moments that lie before it.

        :param before: it comes to this moment at most, and leaves alone what is due at it or after it.
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
        """Call back whatever is due, then set the clocks for what comes next.

        :param before: leaves alone what comes at this moment or after it.
        """
        self._call_back(before)
        self._look_again()

    def _call_back(self, before: Moment, *, ahead: bool = False) -> None:
        """Call back what is due before a moment.

        :param ahead: whether a record is still to come: leaves alone what calls back behind it.
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
        """Return the timer to call back next, and the moment at which it gives something, whatever is to be
        cleared away before that.

        :param latest_ms: the largest stream time of a topic.
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

    :ivar time_ms: epoch milliseconds, -1 before the first record.
    :ivar due_ms: no timer is due while ``time_ms`` lies below this.
    :ivar target_ms: the moment to which it is brought behind the last record, -1 before that.
    :ivar timers: of the nodes that the topic leads to, by place.
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
        #: Whether it calls back behind the record, and its node's place in topological order.
        self.place = place
        self.due_ms = self.needed_ms = NEVER
        self.stream_time = stream_time
        self.callback = callback
        self._clocks = clocks
        self._kept_in = kept_in

    @property
    def target_ms(self) -> int:
        """The moment to which the node's stream time is brought behind the last record, -1 before that."""
        return max(clock.target_ms for clock in self._clocks)

    def reached_ms(self) -> int:
        """Return the node's stream time, or the moment to which it is brought."""
        return max(self.stream_time(), self.target_ms)

    def set(self, due_ms: int | None, needed_ms: int | None = None) -> None:
        """Arm the timer for a moment; None disarms it."""
        self.due_ms = NEVER if due_ms is None else due_ms
        self.needed_ms = self.due_ms if needed_ms is None else needed_ms
        # Where several topics meet, the moment may be reached by the other one's time: then look at once.
        look_ms = self.due_ms if self.due_ms > self.stream_time() else -1
        for clock in self._clocks:
            if look_ms < clock.due_ms:
                clock.due_ms = look_ms

    def end(self) -> None:
        """Disarm the timer for good, and have it forgotten."""
        self.due_ms = self.needed_ms = NEVER
        for timers in self._kept_in:
            timers.remove(self)


def _next_given_ms(clock: TopicClock) -> int:
    """Return the first moment of a topic at which a timer gives something ahead of a record."""
    first_ms = NEVER
    for timer in clock.timers:
        if timer.needed_ms < first_ms and not timer.place[0]:
            first_ms = timer.needed_ms
    return first_ms


class TaskWallClock:
    """The wall clock as one task sees it, and the timers on it.

    :param now_ms: the time, epoch milliseconds.
    """

    def __init__(self, now_ms: Callable[[], int], record_context: TaskRecordContext) -> None:
        self.now_ms = now_ms
        self._record_context = record_context
        self._timers: list[WallClockTimer] = []

    def every(self, interval_ms: int, callback: Callable[[int], None]) -> Callable[[], None]:
        """Call back every so often, first when one interval has passed.

        :param callback: gets the wall-clock time.
        :return: cancels the timer; may be called twice.
        """
        timer = WallClockTimer(interval_ms, self.now_ms() + interval_ms, callback)
        self._timers.append(timer)

        def cancel() -> None:
            if timer in self._timers:
                self._timers.remove(timer)

        return cancel

    def due(self) -> bool:
        """Return whether anything is due."""
        if not self._timers:
            return False
        now_ms = self.now_ms()
        return any(timer.due_ms <= now_ms for timer in self._timers)

    def fire(self) -> bool:
        """Call back whatever is due, and say whether anything was."""
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
    """A repeating timer.

    :ivar due_ms: when it calls back next, epoch milliseconds.
    """

    interval_ms: int
    due_ms: int
    callback: Callable[[int], None]


def system_clock_ms() -> int:
    """Return the machine's time, epoch milliseconds."""
    return time.time_ns() // 1_000_000
