"""Reads staged files, and gives the last row of each key.

Keys are read first, and of them the last place of each is kept; then the rows at these places are read. So
memory holds the keys of the files and one batch of rows, whatever the size of the rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_kstreams.streams.tables.table_port import FileFacts, TableFiles
from airflow_kstreams.tables.parquet.arrow_rows import long_scalar
from airflow_kstreams.tables.parquet.last_rows import last_places

_READ_ROWS = 65_536


class StagedFiles:
    """Staged files, in the order in which their rows replace each other.

    :param files: storage of the table's files.
    :param staged: the files.
    :param key_column: column of the keys.
    """

    def __init__(self, files: TableFiles, staged: Collection[FileFacts], key_column: str) -> None:
        self._files, self._staged, self._key = files, list(staged), key_column

    @property
    def size(self) -> int:
        """Number of their bytes."""
        return sum(file.size for file in self._staged)

    @property
    def bounds(self) -> tuple[Any, Any]:
        """A key that no key is below, and one that no key is above; None for one that is not known."""
        facts = [file.columns.get(self._key) for file in self._staged]
        lower: list[Any] = [None if each is None else each.lower for each in facts]
        upper: list[Any] = [None if each is None else each.upper for each in facts]
        return (
            None if None in lower or not lower else min(lower),
            None if None in upper or not upper else max(upper),
        )

    def schema(self) -> pa.Schema:
        """Return the schema of the files, one or more."""
        with self._files.read(self._staged[0].path) as stream:
            return pq.ParquetFile(stream, pre_buffer=False).schema_arrow

    def keys(self) -> pa.ChunkedArray:
        """Return the key of each row, in the order of the rows; ids are bytes."""
        batches = self._batches([self._key])
        return pa.chunked_array([plain_keys(batch.column(0)) for batch in batches])

    def last_rows(self) -> Iterator[pa.RecordBatch]:
        """Give the last row of each key, in the order of the rows."""
        last = last_places(self.keys())
        places = memoryview(last.buffers()[1]).cast("q")[last.offset : last.offset + len(last)]
        first = 0
        for batch in self._batches():
            begin, end = bisect_left(places, first), bisect_left(places, first + batch.num_rows)
            if begin < end:
                yield batch.take(pc.subtract(last.slice(begin, end - begin), long_scalar(first)))
            first += batch.num_rows

    def _batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        for file in self._staged:
            with self._files.read(file.path) as stream:
                parquet = pq.ParquetFile(stream, pre_buffer=False)
                yield from parquet.iter_batches(_READ_ROWS, columns=columns)


def plain_keys(keys: pa.Array) -> pa.Array:
    """Return keys as those of a staged file and of a table are compared: ids are bytes."""
    return keys.storage if isinstance(keys, pa.ExtensionArray) else keys
