"""Takes the facts of a Parquet file from its footer, so that a commit opens no file.

Rule: a bound is right or absent. Parquet's own statistics leave NaN out, which engines order in different
ways, so a column with one has no bounds here. They have no bounds of values over 4 KB. Long texts and bytes
are cut: the lower one at its end, the upper one with its last sign raised, and left out where none can be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from airflow_kstreams.streams.table_plan import Column, ColumnType, DecimalType, StructType
from airflow_kstreams.streams.tables.table_port import ColumnFacts
from airflow_kstreams.tables.parquet.arrow_rows import column_array

#: Signs or bytes of a bound.
_BOUND_LENGTH = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SURROGATES, _AFTER_SURROGATES, _LAST_SIGN = 0xD800, 0xE000, 0x10FFFF


def plain_columns(columns: tuple[Column, ...], path: str = "") -> dict[str, ColumnType]:
    """Return the columns that have one value without parts in each row, by their dotted names."""
    found: dict[str, ColumnType] = {}
    for column in columns:
        name = f"{path}{column.name}"
        if isinstance(column.type, StructType):
            found |= plain_columns(column.type.columns, f"{name}.")
        elif isinstance(column.type, str | DecimalType):
            found[name] = column.type
    return found


def column_facts(
    metadata: Any, plain: Mapping[str, ColumnType], nans: Collection[str]
) -> dict[str, ColumnFacts]:
    """Return the statistics of a file's columns.

    :param metadata: the file's ``pyarrow.parquet.FileMetaData``.
    :param plain: columns without parts, by their dotted names.
    :param nans: those with a NaN in this file.
    """
    found = {}
    for place in range(metadata.num_columns):
        name = metadata.schema.column(place).path
        if name not in plain:
            continue
        facts = _facts_of([*_statistics(metadata, place)], plain[name], has_nan=name in nans)
        if facts is not None:
            found[name] = facts
    return found


def row_groups(metadata: Any) -> tuple[int, ...]:
    """Return the offset at which each row group of a file begins."""
    firsts = (metadata.row_group(group).column(0) for group in range(metadata.num_row_groups))
    return tuple(
        min(filter(None, (first.dictionary_page_offset, first.data_page_offset))) for first in firsts
    )


def nan_columns(batch: pa.RecordBatch, plain: Mapping[str, ColumnType]) -> Iterator[str]:
    """Give the columns of a batch that have a NaN."""
    for name, kind in plain.items():
        if kind in ("double", "float") and pc.any(pc.is_nan(column_array(batch, name))).as_py():
            yield name


def _statistics(metadata: Any, place: int) -> Iterator[Any]:
    for group in range(metadata.num_row_groups):
        yield metadata.row_group(group).column(place).statistics


def _facts_of(groups: list[Any], kind: ColumnType, *, has_nan: bool) -> ColumnFacts | None:
    """:param groups: the column's statistics in each row group."""
    if not all(each is not None and each.has_null_count for each in groups):
        return None
    nulls = sum(each.null_count for each in groups)
    with_values = [each for each in groups if each.num_values]
    if has_nan or not with_values or not all(each.has_min_max for each in with_values):
        return ColumnFacts(nulls)
    if kind == "instant":  # as numbers: for objects, Arrow looks up time zones
        lower = _EPOCH + timedelta(microseconds=min(each.min_raw for each in with_values))
        upper = _EPOCH + timedelta(microseconds=max(each.max_raw for each in with_values))
        return ColumnFacts(nulls, lower, upper)
    lower = min(_value(each.min, kind) for each in with_values)
    upper = max(_value(each.max, kind) for each in with_values)
    return ColumnFacts(nulls, *_bounds(lower, upper))


def _value(value: Any, kind: ColumnType) -> Any:
    """Return a value of a footer as columns have it."""
    match kind:
        case "uuid":
            return UUID(bytes=value)
        case DecimalType() if not isinstance(value, Decimal):
            return Decimal(value).scaleb(-kind.scale)
        case _:
            return value


def _bounds(lower: Any, upper: Any) -> tuple[Any, Any]:
    match lower:
        case str():
            return lower[:_BOUND_LENGTH], _upper_text(upper)
        case bytes():
            return lower[:_BOUND_LENGTH], _upper_bytes(upper)
        case _:
            return lower, upper


def _upper_text(text: str) -> str | None:
    """Return a short text that is not below a text; None if there is none."""
    if len(text) <= _BOUND_LENGTH:
        return text
    for end in range(_BOUND_LENGTH, 0, -1):
        sign = ord(text[end - 1])
        if sign < _LAST_SIGN:
            raised = _AFTER_SURROGATES if sign + 1 == _SURROGATES else sign + 1
            return text[: end - 1] + chr(raised)
    return None


def _upper_bytes(data: bytes) -> bytes | None:
    """Return short bytes that are not below bytes; None if there are none."""
    if len(data) <= _BOUND_LENGTH:
        return data
    for end in range(_BOUND_LENGTH, 0, -1):
        if data[end - 1] < 0xFF:
            return data[: end - 1] + bytes([data[end - 1] + 1])
    return None
