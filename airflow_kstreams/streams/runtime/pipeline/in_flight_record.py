"""Holds a record in flight with its effects in the stages that it has passed and its pending effects in later
ones, and limits the number of records in flight and the bytes that they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from airflow_kstreams.streams.calls.call import AsyncNode, Call
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.figures.record_counts import Rule
from airflow_kstreams.streams.ports import Headers, Record
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.records.record_queue import QueueFacts
from airflow_kstreams.streams.records.stream_clock import Moment
from airflow_kstreams.streams.records.timestamp_reading import as_consumed
from airflow_kstreams.streams.runtime.value_sizes import size_of
from airflow_kstreams.streams.settings import ApplicationSettings

#: Most records in flight for each call that may run, unless the user sets a number: while one call is slow,
#: the others go on.
_IN_FLIGHT_PER_CALL = 20
#: A store's name and its changes, as ``StateStore.drain_changes`` returns them.
StoreChanges = tuple[str, list[tuple[bytes, bytes | None, int]]]


class PendingEffect:
    """A function that a later stage calls, in the record context in which it was handed over.

    :param stage: number of the stage that calls it.
    :param context: the record context, which is copied.
    :param function: the function to call with ``arguments``.
    :param moment: moment of the timer whose callback led to it; None if a record did.
    :param call: the call whose result it takes; None if it takes none.
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
        """Set the record context, and call the function."""
        context.record = self.record
        context.timestamp_ms = self.timestamp_ms
        context.replaced_headers = self.headers
        context.branch = self.branch
        context.emitting = self.emitting
        self.function(*self.arguments)


class InFlightRecord:
    """A chosen record that is not released yet, or a step of the task's own that keeps its place among them.

    :param taken: the queue facts to commit once the record is released; None for a step of the task's own.
    :param topic: topic of the record.
    :param time_ms: stream time of the topic at the record, epoch milliseconds.
    :ivar retry: True if it takes a parked record through the stages.
    :ivar timestamp_ms: timestamp of the record, epoch milliseconds.
    :ivar effects: pending effects, in the order in which a task without calls would have them.
    :ivar at_end: pending effects that come after those, and after the timers that the record set off.
    :ivar pending: number of calls that it made in its present stage and that have not ended.
    :ivar changes: changes of the stores of the stages that it has passed.
    :ivar counts: counts of the nodes of these stages.
    :ivar point: True if cached results are emitted behind it.
    :ivar commit: True if user code asked for a commit.
    :ivar parked: node -> the change of the number of records in the node's retry topic.
    :ivar size_bytes: estimate of the memory that it holds.
    """

    __slots__ = (
        "at_end",
        "changes",
        "commit",
        "counts",
        "effects",
        "ordinals",
        "parked",
        "pending",
        "point",
        "retry",
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
        self.effects: list[PendingEffect] = []
        #: Empty for most records: Python's collector does not track an empty tuple.
        self.at_end: Sequence[PendingEffect] = ()
        self.pending = 0
        self.changes: Sequence[StoreChanges] = ()
        self.counts: Sequence[tuple[tuple[str, Rule], int]] = ()
        self.retry = False
        self.point = False
        self.commit = False
        self.size_bytes = 0
        self.parked: dict[str, int] = {}
        #: (node, branch) -> number of calls that it made for the consumed record.
        self.ordinals: dict[tuple[str, str], int] = {}

    def next_ordinal(self, node: str, branch: str) -> str:
        """Count a call of a node, and return its ordinal, e.g. ``0``, or ``1.0`` below call 1 of a retrying
        node.
        """
        number = self.ordinals.get((node, branch), 0)
        self.ordinals[node, branch] = number + 1
        return f"{branch}.{number}" if branch else str(number)

    def waits_for(self) -> str:
        """Return a text about the calls for which it waits, for an error message."""
        nodes = sorted({effect.call.async_node.name for effect in self.effects if effect.call is not None})
        record = next((effect.record for effect in self.effects if effect.record is not None), None)
        place = "no record"
        if record is not None:
            place = f"{record.topic()}-{record.partition()}@{record.offset()}"
        return f"{place} waits for {counted(self.pending, 'call')} of {', '.join(nodes) or 'no node'}"


class InFlightLimit:
    """Counts the records in flight and the bytes that they hold, and decides whether another one may begin.

    Sizes are estimates (``value_sizes.py``).

    :param max_records: most records in flight.
    :param max_bytes: most bytes that they hold; a single record may hold more.
    :ivar records: number of records in flight.
    :ivar size_bytes: bytes that they hold.
    """

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self.records = 0
        self.size_bytes = 0

    @property
    def allows_more(self) -> bool:
        """True if another record may be chosen."""
        return not self.records or (self.records < self._max_records and self.size_bytes < self._max_bytes)

    def enter(self, flight: InFlightRecord, record: Record | None = None) -> None:
        """Count a record in flight, and the bytes of its consumed record if that is given."""
        self.records += 1
        self.size_bytes += flight.size_bytes
        if record is not None:
            consumed = as_consumed(record)
            held = len(consumed.key() or b"") + len(consumed.value() or b"")
            flight.size_bytes += held
            self.size_bytes += held

    def ended(self, call: Call) -> InFlightRecord:
        """Count the result of a call that has ended, and return the record in flight that waited for it."""
        flight: InFlightRecord = call.owner
        flight.pending -= 1
        held = size_of(call.result)
        flight.size_bytes += held
        self.size_bytes += held
        return flight

    def leave(self, flight: InFlightRecord) -> None:
        """Take a released record out of the count."""
        self.records -= 1
        self.size_bytes -= flight.size_bytes


def in_flight_limit(async_nodes: Sequence[AsyncNode], settings: ApplicationSettings) -> InFlightLimit:
    """Return the limit of a task with these asynchronous nodes."""
    most = max((async_node.max_in_flight for async_node in async_nodes), default=1)
    return InFlightLimit(
        settings.max_waiting_results or _IN_FLIGHT_PER_CALL * most, settings.max_waiting_bytes
    )
