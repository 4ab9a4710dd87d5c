"""Makes shapes of rows from an Arrow schema, without importing Arrow.

An Arrow type is known by its text, as ``str`` of it gives: ``int64``, ``timestamp[us, tz=UTC]``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from airflow_kstreams.streams.table_plan import DecimalType, ListType, MapType, PlainType, StructType
from airflow_kstreams.streams.tables.row_shapes import RowField, RowShape, ValueShape

_PLAIN: Mapping[str, PlainType] = {
    **dict.fromkeys(("string", "large_string", "string_view"), "text"),
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"), "long"),
    **dict.fromkeys(("halffloat", "float", "double"), "double"),
    **dict.fromkeys(("binary", "large_binary", "binary_view"), "binary"),
    "bool": "boolean",
    "date32[day]": "date",
    "extension<arrow.uuid>": "uuid",
}
_INSTANT = re.compile(r"timestamp\[(s|ms|us), tz=[^\]]{1,100}\]")
#: Beginning of a type's text -> what to write instead.
_INSTEAD = {
    "timestamp[ns": 'pa.timestamp("us", tz="UTC"): tables have microseconds',
    "timestamp": 'pa.timestamp("us", tz="UTC"): without a time zone it is no instant',
    "date64": "pa.date32()",
    "uint64": "pa.int64(), or pa.decimal128(20, 0)",
    "decimal256": "pa.decimal128(digits, scale), with 38 digits at most",
    "dictionary": "pa.string(), or the type of the dictionary's values",
    "fixed_size_binary": "pa.binary()",
    "map": "pa.map_(pa.string(), ...), with keys of text",
    "null": "another type, or leave the field out: it would have no values",
}
_OTHERWISE = (
    'one of pa.string(), int64(), float64(), bool_(), binary(), decimal128(), date32(), timestamp("us", '
    'tz="UTC"), uuid(), list_(), map_() and struct()'
)

#: Refuses a field, given its dotted name, what it is, and what to write instead.
Refuse = Callable[[str, str, str], NoReturn]


def is_arrow_schema(given: object) -> bool:
    """Return True if an object is a schema of Arrow."""
    return any(kind.__module__ == "pyarrow.lib" and kind.__name__ == "Schema" for kind in type(given).__mro__)


def arrow_shape(schema: Any, refuse: Refuse) -> RowShape:
    """Return the shape of dicts with the fields of a schema.

    :param schema: a ``pyarrow.Schema``.
    :param refuse: function that raises the error for a field.
    """
    return _row([*schema], "", refuse)


def _row(fields: list[Any], path: str, refuse: Refuse) -> RowShape:
    """:param fields: fields of Arrow, with name, type and ``nullable``."""
    made = [
        RowField(name=field.name, attribute=field.name, value=_value(field, f"{path}{field.name}", refuse))
        for field in fields
    ]
    return RowShape(type=None, name="dict", fields=tuple(made))


def _value(field: Any, path: str, refuse: Refuse) -> ValueShape:
    kind, text, required = field.type, str(field.type), not field.nullable
    if text in _PLAIN:
        return ValueShape(type=_PLAIN[text], required=required)
    if _INSTANT.fullmatch(text):
        return ValueShape(type="instant", required=required)
    if text.startswith(("decimal32(", "decimal64(", "decimal128(")) and 0 <= kind.scale <= kind.precision:
        return ValueShape(type=DecimalType(kind.precision, kind.scale), required=required)
    if text.startswith(("list<", "large_list<", "fixed_size_list<")):
        item = _value(kind.value_field, f"{path}[]", refuse)
        return ValueShape(type=ListType(item.column_type, item.required), required=required, item=item)
    if text.startswith("map<") and _PLAIN.get(str(kind.key_type)) == "text":
        item = _value(kind.item_field, f"{path}[]", refuse)
        return ValueShape(type=MapType(item.column_type, item.required), required=required, item=item)
    if text.startswith("struct<"):
        row = _row([kind.field(place) for place in range(kind.num_fields)], f"{path}.", refuse)
        return ValueShape(type=StructType(row.columns), required=required, row=row)
    instead = next((each for beginning, each in _INSTEAD.items() if text.startswith(beginning)), _OTHERWISE)
    return refuse(path, text, instead)
