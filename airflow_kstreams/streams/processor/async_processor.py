"""Defines the class that users derive to process several records at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Generic

from airflow_kstreams.streams.processor.async_context import AsyncProcessorContext
from airflow_kstreams.streams.processor.processor import ProcessorRecord
from airflow_kstreams.streams.type_variables import KR, VR, K, V


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
        """Release what ``init`` acquired."""


#: Makes a new processor for each task: a class, or a function without arguments.
AsyncProcessorDef = Callable[[], AsyncProcessor[K, V, KR, VR]]
