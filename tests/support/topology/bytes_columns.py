"""Columns of records as ``airflow-kstreams-columns`` makes them, made of the records' own answers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate

from airflow_kstreams.streams.ports import BytesColumn, Record


def bytes_columns(records: Sequence[Record]) -> tuple[BytesColumn, BytesColumn]:
    return column_of([record.key() for record in records]), column_of([record.value() for record in records])


def column_of(objects: Sequence[bytes | None]) -> BytesColumn:
    """Return the column of objects, by the Arrow format's definition."""
    nulls = objects.count(None)
    bitmap = bytearray((len(objects) + 7) // 8)
    for at, each in enumerate(objects):
        bitmap[at // 8] |= (each is not None) << at % 8
    there = [each or b"" for each in objects]
    offsets = struct.pack(f"{len(there) + 1}i", *accumulate(map(len, there), initial=0))
    return (bytes(bitmap) if nulls else None), nulls, offsets, b"".join(there)
