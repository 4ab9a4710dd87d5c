"""Writes Parquet files for tests of tables, by pyarrow alone, with facts that the test's rows say."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_kstreams.streams.table_plan import (
    Column,
    ColumnType,
    DecimalType,
    ListType,
    MapType,
    StructType,
)
from airflow_kstreams.streams.tables.table_port import ColumnFacts, FileFacts

Row = Mapping[str, Any]
_PLAIN: dict[Any, pa.DataType] = {
    "text": pa.string(),
    "long": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "instant": pa.timestamp("us", "UTC"),
    "uuid": pa.binary(16),
}
_BOUNDED = {"text", "long", "double", "date", "instant"}


def arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """Return columns as Arrow's, without ids."""
    return pa.schema([pa.field(each.name, _type(each.type), nullable=not each.required) for each in columns])


def _type(kind: ColumnType) -> pa.DataType:
    match kind:
        case DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case ListType():
            return pa.list_(_type(kind.item))
        case MapType():
            return pa.map_(pa.string(), _type(kind.value))
        case StructType():
            return pa.struct(
                [pa.field(each.name, _type(each.type), nullable=not each.required) for each in kind.columns]
            )
        case _:
            return _PLAIN[kind]


def parquet_bytes(schema: pa.Schema, rows: Sequence[Row]) -> bytes:
    """Return a Parquet file with rows; what a row does not have is null."""
    out = io.BytesIO()
    write_rows(out, schema, rows)
    return out.getvalue()


def write_rows(out: BinaryIO, schema: pa.Schema, rows: Sequence[Row]) -> None:
    """Write rows as a Parquet file."""
    arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), out)


def decoded(data: bytes) -> list[dict[str, Any]]:
    """Return the rows of a Parquet file."""
    return list(pq.read_table(io.BytesIO(data)).to_pylist(maps_as_pydicts="strict"))


def facts(
    path: str, size: int, columns: tuple[Column, ...], rows: Sequence[Row], partition: tuple[Any, ...]
) -> FileFacts:
    """Return the facts of a file."""
    return FileFacts(
        path=path,
        size=size,
        rows=len(rows),
        partition=partition,
        columns={each.name: _column_facts(each, rows) for each in columns if each.type in _BOUNDED},
        row_groups=(4,),
    )


def _column_facts(column: Column, rows: Sequence[Row]) -> ColumnFacts:
    values = [row[column.name] for row in rows if row.get(column.name) is not None]
    return ColumnFacts(len(rows) - len(values), min(values, default=None), max(values, default=None))
