"""Stream time of a task: one clock per source topic, and the timers of its nodes.

Rule (KIP-28, "Stream Time"): a topic's stream time is the smallest partition time of its unfinished
partitions and never goes back; a node inherits the stream time of its parents, and where several meet, the
larger one. So a node's stream time is the largest among the topics that lead to it. Partition times are the
business of ``partition_group.py``; they arrive here with each record.

Timers fire after the record that brought their node's stream time to their moment: the earliest moment first,
then in topological order of their nodes, until none is due. A callback may forward, and so let others become
due. That order depends on the records alone.

The end of a run may bring stream time further than records have (``runtime/end_of_run.py``), one moment at
which a timer is due after the other, all topics together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from airflow_kstreams.streams.graph.services import NEVER
from airflow_kstreams.streams.records.record_context import TaskRecordContext

#: When a timer is due, and the place of its node in topological order: timers call back in this order.
Moment = tuple[int, int]
#: Behind every moment.
AT_LAST: Moment = (NEVER, 0)


class TopicClock:
    """Stream time of one topic in one task.

    :ivar time_ms: epoch milliseconds, -1 before the first record.
    :ivar due_ms: no timer is due while ``time_ms`` lies below this.
    """

    __slots__ = ("due_ms", "time_ms", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.time_ms = -1
        self.due_ms = NEVER


class NodeTimer:
    """A timer of one node; see :class:`~airflow_kstreams.streams.graph.services.StreamTimer`."""

    __slots__ = ("_clocks", "_forget", "callback", "due_ms", "needed_ms", "node", "stream_time")

    def __init__(
        self,
        node: str,
        clocks: Sequence[TopicClock],
        stream_time: Callable[[], int],
        callback: Callable[[int], None],
        forget: Callable[[NodeTimer], None],
    ) -> None:
        self.node = node
        self.due_ms = self.needed_ms = NEVER
        self.stream_time = stream_time
        self.callback = callback
        self._clocks = clocks
        self._forget = forget

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
        self._forget(self)

    def reaches(self, clock: TopicClock) -> bool:
        """Say whether a topic's time is part of the node's."""
        return clock in self._clocks


class StreamClock:
    """The clocks and timers of one task.

    :param topics: the task's source topics, real names.
    :param order: names of the nodes in topological order.
    """

    def __init__(
        self, topics: Iterable[str], order: Sequence[str], record_context: TaskRecordContext
    ) -> None:
        self.topics = {topic: TopicClock(topic) for topic in topics}
        self._rank = {node: number for number, node in enumerate(order)}
        self._timers: list[NodeTimer] = []
        self._record_context = record_context
        #: Of the timer that calls back, while it does: when it was due, and its node's rank.
        self.moment: Moment | None = None

    def advance(self, topic: str, time_ms: int) -> None:
        """Bring a topic's stream time to at least a moment, e.g. the one an earlier run left."""
        clock = self.topics[topic]
        clock.time_ms = max(clock.time_ms, time_ms)

    @property
    def latest_ms(self) -> int:
        """The largest stream time of a topic, -1 before the first record."""
        return max((clock.time_ms for clock in self.topics.values()), default=-1)

    @property
    def next_due_ms(self) -> int:
        """The first moment at which a timer is due."""
        return min((timer.due_ms for timer in self._timers), default=NEVER)

    @property
    def next_needed_ms(self) -> int:
        """The first moment for which a run is worth it though no record comes."""
        return min((timer.needed_ms for timer in self._timers), default=NEVER)

    def bring_to(self, time_ms: int) -> None:
        """Bring every topic's stream time to at least a moment; timers wait until they are asked."""
        for topic in self.topics:
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

    def timer(self, node: str, topics: Iterable[str], callback: Callable[[int], None]) -> NodeTimer:
        """Make a timer of a node below these topics."""
        names = sorted(topics)
        clocks = [self.topics[topic] for topic in names]
        timer = NodeTimer(node, clocks, self.node_time(names), callback, self._timers.remove)
        self._timers.append(timer)
        self._timers.sort(key=lambda timer: self._rank[timer.node])
        return timer

    def fire(self, before: Moment = AT_LAST) -> None:
        """Call back whatever is due, then set the clocks for what comes next.

        :param before: leaves alone what comes at this moment or after it.
        """
        record_context = self._record_context
        timestamp_ms = record_context.timestamp_ms
        while (timer := self._first_due()) is not None:
            moment = (timer.due_ms, self._rank[timer.node])
            if moment >= before:
                break
            self.moment = moment
            record_context.record = None
            record_context.timestamp_ms = now_ms = timer.stream_time()
            timer.due_ms = timer.needed_ms = NEVER
            timer.callback(now_ms)
        self.moment = None
        record_context.timestamp_ms = timestamp_ms
        for clock in self.topics.values():
            clock.due_ms = min((t.due_ms for t in self._timers if t.reaches(clock)), default=NEVER)

    def _first_due(self) -> NodeTimer | None:
        first: NodeTimer | None = None
        for timer in self._timers:  # in topological order: the first one of equal ones
            due_ms = timer.due_ms
            if due_ms <= timer.stream_time() and (first is None or due_ms < first.due_ms):
                first = timer
        return first
