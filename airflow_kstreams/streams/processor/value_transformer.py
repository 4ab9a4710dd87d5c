"""Defines the class that users derive to replace a table's values by key, stores and time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic

from airflow_kstreams.streams.processor.context import ProcessorContext
from airflow_kstreams.streams.type_variables import VR, K, V


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
        """Release what ``init`` acquired."""


#: Makes a new transformer for each task: a class, or a function without arguments.
ValueTransformerDef = Callable[[], ValueTransformer[K, V, VR]]
