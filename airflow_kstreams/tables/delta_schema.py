"""Turns columns into Delta's, and Delta's into columns and what is refused.

Delta has no UUID: such a column is text in a table that is made here. It knows no partition field but the
value of a column: a date or hour of an instant is a column of its own, which the writer writes. It does not
widen the type of a column without a feature of the table that deltalake cannot write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from deltalake import DeltaTable, Schema

from airflow_kstreams.streams.errors import TableRefusedError
from airflow_kstreams.streams.table_plan import (
    Column,
    ColumnType,
    DecimalType,
    ListType,
    MapType,
    StructType,
)

_TO_DELTA = {
    "text": "string",
    "uuid": "string",
    "long": "long",
    "int": "integer",
    "double": "double",
    "float": "float",
    "boolean": "boolean",
    "binary": "binary",
    "date": "date",
    "instant": "timestamp",
}
_FROM_DELTA = {delta: name for name, delta in _TO_DELTA.items() if name != "uuid"}
_DECIMAL = re.compile(r"decimal\((\d+), *(\d+)\)")
#: Features for writers whose rules are kept here, or hold for what is refused below on its own.
_KNOWN_FEATURES = {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors",
    "generatedColumns",
    "invariants",
    "timestampNtz",
}
#: From this version of the protocol on, a table lists its features; the ones before are known.
_LISTED_FEATURES = 7
#: Version by which a table has identity columns, whether a column is one or not.
_IDENTITY_COLUMNS = 6
#: Metadata of a column that asks something of each writer -> what it is.
_COLUMN_RULES = {
    "delta.generationExpression": "is generated",
    "delta.identity.start": "is an identity column",
    "delta.invariants": "has an invariant",
    "CURRENT_DEFAULT": "has a default",
}
_SIZES = {
    "": 1,
    "b": 1,
    "k": 1 << 10,
    "kb": 1 << 10,
    "m": 1 << 20,
    "mb": 1 << 20,
    "g": 1 << 30,
    "gb": 1 << 30,
}
_SIZE = re.compile(r"(\d+)\s*([a-z]*)")


def delta_schema(columns: tuple[Column, ...]) -> Schema:
    """Return the schema of columns."""
    return Schema.from_json(json.dumps(_struct(columns)))


def _struct(columns: tuple[Column, ...]) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [
            {
                "name": column.name,
                "type": _type(column.type),
                "nullable": not column.required,
                "metadata": {},
            }
            for column in columns
        ],
    }


def _type(kind: ColumnType) -> Any:
    match kind:
        case DecimalType():
            return f"decimal({kind.precision},{kind.scale})"
        case ListType():
            return {"type": "array", "elementType": _type(kind.item), "containsNull": not kind.required}
        case MapType():
            return {
                "type": "map",
                "keyType": "string",
                "valueType": _type(kind.value),
                "valueContainsNull": not kind.required,
            }
        case StructType():
            return _struct(kind.columns)
        case _:
            return _TO_DELTA[kind]


def columns_of(schema: Schema) -> tuple[Column, ...]:
    """Return the columns of a schema.

    A type that rows of ours cannot have stands in them under Delta's own name, e.g. ``timestamp_ntz``.
    """
    return _columns(json.loads(schema.to_json()))


def _columns(struct: Mapping[str, Any]) -> tuple[Column, ...]:
    return tuple(
        Column(field["name"], _column_type(field["type"]), not field["nullable"])
        for field in struct["fields"]
    )


def _column_type(kind: Any) -> ColumnType:
    if isinstance(kind, str):
        if found := _DECIMAL.fullmatch(kind):
            return DecimalType(int(found[1]), int(found[2]))
        return cast("ColumnType", _FROM_DELTA.get(kind, kind))
    match kind["type"]:
        case "array":
            return ListType(_column_type(kind["elementType"]), not kind["containsNull"])
        case "map" if kind["keyType"] == "string":
            return MapType(_column_type(kind["valueType"]), not kind["valueContainsNull"])
        case "struct":
            return StructType(_columns(kind))
        case _:
            return cast("ColumnType", json.dumps(kind))


def partition_columns(partition_by: tuple[str, ...], columns: tuple[Column, ...]) -> list[str]:
    """Return the columns that a new table is partitioned by.

    :raises TableRefusedError: a field is no column, or one whose values cannot name a partition.
    """
    types = {column.name: column.type for column in columns}
    usable = [
        name for name, kind in types.items() if kind != "binary" and isinstance(kind, str | DecimalType)
    ]
    for name in partition_by:
        if name not in usable:
            found = f"a column of type {types[name]}" if name in types else "no column"
            raise TableRefusedError(
                f"partition field {name!r}: Delta partitions by the value of a column, and it is {found}",
                fix=f"name one of {', '.join(usable)}",
            )
    return list(partition_by)


def refused_features(table: DeltaTable, configuration: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each feature of a table that keeps us from writing to it."""
    protocol = table.protocol()
    said = []
    if protocol.min_writer_version > _LISTED_FEATURES:
        said.append(f"it asks for writers of version {protocol.min_writer_version} of Delta's protocol")
    if protocol.min_writer_version == _IDENTITY_COLUMNS:
        said.append("it asks for writers that know identity columns (version 6 of Delta's protocol)")
    said += [
        f"it has the feature {name}, which is not written here"
        for name in sorted(set(protocol.writer_features or ()) - _KNOWN_FEATURES)
    ]
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        said.append("its columns are mapped to other names in files (delta.columnMapping.mode)")
    if configuration.get("delta.enableDeletionVectors", "false").lower() == "true":
        said.append("it has deletion vectors (delta.enableDeletionVectors)")
    said += [
        f"it has the constraint {name.removeprefix('delta.constraints.')}, which is not checked here"
        for name in sorted(configuration)
        if name.startswith("delta.constraints.")
    ]
    if "delta.setTransactionRetentionDuration" in configuration:
        said.append(
            "other writers drop marks of its applications after a time "
            "(delta.setTransactionRetentionDuration): a run could land twice"
        )
    if configuration.get("delta.randomizeFilePrefixes", "false").lower() == "true":
        said.append("it chooses names of folders itself (delta.randomizeFilePrefixes)")
    return (*said, *_refused_columns("", json.loads(table.schema().to_json())))


def _refused_columns(prefix: str, struct: Mapping[str, Any]) -> Iterator[str]:
    for field in struct["fields"]:
        name = f"{prefix}{field['name']}"
        yield from (
            f"column {name} {what}" for rule, what in _COLUMN_RULES.items() if rule in field["metadata"]
        )
        if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            yield from _refused_columns(f"{name}.", field["type"])


def target_bytes(configuration: Mapping[str, str]) -> int:
    """Return the size of files that a table asks for, bytes; 0 if it does not say.

    >>> target_bytes({"delta.targetFileSize": "128mb"})
    134217728
    """
    found = _SIZE.fullmatch(configuration.get("delta.targetFileSize", "0").strip().lower())
    if found is None or found[2] not in _SIZES:
        return 0
    return int(found[1]) * _SIZES[found[2]]
