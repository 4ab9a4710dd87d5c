"""Passes the results of a processor to children and topics on the task's own thread, and keeps those of a
call that runs beside others until its place in input order comes.

Rule: a context variable holds the call of the running code; coroutines, their tasks and ``asyncio.to_thread``
pass it on by themselves. A result is copied at once, as a sink would have written it at once. Once the call
has ended, results are refused: they would depend on time.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.services import Encoding, Forward, ProcessorServices
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.records.result_facts import checked_headers, checked_time
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.serde_checks import check_serdes
from airflow_kstreams.streams.state.stores.value_copies import UncopyableError, kept


@dataclass(frozen=True, slots=True, kw_only=True)
class SendTarget:
    """A topic that may be written.

    :param topic: the topic's real name.
    :param key_serde: serde of keys, unless the caller gives another.
    :param value_serde: serde of values, unless the caller gives another.
    """

    topic: str
    key_serde: Serde
    value_serde: Serde

    def written_with(self, key_serde: Serde | None, value_serde: Serde | None) -> SendTarget:
        """Return the target with other serdes, where they are given.

        :raises TopologyError: one of them is no serde.
        """
        check_serdes("ProcessorContext.send", key_serde=key_serde, value_serde=value_serde)
        return SendTarget(
            topic=self.topic,
            key_serde=key_serde.bound(self.topic, "key") if key_serde else self.key_serde,
            value_serde=value_serde.bound(self.topic, "value") if value_serde else self.value_serde,
        )


class ProcessorOutput(NamedTuple):
    """A result that a processor forwards or sends.

    :param to: a child, all children, or a topic.
    :param timestamp_ms: timestamp of the result; None for that of the record being processed.
    :param headers: headers of the result; None for those of the record being processed.
    """

    to: Forward | SendTarget
    key: Any
    value: Any
    timestamp_ms: int | None
    headers: Headers | None


class ProcessorOutputs:
    """Passes results of one processor in one task to its children and to topics.

    :param services: services of the node.
    :param children: child name -> function that hands a record to that child only.
    :ivar where: the processor, for messages.
    """

    __slots__ = ("_children", "_services", "_targets", "record_context", "where")

    def __init__(self, services: ProcessorServices, children: Mapping[str, Forward]) -> None:
        self._services = services
        self._children = children
        self._targets: dict[tuple[str, Serde | None, Serde | None], SendTarget] = {}
        self.record_context = services.record_context
        self.where = f"task {services.task_id}: processor {services.node!r}"

    def child(self, name: str) -> Forward:
        """Return the function that forwards to one child.

        :raises TopologyError: no child has that name.
        """
        try:
            return self._children[name]
        except KeyError:
            raise TopologyError(
                f"{self.where} has no child {name!r}",
                fix=f"forward to one of: {', '.join(self._children) or 'none, it has no children'}",
            ) from None

    def topic(self, name: str, key_serde: Serde | None, value_serde: Serde | None) -> SendTarget:
        """Return a topic that may be written by name.

        :raises TopologyError: the topic must not be written from here.
        """
        how = (name, key_serde, value_serde)
        target = self._targets.get(how)
        if target is None:
            found: SendTarget = self._services.send_target(name)
            target = self._targets[how] = found.written_with(key_serde, value_serde)
        return target

    def write(self, output: ProcessorOutput) -> None:
        """Forward a key and a value to children, or write them to a topic."""
        to, key, value, timestamp_ms, headers = output
        if isinstance(to, SendTarget):
            partition_bytes = to.key_serde.partition_bytes
            self._services.send(
                to.topic,
                None if key is None else _bytes(key, Encoding("key", to.topic, to.key_serde)),
                None if value is None else _bytes(value, Encoding("value", to.topic, to.value_serde)),
                None if key is None or partition_bytes is None else partition_bytes(key),
            )
            return
        context = self.record_context
        before = context.timestamp_ms, context.replaced_headers
        if timestamp_ms is not None:
            context.timestamp_ms = timestamp_ms
        if headers is not None:
            context.replaced_headers = headers
        try:
            to(key, value)
        finally:
            context.timestamp_ms, context.replaced_headers = before


def _bytes(given: Any, _encoding: Encoding) -> bytes:
    return _encoding.serde.serialize(given)


def output_of(
    to: Forward, key: Any, value: Any, timestamp_ms: int | None, headers: Headers | None
) -> ProcessorOutput:
    """Return a result to forward.

    :raises TypeError: the timestamp is not a whole number, or Kafka allows no such headers.
    :raises ValueError: the timestamp is negative, which in Kafka means none, or too large.
    """
    if timestamp_ms is not None:
        checked_time(timestamp_ms, "forward: timestamp_ms is {}")
    if headers is not None:
        headers = checked_headers(headers, "forward: headers are {}")
    return ProcessorOutput(to, key, value, timestamp_ms, headers)


class CallFacts(Protocol):
    """The facts of a call's record."""

    timestamp_ms: int

    @property
    def topic(self) -> str | None: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def idempotency_key(self) -> str: ...


class OutputBuffer:
    """The results of one call.

    :param outputs: the node's outputs; they distinguish calls of several nodes.
    :param facts: facts of the record.
    :param resource: the node's resource.
    """

    __slots__ = ("_kept", "_lock", "_open", "facts", "outputs", "resource")

    def __init__(self, outputs: ProcessorOutputs, facts: CallFacts, resource: Any) -> None:
        self.outputs = outputs
        self.facts: CallFacts = facts
        self.resource = resource
        self._kept: list[ProcessorOutput] = []
        self._open = True
        self._lock = threading.Lock()

    def add(self, output: ProcessorOutput) -> None:
        """Keep a result.

        :raises TopologyError: the call has ended, or the object cannot be kept.
        """
        where, headers = self.outputs.where, output.headers
        try:
            output = output._replace(
                key=kept(output.key),
                value=kept(output.value),
                headers=None if headers is None else [*headers],
            )
        except UncopyableError as error:
            raise TopologyError(
                f"{where} forwards what must stay as it is until its record has its turn: {error}",
                fix="forward plain data, or give the class a __deepcopy__",
            ) from error
        with self._lock:
            if self._open:
                self._kept.append(output)
                return
        raise TopologyError(
            f"{where} forwards after its call has ended, from a task or thread that the call left behind: "
            "its record may have gone on",
            fix="await in process whatever forwards, e.g. in an asyncio.TaskGroup",
        )

    def end(self) -> Sequence[ProcessorOutput]:
        """Refuse further results, and return those kept."""
        with self._lock:
            self._open = False
            return self._kept


class UnbufferedOutput:
    """Passes results on at once, while a processor starts or ends, between records.

    :param outputs: the node's outputs.
    """

    __slots__ = ("facts", "outputs")

    resource = None

    def __init__(self, outputs: ProcessorOutputs) -> None:
        self.outputs = outputs
        self.facts: CallFacts = _NoRecord(outputs)

    def add(self, output: ProcessorOutput) -> None:
        """Pass a result on."""
        self.outputs.write(output)


class _NoRecord:
    """The facts between records."""

    topic = None
    partition = offset = -1

    def __init__(self, outputs: ProcessorOutputs) -> None:
        self._outputs = outputs
        self.timestamp_ms = outputs.record_context.timestamp_ms

    @property
    def headers(self) -> Headers:
        return []

    @property
    def idempotency_key(self) -> str:
        raise TopologyError(
            f"{self._outputs.where} asks for an idempotency key in init or close, where there is no call",
            fix="ask for it in process",
        )


#: The call that code belongs to.
CURRENT: ContextVar[OutputBuffer | UnbufferedOutput | None] = ContextVar(
    "airflow_kstreams_call", default=None
)
