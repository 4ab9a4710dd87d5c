from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_kstreams.streams import KStream
from tests.typing.cases.shop import orders

if TYPE_CHECKING:
    import pyarrow as pa


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


totals: KStream[str, int] = orders.map_batches(doubled, batch_size=100)
placed: KStream[str, int] = orders.map_batches(doubled, with_offsets=True)

orders.map_batches(doubled, with_offsets="topic")  # error: with_offsets
orders.map_batches(doubled, size=100)  # error: size
orders.map_batches(doubled, batch_size="many")  # error: batch_size
orders.map_batches(100)  # error
