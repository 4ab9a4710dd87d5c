"""What users implement to process records one by one (KIP-28)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import msgspec

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.function_checks import is_async
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.processor.context import ProcessorContext


class ProcessorRecord(msgspec.Struct, frozen=True, gc=True):
    """A record as a processor sees it.

    :param key: deserialized, None if the record has none.
    :param value: deserialized, None if the record has none.
    :param timestamp_ms: of the record, or of the result that reached the processor; epoch milliseconds.
    :param headers: of the consumed record, in order.
    """

    key: Any
    value: Any
    timestamp_ms: int
    headers: Headers


class Processor(ABC):
    """Processes the records of one task; a new instance is made for each.

    ``init`` comes before the first record, when the task's stores are restored; ``close`` comes after the
    last record and before the last commit, so that what it forwards or stores is committed. A task that fails
    is not closed.

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

    def init(self, context: ProcessorContext) -> None:  # noqa: B027  (overriding is optional)
        """Keep the context and look up the stores."""

    @abstractmethod
    def process(self, record: ProcessorRecord) -> None:
        """Process one record."""

    def punctuate(self, stream_time_ms: int) -> None:  # noqa: B027  (overriding is optional)
        """Do what ``context.schedule`` asked for.

        :param stream_time_ms: the multiple of the interval that stream time has reached, or the time of day.
        """

    def close(self) -> None:  # noqa: B027  (overriding is optional)
        """Release what ``init`` acquired."""


def refuse_async(kind: type, what: str) -> None:
    """Refuse a class of processors with asynchronous methods: what they give would never run.

    :param what: names the processor in the message.
    :raises TopologyError: a method is declared with ``async def``.
    """
    for name in ("init", "process", "punctuate", "close"):
        method = getattr(kind, name, None)
        if method is not None and is_async(method):
            raise TopologyError(
                f"{what}: {kind.__name__}.{name} is async: it would only give a coroutine, which never runs",
                fix=f"write {name} with def",
            )


#: Makes a new processor for each task: a class, or a function without arguments.
ProcessorDef = Callable[[], Processor]
