"""Turns columns and partitionings into Iceberg's, and back, and says what of a table is refused.

A partitioning is texts, one for each field: ``carrier`` (the value itself), ``year(at)``, ``month(at)``,
``day(at)``, ``hour(at)``, ``bucket(16, key)``, ``truncate(4, code)``. A field of a struct is written with
dots.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from pyiceberg import types
from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.sorting import SortDirection
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)

from airflow_kstreams.streams.errors import TableRefusedError
from airflow_kstreams.streams.table_plan import (
    Column,
    ColumnType,
    DecimalType,
    ListType,
    MapType,
    StructType,
)

if TYPE_CHECKING:
    from pyiceberg.table import Table

_PLAIN: dict[str, types.PrimitiveType] = {
    "text": types.StringType(),
    "long": types.LongType(),
    "int": types.IntegerType(),
    "double": types.DoubleType(),
    "float": types.FloatType(),
    "boolean": types.BooleanType(),
    "binary": types.BinaryType(),
    "date": types.DateType(),
    "instant": types.TimestamptzType(),
    "uuid": types.UUIDType(),
}
_NAMES: dict[type[types.IcebergType], str] = {type(iceberg): name for name, iceberg in _PLAIN.items()}
_TIME_UNITS: dict[str, Transform[Any, Any]] = {
    "year": YearTransform(),
    "month": MonthTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
}
_FIELD = re.compile(
    r"(?P<unit>year|month|day|hour)\((?P<of>[^()]++)\)"
    r"|(?P<kind>bucket|truncate)\((?P<n>\d++), *+(?P<column>[^()]++)\)"
)
#: The only version of the format whose rules for writers are all kept here.
_FORMAT_VERSION = 2


def iceberg_schema(columns: tuple[Column, ...]) -> Schema:
    """Return the schema of columns, with ids as a new table gives them."""
    ids = itertools.count(1)
    return Schema(*(_field(column, ids) for column in columns))


def iceberg_type(kind: ColumnType) -> types.IcebergType:
    """Return Iceberg's type of a column; ids of parts are provisional, a table gives its own."""
    return _type(kind, itertools.count(1))


def _field(column: Column, ids: Iterator[int]) -> types.NestedField:
    own = next(ids)
    return types.NestedField(own, column.name, _type(column.type, ids), required=column.required)


def _type(kind: ColumnType, ids: Iterator[int]) -> types.IcebergType:
    match kind:
        case DecimalType():
            return types.DecimalType(kind.precision, kind.scale)
        case ListType():
            own = next(ids)
            return types.ListType(own, _type(kind.item, ids), element_required=kind.required)
        case MapType():
            key, value = next(ids), next(ids)
            return types.MapType(
                key, types.StringType(), value, _type(kind.value, ids), value_required=kind.required
            )
        case StructType():
            return types.StructType(*(_field(column, ids) for column in kind.columns))
        case _:
            return _PLAIN[kind]


def columns_of(schema: Schema | types.StructType) -> tuple[Column, ...]:
    """Return the columns of a schema.

    A type that rows of ours cannot have stands in them under Iceberg's own name, e.g. ``timestamp``: no
    column of rows fits it.
    """
    return tuple(Column(each.name, _column_type(each.field_type), each.required) for each in schema.fields)


def _column_type(kind: types.IcebergType) -> ColumnType:
    match kind:
        case types.DecimalType():
            return DecimalType(kind.precision, kind.scale)
        case types.ListType():
            return ListType(_column_type(kind.element_type), kind.element_required)
        case types.MapType() if isinstance(kind.key_type, types.StringType):
            return MapType(_column_type(kind.value_type), kind.value_required)
        case types.StructType():
            return StructType(columns_of(kind))
        case _:
            return cast("ColumnType", _NAMES.get(type(kind), str(kind)))


def iceberg_spec(partition_by: tuple[str, ...], schema: Schema) -> PartitionSpec:
    """Return the partitioning of a new table.

    :raises TableRefusedError: a field is none that Iceberg has, or its column does not exist.
    """
    fields = []
    for number, text in enumerate(partition_by, 1000):
        column, name, transform = _parsed(text)
        usable = [each for each in schema.column_names if transform.can_transform(schema.find_type(each))]
        if column not in usable:
            raise TableRefusedError(
                f"partition field {text!r}: there is no column {column!r}, or its type has no such field",
                fix=f"name one of {', '.join(usable)} in it",
            )
        source = schema.find_field(column)
        fields.append(PartitionField(source.field_id, number, transform, name))
    return PartitionSpec(*fields)


def _parsed(text: str) -> tuple[str, str, Transform[Any, Any]]:
    """Return column, name and transform of a partition field."""
    found = _FIELD.fullmatch(text)
    if found is None:
        if "(" in text or ")" in text:
            raise TableRefusedError(
                f"Iceberg has no partition field {text!r}",
                fix="write a column, year(c), month(c), day(c), hour(c), bucket(n, c) or truncate(w, c)",
            )
        return text, text, IdentityTransform()
    if unit := found["unit"]:
        return found["of"], f"{found['of']}_{unit}", _TIME_UNITS[unit]
    column, number = found["column"], int(found["n"])
    if found["kind"] == "bucket":
        return column, f"{column}_bucket", BucketTransform(number)
    return column, f"{column}_trunc", TruncateTransform(number)


def partition_texts(spec: PartitionSpec, schema: Schema) -> tuple[str, ...]:
    """Return a partitioning as texts; fields that are not known are written as Iceberg prints them."""
    return tuple(_partition_text(field, schema) for field in spec.fields)


def _partition_text(field: PartitionField, schema: Schema) -> str:
    column = schema.find_column_name(field.source_id) or f"#{field.source_id}"
    match field.transform:
        case IdentityTransform():
            return column
        case BucketTransform():
            return f"bucket({field.transform.num_buckets}, {column})"
        case TruncateTransform():
            return f"truncate({field.transform.width}, {column})"
        case transform:
            return f"{transform}({column})"


def sorted_by(table: Table) -> tuple[str, ...]:
    """Return the columns by which rows of a file are sorted, as far as values ascend."""
    names = []
    for field in table.sort_order().fields:
        name = table.schema().find_column_name(field.source_id)
        if name is None or field.direction != SortDirection.ASC or str(field.transform) != "identity":
            break
        names.append(name)
    return tuple(names)


def refused_features(table: Table) -> tuple[str, ...]:
    """Return a sentence for each feature of a table that keeps us from writing to it."""
    metadata = table.metadata
    said: list[str] = []
    if metadata.format_version != _FORMAT_VERSION:
        said.append(f"it has format version {metadata.format_version}, and only 2 is written here")
    said += [
        f"partition field {text} is of a kind that is not written here"
        for text in partition_texts(table.spec(), table.schema())
        if not _is_known(text)
    ]
    main = metadata.refs.get(MAIN_BRANCH)
    if main is not None and main.snapshot_ref_type != SnapshotRefType.BRANCH:
        said.append("its main is a tag, not a branch")
    properties = metadata.properties
    if properties.get("write.wap.enabled", "").lower() == "true":
        said.append("it publishes only what was audited (write.wap.enabled), and commits here are not staged")
    if "encryption.key-id" in properties:
        said.append("it is encrypted (encryption.key-id), and files here are not")
    if "write.py-location-provider.impl" in properties:
        said.append("it names code that chooses locations of files (write.py-location-provider.impl)")
    if _has_equality_deletes(table):
        said.append("it has equality deletes, which are neither read nor kept here: compact it in its engine")
    return tuple(said)


def _is_known(text: str) -> bool:
    if text.startswith("#"):
        return False
    return "(" not in text or _FIELD.fullmatch(text) is not None


def _has_equality_deletes(table: Table) -> bool:
    """Look at the newest snapshot's summary; where that does not say, at its delete files."""
    snapshot = table.metadata.current_snapshot()
    if snapshot is None:
        return False
    said: Mapping[str, str] = snapshot.summary or {}
    if said.get("total-delete-files") == "0":
        return False
    if (deletes := said.get("total-equality-deletes")) is not None:
        return bool(deletes != "0")
    return any(
        entry.data_file.content == DataFileContent.EQUALITY_DELETES
        for manifest in snapshot.manifests(table.io)
        if manifest.content == ManifestContent.DELETES
        for entry in manifest.fetch_manifest_entry(table.io)
    )
