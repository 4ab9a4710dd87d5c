"""Defines the call of an asynchronous node, the port through which a task has its calls run, and the context
that user code sees of a call's record.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.figures.call_figures import ThreadState
from airflow_kstreams.streams.graph.calls import CallSpec
from airflow_kstreams.streams.hints.function_checks import declared_by
from airflow_kstreams.streams.ports import Headers, Record
from airflow_kstreams.streams.records.first_place import first_place
from airflow_kstreams.streams.records.record_context import RecordContext


class CallTimeoutError(TimeoutError):
    """A call took longer than its node allows; it may still take effect at the service."""

    own_words = True  # the text holds no value of a record


class CallEndedError(RuntimeError):
    """A call gave no result because it was cancelled, or because it tried to end its process."""


class CallContext(RecordContext):
    """The record of a call, for a function that declares the keyword parameter ``context``.

    Topic, partition, offset and headers are those of the consumed record that led to the call. At a commit
    point or in a punctuation no record did: then ``topic`` is None, ``partition`` and ``offset`` are -1 and
    ``headers`` are empty.

    :ivar task_id: the task, printed ``<subtopology>_<group>``.
    :ivar node: name of the node that calls.
    :ivar timestamp_ms: timestamp of the record being processed, epoch milliseconds.
    """

    __slots__ = ("_async_node", "_ordinal", "node", "task_id")

    def __init__(
        self,
        async_node: AsyncNode,
        record: Record | None,
        *,
        timestamp_ms: int,
        headers: Headers | None,
        ordinal: str,
    ) -> None:
        super().__init__(record, timestamp_ms, headers)
        self.task_id = async_node.task_id
        self.node = async_node.name
        self._async_node = async_node
        self._ordinal = ordinal

    @property
    def idempotency_key(self) -> str:
        """A name of this call that is the same in every attempt:
        ``<prefix>/<topic>-<partition>@<offset>/<topic id>/<node>/<ordinal>``.

        The prefix is the application id, in a backfill that of the live application, unless
        ``idempotency.key.prefix`` gives another. A topic that is deleted and created again has another id,
        so its records have other keys. A record that is parked, or that a replay of dead letters brought
        back, keeps the key of the place at which it was consumed first.

        In place of a missing node name stand the topics that it reads and its method,
        ``orders-map-values-async``: its number would change with the lines of the topology.

        The ordinal counts the calls that the node makes for one consumed record; below a node with
        ``retry=`` it counts those that one call of that node leads to, behind the ordinal of that call:
        ``0.1``. In ``at_least_once`` a record of an intermediate topic may stand there twice, under two
        offsets: then the key is stable for input topics only.

        :raises TopologyError: no consumed record led to the call.
        """
        record = self._record
        if record is None:
            raise TopologyError(
                f"task {self.task_id}: node {self.node!r} asks for the idempotency key of a call that no "
                "consumed record led to, but a punctuation or the emission at a commit point",
                fix="call above the table or the punctuation, or make a key of what is emitted",
            )
        node = self._async_node
        name = node.options.key_name or node.name
        return f"{node.key_prefix}/{first_place(record, node.topic_ids)}/{name}/{self._ordinal}"


class AsyncNode:
    """An asynchronous node in one task.

    :param key_prefix: beginning of idempotency keys.
    :param topic_ids: topic that the task reads -> its id.
    :ivar wants_context: True if the function takes a ``CallContext``.
    :ivar wants_resource: True if the function takes ``resource``.
    :ivar resource: the object of the node's resource factory, while the task is open.
    :ivar failure_ends_task: True if a failed call ends the task when the turn of its record comes.
    :ivar now: function that gives the time of the clock of its calls, seconds: monotonic, unless they run in
        virtual time.
    :ivar in_flight: number of its running calls, counted by the caller as calls begin and end.
    :ivar most_in_flight: largest number of calls that have run at the same time.
    """

    def __init__(
        self, name: str, spec: CallSpec, *, key_prefix: str, topic_ids: Mapping[str, str], task_id: str
    ) -> None:
        self.name = name
        self.spec = spec
        self.options = spec.options
        self.key_prefix = key_prefix
        self.topic_ids = topic_ids
        self.task_id = task_id
        self.max_in_flight = spec.options.max_in_flight
        self.timeout_seconds = spec.options.timeout_ms / 1000
        offered: frozenset[str] = frozenset()
        if spec.buffers_output:
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
        """Count a call that begins to run."""
        running = self.in_flight = self.in_flight + 1
        if running > self.most_in_flight:
            self.most_in_flight = running


class Call:
    """One call.

    :ivar owner: the record in flight that waits for the result.
    :ivar context: argument of the function's parameter ``context``; None if it declares none.
    :ivar given: time at which the task gave the call to its caller, seconds by the clock of the node.
    :ivar started: time at which the function began to run, by the same clock.
    :ivar ended: time at which the call ended; None while it waits or runs, and if it is never made.
    :ivar result: the function's answer.
    :ivar error: the error of the call; None if there is an answer.
    :ivar given_up: True after the caller has stopped waiting for the function.
    :ivar again: the state of a call that is retried when it fails; None if it is not retried.
    :ivar turn: name of the key, equal for calls of equal keys, where one waits for the other.
    """

    __slots__ = (
        "again",
        "arguments",
        "async_node",
        "context",
        "ended",
        "error",
        "given",
        "given_up",
        "key",
        "owner",
        "result",
        "started",
        "turn",
        "value",
    )

    def __init__(
        self, async_node: AsyncNode, owner: Any, key: Any, value: Any, context: RecordContext | None
    ) -> None:
        self.async_node = async_node
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
        async_node = self.async_node
        keywords: dict[str, Any] = {}
        if self.context is not None:
            keywords["context"] = self.context
        if async_node.wants_resource:
            keywords["resource"] = async_node.resource
        return async_node.spec.function(*self.arguments, **keywords)

    def timed_out(self) -> CallTimeoutError:
        """Return the error of a call that took too long."""
        timeout_ms = self.async_node.options.timeout_ms
        return CallTimeoutError(f"the call took longer than {timeout_ms=}, and may yet take effect")


def end_if_forked(process: int) -> None:
    """End a child process that a call forked: it holds its parent's connections and must not use them.

    :param process: process id of the parent.
    """
    if os.getpid() != process:
        os._exit(70)


def as_error(error: BaseException) -> Exception:
    """Return an error that a handler may take, given what a call raised."""
    if isinstance(error, Exception):
        return error
    ended = CallEndedError(f"the call ended by {type(error).__name__}")
    ended.__cause__ = error
    return ended.with_traceback(error.__traceback__)


class Caller(Protocol):
    """Runs the calls of one task. All methods are for the task's own thread."""

    @property
    def patience_seconds(self) -> float:
        """Longest wait of the task for a call, in seconds, before it does other work."""
        ...

    def open(self) -> None:
        """Start the loop and the threads that run the calls, and open the nodes' resources.

        :raises Exception: the error of a resource.
        """
        ...

    def start(self, call: Call) -> None:
        """Start a call as soon as its node's options allow, at the latest when the task waits for a call."""
        ...

    def hurry(self) -> None:
        """Make the started calls begin. Until then they may wait for more of them, so that the loop is woken
        once for many.
        """
        ...

    def ended(self, wait_seconds: float) -> Sequence[Call]:
        """Return the calls that have ended since the last call of this method, each with its result or error.

        :param wait_seconds: longest wait for one, if there is none yet.
        :raises KStreamsError: the loop or the threads cannot go on.
        """
        ...

    def thread_states(self) -> Sequence[ThreadState]:
        """Return the state of each thread that runs calls; none where the task's own thread runs them."""
        ...

    @property
    def threads_replaced(self) -> int:
        """The number of threads that were made in place of others."""
        ...

    def close(self) -> None:
        """Give up the calls that run, and close the resources; a second call does nothing."""
        ...


#: Makes a task's caller, given its asynchronous nodes.
MakeCaller = Callable[[Sequence[AsyncNode]], Caller]
