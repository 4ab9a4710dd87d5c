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
from airflow_kstreams.streams.processor.handing_on import Handed, Handing
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


class Gathering:
    """The results of one call.

    :param handing: the node's; distinguishes calls of several nodes.
    :param facts: facts of the record.
    :param resource: the node's resource.
    """

    __slots__ = ("_handed", "_lock", "_open", "facts", "handing", "resource")

    def __init__(self, handing: Handing, facts: CallFacts, resource: Any) -> None:
        self.handing = handing
        self.facts: CallFacts = facts
        self.resource = resource
        self._handed: list[Handed] = []
        self._open = True
        self._lock = threading.Lock()

    def add(self, handed: Handed) -> None:
        """Keep a result.

        :raises TopologyError: the call has ended, or the object cannot be kept.
        """
        where, headers = self.handing.where, handed.headers
        try:
            handed = handed._replace(
                key=kept(handed.key),
                value=kept(handed.value),
                headers=None if headers is None else [*headers],
            )
        except UncopyableError as error:
            raise TopologyError(
                f"{where} forwards what must stay as it is until its record has its turn: {error}",
                fix="forward plain data, or give the class a __deepcopy__",
            ) from error
        with self._lock:
            if self._open:
                self._handed.append(handed)
                return
        raise TopologyError(
            f"{where} forwards after its call has ended, from a task or thread that the call left behind: "
            "its record may have gone on",
            fix="await in process whatever forwards, e.g. in an asyncio.TaskGroup",
        )

    def end(self) -> Sequence[Handed]:
        """Refuse further results, and return those kept."""
        with self._lock:
            self._open = False
            return self._handed


class AtOnce:
    """Passes results on at once, while a processor starts or ends, between records.

    :param handing: the node's.
    """

    __slots__ = ("facts", "handing")

    resource = None

    def __init__(self, handing: Handing) -> None:
        self.handing = handing
        self.facts: CallFacts = _NoRecord(handing)

    def add(self, handed: Handed) -> None:
        """Pass a result on."""
        self.handing.hand(handed)


class _NoRecord:
    """The facts between records."""

    topic = None
    partition = offset = -1

    def __init__(self, handing: Handing) -> None:
        self._handing = handing
        self.timestamp_ms = handing.record_context.timestamp_ms

    @property
    def headers(self) -> Headers:
        return []

    @property
    def idempotency_key(self) -> str:
        raise TopologyError(
            f"{self._handing.where} asks for an idempotency key in init or close, where there is no call",
            fix="ask for it in process",
        )


#: The call that code belongs to.
CURRENT: ContextVar[Gathering | AtOnce | None] = ContextVar("airflow_kstreams_call", default=None)
