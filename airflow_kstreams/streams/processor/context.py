"""Defines a processor's context: forwarding, sending, time, stores, and facts of the processed record;
requests are refused where calls may run beside those of other records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.services import Forward, ProcessorServices
from airflow_kstreams.streams.graph.store_specs import NO_GLOBAL_TABLE
from airflow_kstreams.streams.hints.function_checks import (
    gives_one_by_one,
    is_async,
    options_by_name,
    refuse_other_arguments,
)
from airflow_kstreams.streams.hints.java_names import answers_java_names
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.processor.processor_outputs import ProcessorOutput, ProcessorOutputs, output_of
from airflow_kstreams.streams.processor.punctuation import Jumps, Punctuation, StreamTimeTicks, by_wall_clock
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.type_variables import KR, VR, K, V

#: Requested name -> the error's text and remedy.
REFUSED: Mapping[str, tuple[str, str]] = {
    "commit": (
        "asks for a commit",
        "ask for it in a processor above or below, with process(...)",
    ),
    "schedule": (
        "schedules a punctuation",
        "schedule it in a processor above, below or beside, with process(...)",
    ),
    "state_store": (
        "asks for a store",
        "keep state in a processor above or below, with process(definition, store)",
    ),
    "stream_time_ms": (
        "asks for stream time",
        "take the record's timestamp_ms, or let a processor above forward stream time",
    ),
}


def refused_beside_others(where: str, name: str, of: str = "") -> TopologyError:
    """Return the error of a processor that uses a service which is refused beside calls of other records.

    :param where: the processor, for the message.
    :param name: name of the method or attribute.
    :param of: the method's argument; empty for none.
    """
    what, fix = REFUSED[name]
    return TopologyError(
        f"{where} {what}{f' {of!r}' if of else ''}, and its calls run beside those of other records: their "
        "results would depend on time",
        fix=fix,
    )


#: The clock of a punctuation: the record time the task has reached, or the time of day.
PunctuationClock = Literal["stream_time", "wall_clock"]

Punctuate = Callable[[int], None]


@answers_java_names
class ProcessorContext(Generic[KR, VR]):
    """The services for one processor instance, valid from ``init`` to ``close``.

    Facts of the record are those of the consumed record. When a table emits at a commit point,
    or a punctuation runs, there is no such record: then ``topic`` is None, ``partition`` and ``offset`` are
    -1, ``headers`` are empty, and ``timestamp_ms`` is the table entry's, or the punctuation's.

    >>> class Where(Processor):
    ...     def init(self, context):
    ...         self.context = context
    ...
    ...     def process(self, record):
    ...         context = self.context
    ...         context.forward(record.key, [context.topic, context.partition, context.offset])
    >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    >>> builder.stream("in").process(Where).send_to("out")
    >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
    ...     driver.pipe_input("in", key="a", value=1, timestamp_ms=100)
    ...     driver.read_output("out")[0].value
    ['in', 0, 0]
    """

    __slots__ = (
        "_context",
        "_forward",
        "_outputs",
        "_punctuate",
        "_record_context",
        "_stateless",
        "_stream_time",
        "task_id",
    )

    def __init__(
        self,
        context: ProcessorServices,
        forward: Forward,
        children: dict[str, Forward],
        punctuate: Punctuate | None,
        *,
        stateless: bool = False,
    ) -> None:
        self._context = context
        self._record_context = context.record_context
        self._forward = forward
        self._outputs = ProcessorOutputs(context, children)
        self._punctuate = punctuate
        #: True if the processor declares that its calls may run beside those of other records.
        self._stateless = stateless
        self._stream_time = context.stream_time()
        #: The task, printed ``<subtopology>_<group>``.
        self.task_id = context.task_id

    def forward(
        self,
        key: KR,
        value: VR,
        *,
        to: str | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> None:
        """Hand a key and a value to the children of this node.

        :param to: name of the only child to forward to; None for every child.
        :param timestamp_ms: timestamp of the result, epoch milliseconds; None for that of the record being
            processed.
        :param headers: headers of the result, a list of (name, bytes or None); None for those of the record
            being processed.
        :raises TopologyError: there is no child of that name.
        :raises TypeError: the timestamp is not a whole number, or the headers are no such list.
        :raises ValueError: the timestamp is negative, which in Kafka means none, or too large.
        """
        target = self._forward if to is None else self._outputs.child(to)
        if timestamp_ms is None and headers is None:
            target(key, value)
            return
        self._outputs.write(output_of(target, key, value, timestamp_ms, headers))

    def send(
        self,
        topic: str,
        key: K | None,
        value: V | None,
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
    ) -> None:
        """Write a record to a topic by name, as part of the task's next commit (KIP-28).

        It has the timestamp and headers of the record being processed. A topic that the topology reads may be
        written only if a sink of this subtopology writes it, too: a run must know the writers of the topics
        that it reads.

        :param topic: the topic's name in the topology; the topic must exist.
        :param key_serde: serde of the key; by default that of this subtopology's sink for the topic, else
            bytes.
        :param value_serde: serde of the value, with the same default.
        :raises TopologyError: the topic must not be written from here.
        """
        target = self._outputs.topic(topic, key_serde, value_serde)
        self._outputs.write(ProcessorOutput(target, key, value, None, None))

    @options_by_name(fix="write schedule(interval_ms, clock='stream_time' or 'wall_clock', callback=...)")
    def schedule(
        self,
        interval_ms: int,
        *,
        clock: PunctuationClock = "stream_time",
        callback: Punctuate | None = None,
        jumps: Jumps = "each",
    ) -> Punctuation:
        """Call a function at intervals.

        By stream time: once for every multiple of the interval since the epoch that stream time reaches, also
        over crashes and from run to run, after the record that brought stream time there; the callback gets
        the multiple. If stream time jumps, all multiples in between come, up to 10,000; a longer jump ends
        the task. By wall clock: when the interval has passed and the task is between two records; the
        callback gets the time.

        :param interval_ms: milliseconds from one call to the next, 1 or more.
        :param clock: ``stream_time`` or ``wall_clock``; results that depend on the latter differ when
            repeated.
        :param callback: function that takes epoch milliseconds; by default the processor's ``punctuate``.
        :param jumps: ``each`` calls for each multiple that stream time jumps over, ``last`` once, for the
            last one.
        :return: the punctuation, with which it can be cancelled.
        :raises TopologyError: an argument is not valid.
        """
        self._refuse_stateless("schedule")
        where = self._outputs.where
        if type(interval_ms) is not int or interval_ms < 1:
            raise TopologyError(
                f"{where} schedules an interval of {interval_ms!r} ms",
                fix="give whole milliseconds from 1 on",
            )
        if clock not in ("stream_time", "wall_clock"):
            raise TopologyError(
                f"{where} schedules by the clock {clock!r}", fix="choose 'stream_time' or 'wall_clock'"
            )
        if jumps not in ("each", "last") or (clock == "wall_clock" and jumps != "each"):
            raise TopologyError(
                f"{where} schedules with jumps={jumps!r}",
                fix="choose 'each' or 'last' by stream time; the wall clock calls once in any case",
            )
        punctuate = callback or self._punctuate
        if not callable(punctuate):
            raise TopologyError(
                f"{where} schedules a punctuation, but has no punctuate method",
                fix="define punctuate(self, stream_time_ms), or pass callback=",
            )
        if is_async(punctuate):
            raise TopologyError(
                f"{where} schedules an async function: it would only give a coroutine, which never runs",
                fix="write it with def",
            )
        if gives_one_by_one(punctuate):
            raise TopologyError(
                f"{where} schedules a generator function: it would only give a generator, whose body "
                "never runs",
                fix="write it without yield; what is to go on is forwarded by the context",
            )
        refuse_other_arguments(f"{where}: schedule", "callback", punctuate, ("time_ms",))
        if clock == "wall_clock":
            return by_wall_clock(self._context, interval_ms, punctuate)
        ticks = StreamTimeTicks(
            self._context, interval_ms, punctuate, self._stream_time, jumps=jumps, where=where
        )
        return Punctuation(ticks.cancel)

    def state_store(self, name: str) -> Any:
        """Return this task's instance of a store that the processor is connected to: a
        :class:`~airflow_kstreams.streams.KeyValueStore`, :class:`~airflow_kstreams.streams.WindowStore` or
        :class:`~airflow_kstreams.streams.SessionStore`, by its spec.

        :raises TopologyError: it is not connected to a store of that name.
        """
        self._refuse_stateless("state_store", name)
        try:
            return self._context.store(name)
        except KeyError:
            raise TopologyError(
                f"{self._outputs.where} has no access to the store {name!r}",
                fix=f"name the store where the processor is added: process(definition, {name!r}); "
                f"{NO_GLOBAL_TABLE}",
            ) from None

    def commit(self) -> None:
        """Ask for a commit right after the record being processed; cached results are emitted with it."""
        self._refuse_stateless("commit")
        self._context.request_commit()

    @property
    def timestamp_ms(self) -> int:
        """Timestamp of the record being processed, epoch milliseconds."""
        return self._record_context.timestamp_ms

    @property
    def stream_time_ms(self) -> int:
        """Stream time of this node, epoch milliseconds; -1 before the very first record."""
        self._refuse_stateless("stream_time_ms")
        return self._stream_time()

    @property
    def wall_clock_ms(self) -> int:
        """Time of day, epoch milliseconds."""
        return self._context.wall_clock().now_ms()

    @property
    def topic(self) -> str | None:
        """Topic of the consumed record, its real name."""
        record = self._record_context.record
        return None if record is None else record.topic()

    @property
    def partition(self) -> int:
        """Partition of the consumed record."""
        record = self._record_context.record
        return -1 if record is None else record.partition()

    @property
    def offset(self) -> int:
        """Offset of the consumed record."""
        record = self._record_context.record
        return -1 if record is None else record.offset()

    @property
    def headers(self) -> Headers:
        """Headers of the record being processed, in order."""
        return self._record_context.headers() or []

    def _refuse_stateless(self, name: str, of: str = "") -> None:
        if self._stateless:
            raise refused_beside_others(self._outputs.where, name, of)
