"""Keeps the results of a call that runs beside others, until its place in input order comes.

Rule: a context variable holds the call of the running code; coroutines, their tasks and ``asyncio.to_thread``
pass it on by themselves. A result is copied at once, as a sink would have written it at once. Once the call
has ended, results are refused: they would depend on time.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.processor.processor_outputs import ProcessorOutput, ProcessorOutputs
from airflow_kstreams.streams.records.kept_values import UncopyableError, kept


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

    :param outputs: the node's; distinguishes calls of several nodes.
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

    :param outputs: the node's.
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
