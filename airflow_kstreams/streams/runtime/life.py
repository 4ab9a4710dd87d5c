"""The way of one chosen record through the stages of its task, and what of it waits for a later stage."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from airflow_kstreams.streams.calls.call import Call, CallContext, Station
from airflow_kstreams.streams.graph.nodes import Forward
from airflow_kstreams.streams.ports import Headers, Record
from airflow_kstreams.streams.record_counts import LeftOutCounts
from airflow_kstreams.streams.records.partition_group import Taken
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.records.stream_clock import Moment, StreamClock

#: Store -> what it changed, as ``StateStore.drain_changes`` gives it.
StoreChanges = tuple[str, list[tuple[bytes, bytes | None, int]]]


class Entry:
    """Something that a later stage does, with the record context that it was left with.

    :ivar moment: of the timer that brought it about, None if a record did.
    """

    __slots__ = ("arguments", "function", "headers", "moment", "record", "stage", "timestamp_ms")

    def __init__(
        self,
        stage: int,
        context: TaskRecordContext,
        function: Callable[..., None],
        arguments: tuple[Any, ...],
        moment: Moment | None = None,
    ) -> None:
        self.stage = stage
        self.moment = moment
        self.record: Record | None = context.record
        self.timestamp_ms = context.timestamp_ms
        self.headers: Headers | None = context.replaced_headers
        self.function = function
        self.arguments = arguments

    def run(self, context: TaskRecordContext) -> None:
        """Do it."""
        context.record = self.record
        context.timestamp_ms = self.timestamp_ms
        context.replaced_headers = self.headers
        self.function(*self.arguments)


class Life:
    """A record under way, or a step of the task's own that must keep its place among records.

    :ivar taken: the record in its group; None for a step of the task's own.
    :ivar topic: of the record.
    :ivar time_ms: stream time of the topic at the record.
    :ivar timestamp_ms: of the record.
    :ivar entries: what is left to do for the record, in the order in which it would be done at once.
    :ivar at_end: what is left to do behind that, and behind the timers that it set off.
    :ivar pending: calls of the stage that it is in which have not ended.
    :ivar changes: of the stores of the stages that it has passed.
    :ivar counts: of the nodes of these stages.
    :ivar point: whether results that wait for a commit point are emitted behind it.
    :ivar commit: whether a commit was asked for.
    :ivar size_bytes: what it takes up, about.
    """

    __slots__ = (
        "at_end",
        "changes",
        "commit",
        "counts",
        "entries",
        "ordinals",
        "pending",
        "point",
        "size_bytes",
        "taken",
        "time_ms",
        "timestamp_ms",
        "topic",
    )

    def __init__(self, taken: Taken | None, topic: str = "", time_ms: int = -1) -> None:
        self.taken = taken
        self.topic = topic
        self.time_ms = time_ms
        self.timestamp_ms = 0
        self.entries: list[Entry] = []
        self.at_end: list[Entry] = []
        self.pending = 0
        self.changes: list[StoreChanges] = []
        self.counts: LeftOutCounts = []
        self.point = False
        self.commit = False
        self.size_bytes = 0
        #: Node -> calls that it made for the consumed record.
        self.ordinals: dict[str, int] = {}


class Crossings:
    """Where the life under way keeps what goes to later stages; one per task.

    :param last: the last stage.
    :param start: starts a call.
    """

    __slots__ = ("_context", "clock", "entries", "last", "life", "moment", "stage", "start")

    def __init__(self, context: TaskRecordContext, last: int) -> None:
        self._context = context
        self.last = last
        self.stage = last
        self.life = Life(None)
        #: Of the stage under way.
        self.clock: StreamClock | None = None
        #: Of the entry that is being done.
        self.moment: Moment | None = None
        #: Of the life, those that are being added to.
        self.entries: list[Entry] = []
        self.start: Callable[[Call], None] = _not_open

    def later(self, stage: int, function: Callable[..., None], *arguments: Any) -> None:
        """Leave something to a later stage."""
        self.entries.append(Entry(stage, self._context, function, arguments, self._moment))

    def into(self, stage: int, target: Forward, *, copies: bool) -> Forward:
        """Return what hands a key and a value to a node of a later stage.

        :param copies: whether they may be changed before that.
        """

        def cross(key: Any, value: Any) -> None:
            if copies:
                key, value = copy.deepcopy((key, value))
            self.later(stage, target, key, value)

        return cross

    def calling(self, station: Station, delivered: Callable[[Call], None], *, copies: bool) -> Forward:
        """Return what starts a call for a key and a value, and keeps its place.

        :param delivered: takes the call in the next stage.
        :param copies: whether key and value may be changed while the call runs.
        """
        context = self._context
        arguments = station.spec.arguments
        wants_context = station.wants_context
        node = station.node

        def run(key: Any, value: Any, _node: str = node) -> None:
            if copies:
                key, value = copy.deepcopy((key, value))
            life = self.life
            about = None
            if wants_context:
                ordinal = 0
                if context.record is not None:
                    ordinal = life.ordinals.get(node, 0)
                    life.ordinals[node] = ordinal + 1
                about = CallContext(
                    station,
                    context.record,
                    timestamp_ms=context.timestamp_ms,
                    headers=context.headers(),
                    ordinal=ordinal,
                )
            call = Call(station, life, key, value, about)
            call.arguments = arguments(key, value)
            life.pending += 1
            self.later(self.stage + 1, delivered, call)
            self.start(call)

        return run

    @property
    def _moment(self) -> Moment | None:
        if self.moment is not None or self.clock is None:
            return self.moment
        return self.clock.moment

    @property
    def early(self) -> bool:
        """Whether the stage under way is not the last: nothing may leave the task in it."""
        return self.stage < self.last


def _not_open(call: Call) -> None:
    raise RuntimeError("a call before the task is open")
