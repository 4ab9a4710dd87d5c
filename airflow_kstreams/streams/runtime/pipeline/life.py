"""The way of one chosen record through the stages of its task, and what of it waits for a later stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from airflow_kstreams.streams.calls.call import Call
from airflow_kstreams.streams.figures.record_counts import Rule
from airflow_kstreams.streams.ports import Headers, Record
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.records.record_queue import QueueFacts
from airflow_kstreams.streams.records.stream_clock import Moment

#: Store -> what it changed, as ``StateStore.drain_changes`` gives it.
StoreChanges = tuple[str, list[tuple[bytes, bytes | None, int]]]


class Entry:
    """Something that a later stage does, with the record context that it was left with.

    :ivar moment: of the timer that brought it about, None if a record did.
    :ivar call: whose answer it takes, None if it takes none.
    """

    __slots__ = (
        "arguments",
        "branch",
        "call",
        "emitting",
        "function",
        "headers",
        "moment",
        "record",
        "stage",
        "timestamp_ms",
    )

    def __init__(
        self,
        stage: int,
        context: TaskRecordContext,
        function: Callable[..., None],
        arguments: tuple[Any, ...],
        *,
        moment: Moment | None = None,
        call: Call | None = None,
    ) -> None:
        self.stage = stage
        self.moment = moment
        self.call = call
        self.record: Record | None = context.record
        self.timestamp_ms = context.timestamp_ms
        headers = context.replaced_headers
        self.headers: Headers | None = None if headers is None else [*headers]
        self.branch = context.branch
        self.emitting = context.emitting
        self.function = function
        self.arguments = arguments

    def run(self, context: TaskRecordContext) -> None:
        """Do it."""
        context.record = self.record
        context.timestamp_ms = self.timestamp_ms
        context.replaced_headers = self.headers
        context.branch = self.branch
        context.emitting = self.emitting
        self.function(*self.arguments)


class Life:
    """A record under way, or a step of the task's own that must keep its place among records.

    :ivar taken: what is to be committed once the record is released; None for a step of the task's own.
    :ivar again: whether a parked record is called again in it.
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
    :ivar parked: node -> by how many it changes the number of records in the node's retry topic.
    :ivar size_bytes: what it takes up, about.
    """

    __slots__ = (
        "again",
        "at_end",
        "changes",
        "commit",
        "counts",
        "entries",
        "ordinals",
        "parked",
        "pending",
        "point",
        "size_bytes",
        "taken",
        "time_ms",
        "timestamp_ms",
        "topic",
    )

    def __init__(self, taken: QueueFacts | None, topic: str = "", time_ms: int = -1) -> None:
        self.taken = taken
        self.topic = topic
        self.time_ms = time_ms
        self.timestamp_ms = 0
        self.entries: list[Entry] = []
        #: Most records need none of these: an empty tuple is no work for Python's collector.
        self.at_end: Sequence[Entry] = ()
        self.pending = 0
        self.changes: Sequence[StoreChanges] = ()
        self.counts: Sequence[tuple[tuple[str, Rule], int]] = ()
        self.again = False
        self.point = False
        self.commit = False
        self.size_bytes = 0
        self.parked: dict[str, int] = {}
        #: Node and branch -> calls that it made for the consumed record.
        self.ordinals: dict[tuple[str, str], int] = {}

    def next_ordinal(self, node: str, branch: str) -> str:
        """Count a call of a node, and return its ordinal."""
        number = self.ordinals.get((node, branch), 0)
        self.ordinals[node, branch] = number + 1
        return f"{branch}.{number}" if branch else str(number)

    def waits_for(self) -> str:
        """Say, for messages, which calls it waits for."""
        nodes = sorted({entry.call.station.node for entry in self.entries if entry.call is not None})
        record = next((entry.record for entry in self.entries if entry.record is not None), None)
        place = "no record"
        if record is not None:
            place = f"{record.topic()}-{record.partition()}@{record.offset()}"
        return f"{place} waits for {self.pending} calls of {', '.join(nodes) or 'no node'}"
