"""One call of an asynchronous node, what user code sees of its record, and why a call failed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.calls import CallSpec
from airflow_kstreams.streams.hints.function_checks import declared_by
from airflow_kstreams.streams.ports import Headers, Record
from airflow_kstreams.streams.records.record_context import RecordContext


class CallTimeoutError(TimeoutError):
    """A call took longer than its node allows; it may still take effect at the service."""

    own_words = True  # nothing of them is to be hidden


class CallEndedError(RuntimeError):
    """A call came to no result by its own doing: it was cancelled, or wanted to end its process."""


class CallContext(RecordContext):
    """What a function that declares the keyword parameter ``context`` is told of its record.

    Facts are those of the consumed record that led to the call; at a commit point or in a punctuation there
    is none: then ``topic`` is None, ``partition`` and ``offset`` are -1 and ``headers`` are empty.

    :ivar task_id: the task, printed ``<subtopology>_<group>``.
    :ivar node: name of the node that calls.
    :ivar timestamp_ms: of the record being processed, epoch milliseconds.
    """

    __slots__ = ("_application_id", "_ordinal", "node", "task_id")

    def __init__(
        self,
        station: Station,
        record: Record | None,
        *,
        timestamp_ms: int,
        headers: Headers | None,
        ordinal: str,
    ) -> None:
        super().__init__(record, timestamp_ms, headers)
        self.task_id = station.task_id
        self.node = station.node
        self._application_id = station.application_id
        self._ordinal = ordinal

    @property
    def idempotency_key(self) -> str:
        """A name of this call that is the same in every attempt:
        ``<application>/<topic>-<partition>@<offset>/<node>/<ordinal>``.

        The ordinal counts the calls that the node makes for one consumed record; below a node with
        ``retry=``, those that one call of that node leads to, behind the ordinal of that call: ``0.1``.
        In ``at_least_once`` a
        record of an intermediate topic may stand there twice, under two offsets: there the key is stable for
        input topics only.

        :raises TopologyError: no consumed record led to the call.
        """
        record = self._record
        if record is None:
            raise TopologyError(
                f"task {self.task_id}: node {self.node!r} asks for the idempotency key of a call that no "
                "consumed record led to, but a punctuation or the emission at a commit point",
                fix="call above the table or the punctuation, or make a key of what is emitted",
            )
        place = f"{record.topic()}-{record.partition()}@{record.offset()}"
        return f"{self._application_id}/{place}/{self.node}/{self._ordinal}"


class Station:
    """An asynchronous node in one task.

    :param node: its name.
    :ivar wants_context: whether the function is given a ``CallContext``.
    :ivar wants_resource: whether it is given ``resource``.
    :ivar resource: what the node's resource gave, while the task is open.
    :ivar failure_ends_task: whether a call that fails ends the task, when its record has its turn.
    :ivar now: the clock of its calls, seconds: monotonic, unless they run in virtual time.
    :ivar in_flight: how many of its calls run; this and the next one are for what runs them to count.
    :ivar most_in_flight: the most that have run at the same time.
    """

    __slots__ = (
        "application_id",
        "failure_ends_task",
        "in_flight",
        "max_in_flight",
        "most_in_flight",
        "node",
        "now",
        "options",
        "resource",
        "spec",
        "task_id",
        "timeout_seconds",
        "wants_context",
        "wants_resource",
    )

    def __init__(self, node: str, spec: CallSpec, *, application_id: str, task_id: str) -> None:
        self.node = node
        self.spec = spec
        self.options = spec.options
        self.application_id = application_id
        self.task_id = task_id
        self.max_in_flight = spec.options.max_in_flight
        self.timeout_seconds = spec.options.timeout_ms / 1000
        offered: frozenset[str] = frozenset()
        if spec.gathers:
            offered = frozenset(("context", "resource"))
        elif not spec.options.implicit:
            offered = declared_by(spec.function)
        self.wants_context = "context" in offered
        self.wants_resource = "resource" in offered and spec.options.resource is not None
        self.resource: Any = None
        self.failure_ends_task = False
        self.now: Callable[[], float] = time.monotonic
        self.in_flight = self.most_in_flight = 0

    def begun(self) -> None:
        """Take note that one of its calls begins to run."""
        running = self.in_flight = self.in_flight + 1
        if running > self.most_in_flight:
            self.most_in_flight = running


class Call:
    """One call.

    :ivar owner: of the call: where what it gave is waited for.
    :ivar context: what the function is given as its parameter ``context``; None if it declares none.
    :ivar given: when the task gave it to what runs it, seconds by the clock of its station.
    :ivar started: when it began to run.
    :ivar ended: when it came to its end; None if it does not run yet, still runs, or is never made.
    :ivar result: what the function returned.
    :ivar error: why there is no result.
    :ivar again: what is known of a call that is made again when it fails; None if this one never is.
    :ivar turn: what calls of the same key have in common, where one waits for the other.
    """

    __slots__ = (
        "again",
        "arguments",
        "context",
        "ended",
        "error",
        "given",
        "given_up",
        "key",
        "owner",
        "result",
        "started",
        "station",
        "turn",
        "value",
    )

    def __init__(
        self, station: Station, owner: Any, key: Any, value: Any, context: RecordContext | None
    ) -> None:
        self.station = station
        self.owner = owner
        self.key = key
        self.value = value
        self.context = context
        self.arguments: tuple[Any, ...] = ()
        self.result: Any = None
        self.error: Exception | None = None
        self.given_up = False
        self.given = self.started = 0.0
        self.ended: float | None = None
        self.turn: Any = None
        self.again: Any = None

    def invoke(self) -> Any:
        """Call the function; of a coroutine function this gives the coroutine."""
        station = self.station
        keywords: dict[str, Any] = {}
        if self.context is not None:
            keywords["context"] = self.context
        if station.wants_resource:
            keywords["resource"] = station.resource
        return station.spec.function(*self.arguments, **keywords)

    def timed_out(self) -> CallTimeoutError:
        """Return the error of a call that took too long."""
        return CallTimeoutError(
            f"the call took longer than timeout_ms={self.station.options.timeout_ms}, and may yet take effect"
        )


def end_if_forked(process: int) -> None:
    """End a child that a call forked: it has its parent's connections, and no part in its work.

    :param process: the parent.
    """
    if os.getpid() != process:
        os._exit(70)


def as_error(error: BaseException) -> Exception:
    """Return what a call failed with as an error that a handler may take."""
    if isinstance(error, Exception):
        return error
    ended = CallEndedError(f"the call ended by {type(error).__name__}")
    ended.__cause__ = error
    return ended.with_traceback(error.__traceback__)
