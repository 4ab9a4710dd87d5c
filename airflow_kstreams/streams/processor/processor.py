"""What users implement to process records one by one (KIP-28)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import msgspec

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
    """

    def init(self, context: ProcessorContext) -> None:  # noqa: B027  (overriding is optional)
        """Keep the context and look up the stores."""

    @abstractmethod
    def process(self, record: ProcessorRecord) -> None:
        """Process one record."""

    def close(self) -> None:  # noqa: B027  (overriding is optional)
        """Release what ``init`` acquired."""


#: Makes a new processor for each task: a class, or a function without arguments.
ProcessorDef = Callable[[], Processor]
