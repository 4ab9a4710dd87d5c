"""Defines the classes that users derive: to process records one by one (KIP-28) or several at once, and to
replace a table's values by key, stores and time.

Rule of a fixed key (``KStream.process_values``): while a record is processed, the processor's results have
that record's key, so that they stay in the partition of their key. At any other moment it may forward
nothing, since the partition of a key of its choice is not known.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Generic

import msgspec

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.services import Forward, ProcessorServices
from airflow_kstreams.streams.hints.java_names import answers_java_names
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.processor.async_context import AsyncProcessorContext
from airflow_kstreams.streams.processor.context import ProcessorContext
from airflow_kstreams.streams.state.stores.value_copies import UncopyableError, is_unchanged, kept
from airflow_kstreams.streams.type_variables import KR, VR, K, V


@answers_java_names
class ProcessorRecord(msgspec.Struct, Generic[K, V], frozen=True, gc=True):
    """A record for a processor.

    :param key: the deserialized key; None if the record has none.
    :param value: the deserialized value; None if the record has none.
    :param timestamp_ms: timestamp of the record, or of the result that reached the processor; epoch
        milliseconds.
    :param headers: headers of the consumed record, in order.
    """

    key: K
    value: V
    timestamp_ms: int
    headers: Headers


class Processor(ABC, Generic[K, V, KR, VR]):
    """Processes the records of one task; a new instance is made for each.

    ``init`` comes before the first record, when the task's stores are restored; ``close`` comes after the
    last record and before the last commit, so that its results and changes of stores are committed. A task
    that fails is not closed.

    A class without state of its own may declare ``threads = True``: with ``num.threads.per.task`` above 1,
    ``process`` then runs for several records at once, on that many threads, with the same results. All
    threads of a task share its instance; ``threading.local`` holds objects of one thread. Such a processor
    has no stores, punctuations, commits or stream time, whatever the number of threads.

    For type checkers, ``Processor[str, int, str, float]`` takes keys and values of the first two types and
    forwards keys and values of the others.

    :cvar threads: True if ``process`` may run on several threads.

    >>> from airflow_kstreams.streams import KStreamBuilder, StoreSpec, serdes
    >>> from airflow_kstreams.testing import TopologyTestDriver
    >>> class HourlyTotal(Processor):
    ...     def init(self, context):
    ...         self.context, self.total = context, context.state_store("total")
    ...         context.schedule(3_600_000)
    ...
    ...     def process(self, record):
    ...         self.total.put("all", (self.total.get("all") or 0) + record.value)
    ...
    ...     def punctuate(self, stream_time_ms):
    ...         self.context.forward(str(stream_time_ms), self.total.delete("all"))
    >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
    >>> total = StoreSpec(name="total", key_serde=serdes.string(), value_serde=serdes.int64())
    >>> builder.stream("sales").process(HourlyTotal, total).send_to("hours")
    >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
    ...     for timestamp_ms in (1_000, 2_000, 3_600_000):
    ...         driver.pipe_input("sales", key="a", value=5, timestamp_ms=timestamp_ms)
    ...     [(record.key, record.value) for record in driver.read_output("hours")]
    [('3600000', 15)]
    """

    threads: ClassVar[bool] = False

    def init(self, context: ProcessorContext[KR, VR]) -> None:
        """Keep the context and look up the stores."""

    @abstractmethod
    def process(self, record: ProcessorRecord[K, V]) -> None:
        """Process one record."""

    def punctuate(self, stream_time_ms: int) -> None:
        """Run a punctuation that ``context.schedule`` requested.

        :param stream_time_ms: the multiple of the interval that stream time has reached, or the wall clock's
            time; epoch milliseconds.
        """

    def close(self) -> None:
        """Release the resources that ``init`` acquired."""


#: Makes a new processor for each task: a class, or a function without arguments.
ProcessorDef = Callable[[], Processor[K, V, KR, VR]]


class AsyncProcessor(ABC, Generic[K, V, KR, VR]):
    """Processes the records of one task, several calls at once; each task makes a new instance, which all its
    calls share.

    ``init`` comes before the first record and ``close`` after the last one and before the last commit, both
    on the task's own thread; their results are committed. A task that fails is not closed.

    >>> import asyncio
    >>> class Words(AsyncProcessor):
    ...     def init(self, context):
    ...         self.context = context
    ...
    ...     async def process(self, record):
    ...         await asyncio.sleep(1 / len(record.value))  # asks a service
    ...         for word in record.value.split():
    ...             self.context.forward(record.key, word)
    >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    >>> builder.stream("lines").process_async(Words).send_to("words")
    >>> with TopologyTestDriver(builder.build(), application_id="demo", async_seed=7) as driver:
    ...     driver.pipe_records("lines", [("1", "an ox", 1), ("2", "two", 2), ("3", "three of them", 3)])
    ...     [record.value for record in driver.read_output("words")]
    ['an', 'ox', 'two', 'three', 'of', 'them']
    """

    def init(self, context: AsyncProcessorContext[KR, VR]) -> None:
        """Keep the context."""

    @abstractmethod
    def process(self, record: ProcessorRecord[K, V]) -> Awaitable[None] | None:
        """Process one record: written with ``async def``, or with ``def`` where the node has
        ``threads=True``.
        """

    def close(self) -> None:
        """Release the resources that ``init`` acquired."""


#: Makes a new processor for each task: a class, or a function without arguments.
AsyncProcessorDef = Callable[[], AsyncProcessor[K, V, KR, VR]]


class ValueTransformer(ABC, Generic[K, V, VR]):
    """Replaces the values of a table in one task; a new instance is made for each.

    ``init`` comes before the first record, when the task's stores are restored; ``close`` comes after the
    last one. The context forwards nothing: the result of ``transform`` is the new value.

    >>> from airflow_kstreams.streams import KStreamBuilder, StoreSpec, serdes
    >>> from airflow_kstreams.testing import TopologyTestDriver
    >>> class Highest(ValueTransformer):
    ...     def init(self, context):
    ...         self.highest = context.state_store("highest")
    ...
    ...     def transform(self, key, value):
    ...         highest = max(value or 0, self.highest.get(key) or 0)
    ...         self.highest.put(key, highest)
    ...         return highest
    >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
    >>> highest = StoreSpec(name="highest", key_serde=serdes.string(), value_serde=serdes.int64())
    >>> builder.table("prices").transform_values(Highest, highest).to_stream().send_to("highest-prices")
    >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
    ...     for price in (3, 5, 4):
    ...         driver.pipe_input("prices", key="a", value=price, timestamp_ms=0)
    ...     [record.value for record in driver.read_output("highest-prices")]
    [3, 5, 5]
    """

    def init(self, context: ProcessorContext) -> None:
        """Keep the context and look up the stores."""

    @abstractmethod
    def transform(self, key: K, value: V | None) -> VR | None:
        """Return the new value of a key; None deletes it.

        :param value: value in the table; None if the key was deleted.
        """

    def close(self) -> None:
        """Release the resources that ``init`` acquired."""


#: Makes a new transformer for each task: a class, or a function without arguments.
ValueTransformerDef = Callable[[], ValueTransformer[K, V, VR]]


class FixedKey:
    """The key of the record that one processor processes.

    :param services: services of its node.
    """

    __slots__ = ("_key", "_processing", "_record_context", "_where")

    def __init__(self, services: ProcessorServices) -> None:
        self._record_context = services.record_context
        self._where = f"task {services.task_id}: processor {services.node!r}"
        self._key: Any = None
        self._processing = False

    def processing(self, run: Forward, node: str) -> Forward:
        """Return the processor's closure, which remembers the key.

        :param node: name of the processor's node.
        """

        def run_keyed(key: Any, value: Any, _node: str = node) -> None:
            # The processor may change a key in place that is no plain value.
            self._key = self._kept(key)
            self._processing = True
            try:
                run(key, value)
            finally:
                self._processing = False

        return run_keyed

    def kept_by(self, forward: Forward) -> Forward:
        """Return a function to forward that takes only the record's own key."""

        def forward_keyed(key: Any, value: Any) -> None:
            if not self._processing:
                raise TopologyError(
                    f"{self._where} forwards while it processes no record, and process_values keeps each "
                    "record's key",
                    fix="forward in process() alone, or use process(...), which may forward any key at any "
                    "moment",
                )
            if not self._is_own(key):
                raise TopologyError(
                    f"{self._where} forwards another key than that of {self._place()}, and process_values "
                    "keeps keys",
                    fix="forward record.key, or use process(...): what groups or joins its results "
                    "repartitions them",
                )
            forward(key, value)

        return forward_keyed

    def _kept(self, key: Any) -> Any:
        try:
            return kept(key)
        except UncopyableError as error:
            raise self._incomparable(error) from error

    def _is_own(self, key: Any) -> bool:
        own = self._key
        if key is own:
            return True
        try:
            return is_unchanged(key, own)
        except UncopyableError as error:
            raise self._incomparable(error) from error

    def _incomparable(self, error: UncopyableError) -> TopologyError:
        return TopologyError(
            f"{self._where}: {error}, and process_values compares each key with what is forwarded",
            fix="give the class a __deepcopy__ and an __eq__, or use process(...)",
        )

    def _place(self) -> str:
        record = self._record_context.record
        if record is None:
            return "what reached it"
        return f"{record.topic()}-{record.partition()}@{record.offset()}"
