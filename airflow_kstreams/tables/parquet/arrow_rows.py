"""Makes Arrow batches of rows, and the partition values of the rows in them.

Rule: a row that has passed the checks of its table
(:mod:`airflow_kstreams.streams.tables.row_values`) fits. Rows of other origin may raise an error of Arrow's
or Python's.

``pyarrow.array``, ``pyarrow.scalar``, functions of ``pyarrow.compute`` that are given Python numbers, and
``as_py`` of an instant import pandas if it is installed: half a second of CPU time and 50 MB. So arrays are
made of buffers. Of rows that are known to fit this is no slower: an instant takes 0.3 µs instead of 0.7, a
number 0.02 instead of 0.06, a text 0.08 instead of 0.05.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from itertools import accumulate
from struct import pack
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from airflow_kstreams.streams.kstream.operators.arrow_columns import binary_buffers, bitmap, text_buffers
from airflow_kstreams.streams.table_plan import (
    Column,
    ColumnType,
    DecimalType,
    ListType,
    MapType,
    StructType,
)
from airflow_kstreams.streams.tables.partition_fields import PartitionField, type_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = _EPOCH.toordinal()
_INSTANT = pa.timestamp("us", tz="UTC")
_PLAIN: Mapping[str, pa.DataType] = {
    "text": pa.string(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "instant": _INSTANT,
    "uuid": pa.uuid(),
    "int": pa.int32(),
    "float": pa.float32(),
}
#: A value of a type, where there is None.
_STAND_INS: Mapping[str, Any] = {
    "text": "",
    "long": 0,
    "double": 0.0,
    "boolean": False,
    "binary": b"",
    "date": date(1970, 1, 1),
    "instant": _EPOCH,
    "uuid": UUID(int=0),
    "int": 0,
    "float": 0.0,
}
_EXACT = Context(prec=100)


# Types


def arrow_schema(columns: Iterable[Column], ids: Mapping[str, int] | None = None) -> pa.Schema:
    """Return the Arrow schema of columns.

    :param columns: the columns.
    :param ids: dotted name of a column or of a part of it (``tags.element``, ``prices.key``,
        ``prices.value``) -> its id in Parquet files; parts that are not named have none.
    """
    return pa.schema([_field(column.name, column.type, column.required, "", ids or {}) for column in columns])


def arrow_type(kind: ColumnType) -> pa.DataType:
    """Return the Arrow type of a column."""
    return _type(kind, "", {})


def _field(name: str, kind: ColumnType, required: bool, path: str, ids: Mapping[str, int]) -> pa.Field:
    path = f"{path}{name}"
    metadata = {b"PARQUET:field_id": str(ids[path]).encode()} if path in ids else None
    return pa.field(name, _type(kind, f"{path}.", ids), nullable=not required, metadata=metadata)


def _type(kind: ColumnType, path: str, ids: Mapping[str, int]) -> pa.DataType:
    match kind:
        case DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case ListType():
            return pa.list_(_field("element", kind.item, kind.required, path, ids))
        case MapType():
            key = _field("key", "text", True, path, ids)
            return pa.map_(key, _field("value", kind.value, kind.required, path, ids))
        case StructType():
            return pa.struct(
                [_field(each.name, each.type, each.required, path, ids) for each in kind.columns]
            )
        case _:
            return _PLAIN[kind]


# Rows

#: Makes an array of values, one or more.
Maker = Callable[[Sequence[Any]], pa.Array]


class ArrowRows:
    """Makes batches of rows.

    :param columns: columns of the rows.
    :param ids: as for :func:`arrow_schema`.
    :ivar schema: schema of the batches.
    """

    def __init__(self, columns: Iterable[Column], ids: Mapping[str, int] | None = None) -> None:
        columns = tuple(columns)
        self.schema = arrow_schema(columns, ids)
        self._makers = [
            _maker(column.type, field.type, required=column.required)
            for column, field in zip(columns, self.schema, strict=True)
        ]

    def batch(self, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
        """Return a batch of rows.

        :param rows: one or more rows, each with a value for each column.
        """
        columns = zip(*rows, strict=True)
        arrays = [make(values) for make, values in zip(self._makers, columns, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _maker(kind: ColumnType, arrow: pa.DataType, *, required: bool) -> Maker:
    """Return the function that makes arrays of a column's values."""
    match kind:
        case ListType():
            items = _maker(kind.item, arrow.value_type, required=kind.required)
            return lambda values: _lists(values, arrow, items)
        case MapType():
            keys = _maker("text", arrow.key_type, required=True)
            items = _maker(kind.value, arrow.item_type, required=kind.required)
            return lambda values: _maps(values, arrow, keys, items)
        case StructType():
            return _struct_maker(kind, arrow)
        case "uuid":
            plain = _plain_maker(kind, pa.binary(16), required=required)
            return lambda values: pa.ExtensionArray.from_storage(arrow, plain(values))
        case _:
            return _plain_maker(kind, arrow, required=required)


def _plain_maker(kind: ColumnType, arrow: pa.DataType, *, required: bool) -> Maker:
    stand_in, buffers_of = _stand_in(kind), _buffers_of(kind)

    def make(values: Sequence[Any]) -> pa.Array:
        validity, nulls = None, 0
        if not required and None in values:
            validity, nulls = _validity(values)
            values = [stand_in if value is None else value for value in values]
        buffers = [validity, *map(pa.py_buffer, buffers_of(values))]
        return pa.Array.from_buffers(arrow, len(values), buffers, nulls)

    return make


def _buffers_of(kind: ColumnType) -> Callable[[Sequence[Any]], Iterable[bytes]]:
    """Return the function that makes the buffers of values without None, the bitmap excepted."""
    match kind:
        case DecimalType():
            scale = kind.scale
            return lambda values: (b"".join([_unscaled(value, scale) for value in values]),)
        case _:
            return _BUFFERS[str(kind)]


_MICROSECOND = timedelta(microseconds=1)
_BUFFERS: Mapping[str, Callable[[Sequence[Any]], Iterable[bytes]]] = {
    "text": text_buffers,
    "binary": binary_buffers,
    "long": lambda values: (pack(f"{len(values)}q", *values),),
    "double": lambda values: (pack(f"{len(values)}d", *values),),
    "boolean": lambda values: (bitmap(values),),
    "date": lambda values: (pack(f"{len(values)}i", *[each.toordinal() - _EPOCH_DAY for each in values]),),
    "instant": lambda values: (
        pack(f"{len(values)}q", *[(each - _EPOCH) // _MICROSECOND for each in values]),
    ),
    "uuid": lambda values: (b"".join([each.bytes for each in values]),),
    "int": lambda values: (pack(f"{len(values)}i", *values),),
    "float": lambda values: (pack(f"{len(values)}f", *values),),
}


def _unscaled(number: Decimal, scale: int) -> bytes:
    return int(number.scaleb(scale, context=_EXACT)).to_bytes(16, sys.byteorder, signed=True)


def _validity(values: Sequence[Any]) -> tuple[pa.Buffer | None, int]:
    """Return the bitmap of values that are not None, and the number of the others."""
    there = [value is not None for value in values]
    nulls = there.count(False)
    return (pa.py_buffer(bitmap(there)) if nulls else None), nulls


def _array(make: Maker, values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    return make(values) if values else pa.nulls(0, arrow)


def _lists(values: Sequence[list[Any] | None], arrow: pa.DataType, items: Maker) -> pa.Array:
    given = [each for value in values if value is not None for each in value]
    return _nested(values, arrow, _array(items, given, arrow.value_type))


def _maps(values: Sequence[dict[str, Any] | None], arrow: pa.DataType, keys: Maker, items: Maker) -> pa.Array:
    given = [value for value in values if value is not None]
    entries = pa.StructArray.from_arrays(
        [
            _array(keys, [key for value in given for key in value], arrow.key_type),
            _array(items, [each for value in given for each in value.values()], arrow.item_type),
        ],
        fields=[arrow.key_field, arrow.item_field],
    )
    return _nested(values, arrow, entries)


def _nested(values: Sequence[Any], arrow: pa.DataType, items: pa.Array) -> pa.Array:
    """Return the array of lists or maps, given the items of all of them."""
    validity, nulls = _validity(values)
    ends = accumulate((0 if value is None else len(value) for value in values), initial=0)
    offsets = pa.py_buffer(pack(f"{len(values) + 1}i", *ends))
    return pa.Array.from_buffers(arrow, len(values), [validity, offsets], nulls, children=[items])


def _struct_maker(kind: StructType, arrow: pa.DataType) -> Maker:
    makers = [
        _maker(column.type, arrow.field(place).type, required=column.required)
        for place, column in enumerate(kind.columns)
    ]
    stand_in = _stand_in(kind)

    def make(values: Sequence[tuple[Any, ...] | None]) -> pa.Array:
        validity, nulls = _validity(values)
        columns = zip(*(stand_in if value is None else value for value in values), strict=True)
        arrays = [maker(column) for maker, column in zip(makers, columns, strict=True)]
        return pa.Array.from_buffers(arrow, len(values), [validity], nulls, children=arrays)

    return make


def _stand_in(kind: ColumnType) -> Any:
    """Return a value that stands where there is None."""
    match kind:
        case DecimalType():
            return Decimal(0)
        case ListType():
            return []
        case MapType():
            return {}
        case StructType():
            return tuple(_stand_in(each.type) if each.required else None for each in kind.columns)
        case _:
            return _STAND_INS[kind]


# Partition values


def column_array(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return the array of a column, or of a field within structs: None where a struct is None. Ids are bytes.

    :param name: name of the column, dotted for a field.
    """
    first, *rest = name.split(".")
    array = batch.column(first)
    for part in rest:
        array = pc.struct_field(array, part)
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def long_scalar(value: int) -> pa.Scalar:
    """Return a number as Arrow's compute functions take it without pandas."""
    return pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(pack("q", value))])[0]


_ZERO, _HOUR, _DAY = long_scalar(0), long_scalar(3_600_000_000), long_scalar(86_400_000_000)
_MONTHS, _FIRST_YEAR = long_scalar(12), long_scalar(1970)
_ONE = long_scalar(1)


class PartitionValues:
    """Computes the partition values of the rows of batches.

    Values are those of Iceberg's specification: years, months, days and hours since 1970, of instants in UTC,
    rounded towards minus infinity; None stays None.

    :param columns: columns of the rows.
    :param fields: fields of the partitioning.
    """

    def __init__(self, columns: tuple[Column, ...], fields: Iterable[PartitionField]) -> None:
        self._fields: list[tuple[PartitionField, ColumnType]] = []
        for field in fields:
            kind = type_of(field.column, columns)
            if kind is None:
                raise KeyError(field.column)
            self._fields.append((field, kind))

    def arrays(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the array of each field's values, in the order of the rows."""
        return [_transformed(column_array(batch, field.column), field, kind) for field, kind in self._fields]

    def python(self, values: Sequence[pa.Scalar]) -> tuple[Any, ...]:
        """Return the values of one row, as :class:`FileFacts` has them."""
        return tuple(
            _python(value, kind if field.transform in ("identity", "truncate") else "long")
            for value, (field, kind) in zip(values, self._fields, strict=True)
        )


def _transformed(array: pa.Array, field: PartitionField, kind: ColumnType) -> pa.Array:
    match field.transform:
        case "bucket":
            return _buckets(array, field.argument)
        case "truncate":
            return _truncated(array, field.argument, kind)
        case "year" | "month" | "day" | "hour":
            return _time_unit(array, field.transform, kind)
        case _:
            return array


def _buckets(array: pa.Array, count: int) -> pa.Array:
    from pyiceberg_core import transform  # comes with the extra iceberg; Delta has no buckets

    return transform.bucket(array, count)


def _time_unit(array: pa.Array, unit: str, kind: ColumnType) -> pa.Array:
    """Return the number of units since 1970."""
    if kind == "date":
        if unit == "day":
            return array.view(pa.int32()).cast(pa.int64())
    else:
        # Without its zone, in UTC as it is: zones would be looked up.
        array = array.view(pa.timestamp("us"))
        if unit in ("hour", "day"):
            begins = pc.floor_temporal(array, unit=unit).view(pa.int64())
            return pc.divide(begins, _HOUR if unit == "hour" else _DAY)
    years = pc.subtract(pc.year(array), _FIRST_YEAR)
    if unit == "year":
        return years
    return pc.add(pc.multiply(years, _MONTHS), pc.subtract(pc.month(array), _ONE))


def _truncated(array: pa.Array, width: int, kind: ColumnType) -> pa.Array:
    match kind:
        case "text":
            return pc.utf8_slice_codeunits(array, 0, width)
        case "binary":
            return pc.binary_slice(array, 0, width)
        case DecimalType():
            return _truncated_decimals(array, width, kind)
        case _:
            step = long_scalar(width)
            rest = pc.subtract(array, pc.multiply(pc.divide(array, step), step))
            below = pc.if_else(pc.less(rest, _ZERO), pc.add(rest, step), rest)
            # Wraps around at the smallest numbers, as Java's does.
            return pc.subtract(array, below)


def _truncated_decimals(array: pa.Array, width: int, kind: DecimalType) -> pa.Array:
    """Truncate each value that is there once in Python: there are few of them, else nobody partitions so."""
    encoded = array.dictionary_encode()
    unscaled = (int(each.scaleb(kind.scale, context=_EXACT)) for each in encoded.dictionary.to_pylist())
    data = b"".join((each - each % width).to_bytes(16, sys.byteorder, signed=True) for each in unscaled)
    known = pa.Array.from_buffers(array.type, len(encoded.dictionary), [None, pa.py_buffer(data)])
    return known.take(encoded.indices)


def _python(value: pa.Scalar, kind: ColumnType) -> Any:
    if not value.is_valid:
        return None
    match kind:
        case "instant":
            return _EPOCH + timedelta(microseconds=value.cast(pa.int64()).as_py())
        case "uuid":
            return UUID(bytes=value.as_py())
        case _:
            return value.as_py()
