"""Finds the last row of each key among rows that stand in the order in which they were written."""

from __future__ import annotations

from array import array

import pyarrow as pa
import pyarrow.compute as pc


def last_places(keys: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the place of the last row of each key, ascending.

    :param keys: the key of each row, in the order of the rows; none is null. Ids are bytes.
    """
    rows = pa.Table.from_arrays([keys, places(0, len(keys))], names=["key", "place"])
    found = rows.group_by("key").aggregate([("place", "max")]).column("place_max").combine_chunks()
    return found.take(pc.sort_indices(found))


def places(first: int, end: int) -> pa.Array:
    """Return the whole numbers from the first to that before the end, without pandas."""
    numbers = array("q", range(first, end))
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])
