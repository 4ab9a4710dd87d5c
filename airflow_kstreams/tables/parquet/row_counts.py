"""Counts the values of a column, batch by batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc


def counts_in(batches: Iterable[pa.RecordBatch]) -> dict[str, int]:
    """Return how many rows have each value; rows without one are left out.

    :param batches: batches whose only column has text.
    """
    found: Counter[str] = Counter()
    for batch in batches:
        counts = pc.value_counts(batch.column(0).cast(pa.string()))
        found.update(
            dict(zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True))
        )
    return {value: count for value, count in found.items() if value is not None}
