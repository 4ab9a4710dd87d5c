"""Defines the class that users derive to process records one by one (KIP-28)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Generic

import msgspec

from airflow_kstreams.streams.hints.java_names import answers_java_names
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.processor.context import ProcessorContext
from airflow_kstreams.streams.type_variables import KR, VR, K, V


@answers_java_names
class ProcessorRecord(msgspec.Struct, Generic[K, V], frozen=True, gc=True):
    """A record for a processor.

    :param key: deserialized, None if the record has none.
    :param value: deserialized, None if the record has none.
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

    :cvar threads: whether ``process`` may run on several threads.

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

        :param stream_time_ms: the multiple of the interval that stream time has reached, or the time of day.
        """

    def close(self) -> None:
        """Release what ``init`` acquired."""


#: Makes a new processor for each task: a class, or a function without arguments.
ProcessorDef = Callable[[], Processor[K, V, KR, VR]]
