"""Defines the context of a processor whose calls run side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NoReturn

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.services import Forward, ProcessorServices
from airflow_kstreams.streams.hints.java_names import java_method, told
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.processor.context import REFUSED, refused_beside_others
from airflow_kstreams.streams.processor.processor_outputs import (
    CURRENT,
    CallFacts,
    OutputBuffer,
    ProcessorOutput,
    ProcessorOutputs,
    UnbufferedOutput,
    output_of,
)
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.type_variables import KR, VR, K, V


class AsyncProcessorContext(Generic[KR, VR]):
    """The services for one processor instance, valid from ``init`` to ``close``.

    Many calls of ``process`` use it at once: each of them, with its tasks and its functions of
    ``asyncio.to_thread``, gets the facts of its own record, and its results leave at that record's place in
    input order. Facts are those of :class:`~airflow_kstreams.streams.ProcessorContext`. Stores, commits,
    punctuations and stream time are refused by name: when a call uses them, later records have begun.

    >>> class Priced(AsyncProcessor):
    ...     def init(self, context):
    ...         self.context = context
    ...
    ...     async def process(self, record):
    ...         price = await self.context.resource.price_of(record.value)
    ...         self.context.forward(record.key, [price, self.context.idempotency_key])
    >>> from contextlib import asynccontextmanager
    >>> @asynccontextmanager
    ... async def prices():
    ...     class Prices:
    ...         async def price_of(self, article):
    ...             return {"pear": 2}[article]
    ...     yield Prices()
    >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    >>> builder.stream("in").process_async(Priced, resource=prices, name="price").send_to("out")
    >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
    ...     driver.pipe_input("in", key="a", value="pear", timestamp_ms=100)
    ...     driver.read_output("out")[0].value
    [2, 'demo/in-0@0/test/price/0']
    """

    __slots__ = ("_forward", "_has_resource", "_outputs", "_services", "task_id")

    def __init__(
        self, services: ProcessorServices, forward: Forward, outputs: ProcessorOutputs, *, has_resource: bool
    ) -> None:
        self._services = services
        self._forward = forward
        self._outputs = outputs
        self._has_resource = has_resource
        #: The task, printed ``<subtopology>_<group>``.
        self.task_id = services.task_id

    def forward(
        self,
        key: KR,
        value: VR,
        *,
        to: str | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> None:
        """Hand a key and a value to the children of this node, when the call's record has its turn.

        A call's results leave in the order of its forwards, as copied at that moment; a call that fails has
        no results.

        :param to: name of the only child to forward to; None for every child.
        :param timestamp_ms: timestamp of the result, epoch milliseconds; None for that of the record being
            processed.
        :param headers: headers of the result, a list of (name, bytes or None); None for those of the record
            being processed.
        :raises TopologyError: there is no child of that name, the call has ended, or is another processor's.
        :raises TypeError: the timestamp is not a whole number, or the headers are no such list.
        :raises ValueError: the timestamp is negative, which in Kafka means none, or too large.
        """
        target = self._forward if to is None else self._outputs.child(to)
        self._call("forwards").add(output_of(target, key, value, timestamp_ms, headers))

    def send(
        self,
        topic: str,
        key: K | None,
        value: V | None,
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
    ) -> None:
        """Write a record to a topic by name, when the call's record has its turn; see
        :meth:`ProcessorContext.send`.

        :param topic: the topic's name in the topology; the topic must exist.
        :param key_serde: serde of the key; by default that of this subtopology's sink for the topic, else
            bytes.
        :param value_serde: serde of the value, with the same default.
        :raises TopologyError: the topic must not be written from here, the call has ended, or is another
            processor's.
        """
        target = self._outputs.topic(topic, key_serde, value_serde)
        self._call("sends").add(ProcessorOutput(target, key, value, None, None))

    @property
    def resource(self) -> Any:
        """The resource of ``resource=``, which the calls of a task share.

        :raises TopologyError: the node has none, or there is no call.
        """
        call = self._call("asks for its resource")
        if not self._has_resource:
            raise TopologyError(
                f"{self._outputs.where} asks for a resource, and was given none",
                fix="pass resource=, which makes it, where the processor is added",
            )
        if isinstance(call, UnbufferedOutput):
            raise TopologyError(
                f"{self._outputs.where} asks for its resource in init or close: it is for calls",
                fix="ask for it in process",
            )
        return call.resource

    @property
    def idempotency_key(self) -> str:
        """A name of this call that is the same in every attempt; see
        :attr:`CallContext.idempotency_key`.

        :raises TopologyError: no consumed record led to the call.
        """
        return self._facts.idempotency_key

    @property
    def timestamp_ms(self) -> int:
        """Timestamp of the record being processed, epoch milliseconds."""
        return self._facts.timestamp_ms

    @property
    def wall_clock_ms(self) -> int:
        """Time of day, epoch milliseconds."""
        return self._services.wall_clock().now_ms()

    @property
    def topic(self) -> str | None:
        """Topic of the consumed record, its real name."""
        return self._facts.topic

    @property
    def partition(self) -> int:
        """Partition of the consumed record."""
        return self._facts.partition

    @property
    def offset(self) -> int:
        """Offset of the consumed record."""
        return self._facts.offset

    @property
    def headers(self) -> Headers:
        """Headers of the record being processed, in order."""
        return self._facts.headers

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Refuse a name of another processor's context, or of Kafka Streams', with the one to use
            here.
            """
            ours = java_method(type(self), name)
            asked = ours.partition("(")[0] or name
            if asked in REFUSED:
                raise refused_beside_others(self._outputs.where, asked)
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(f"{message}: {told(ours)}" if ours else message, name=name, obj=self)

    @property
    def _facts(self) -> CallFacts:
        return self._call("asks for facts of its record").facts

    def _call(self, what: str) -> OutputBuffer | UnbufferedOutput:
        call = CURRENT.get()
        if call is None or call.outputs is not self._outputs:
            raise TopologyError(
                f"{self._outputs.where} {what} outside of its calls: on a thread that it started itself, or "
                "in a call of another processor",
                fix="do so in process, or in what that awaits; asyncio.to_thread keeps the call",
            )
        return call
