from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.schema import Schema, index_name_by_id
from pyiceberg.types import (
    DecimalType as IcebergDecimal,
)
from pyiceberg.types import (
    ListType as IcebergList,
)
from pyiceberg.types import (
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
    UUIDType,
)
from pyiceberg.types import (
    MapType as IcebergMap,
)
from pyiceberg.types import (
    StructType as IcebergStruct,
)

from airflow_kstreams.streams.table_plan import (
    Column,
    ColumnType,
    DecimalType,
    ListType,
    MapType,
    StructType,
)
from airflow_kstreams.streams.tables.partition_fields import field_of
from airflow_kstreams.tables.parquet.arrow_rows import ArrowRows, PartitionValues, arrow_schema, arrow_type

PLACE = StructType((Column("city", "text"), Column("seen", "instant", required=False)))
COLUMNS = (
    Column("code", "text"),
    Column("fares", ListType(DecimalType(18, 2), required=False)),
    Column("prices", MapType("long"), required=False),
    Column("place", PLACE, required=False),
    Column("id", "uuid"),
)
SCHEMA = Schema(
    NestedField(7, "code", StringType(), required=True),
    NestedField(9, "fares", IcebergList(21, IcebergDecimal(18, 2), element_required=False), required=True),
    NestedField(
        11, "prices", IcebergMap(31, StringType(), 32, LongType(), value_required=True), required=False
    ),
    NestedField(
        12,
        "place",
        IcebergStruct(
            NestedField(41, "city", StringType(), required=True),
            NestedField(42, "seen", TimestamptzType(), required=False),
        ),
        required=False,
    ),
    NestedField(13, "id", UUIDType(), required=True),
)


def test_files_have_the_ids_of_the_table_when_it_gives_some() -> None:
    ids = {name: number for number, name in index_name_by_id(SCHEMA).items()}
    made = arrow_schema(COLUMNS, ids)
    assert pyarrow_to_schema(made) == SCHEMA
    assert {field.nullable for field in made} == {field.nullable for field in schema_to_pyarrow(SCHEMA)}


def test_columns_have_no_ids_when_the_table_gives_none() -> None:
    assert all(field.metadata is None for field in arrow_schema(COLUMNS))


@pytest.mark.parametrize(
    ("kind", "arrow"),
    [
        ("text", pa.string()),
        ("long", pa.int64()),
        ("int", pa.int32()),
        ("double", pa.float64()),
        ("float", pa.float32()),
        ("boolean", pa.bool_()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("instant", pa.timestamp("us", tz="UTC")),
        ("uuid", pa.uuid()),
        (DecimalType(38, 38), pa.decimal128(38, 38)),
    ],
)
def test_type_is_the_one_that_formats_share_when_a_column_is_plain(kind: ColumnType, arrow: Any) -> None:
    assert arrow_type(kind) == arrow


def test_batch_holds_the_rows_when_it_is_made() -> None:
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    rows: list[tuple[Any, ...]] = [
        ("a", [Decimal("1.50"), None], {"x": 1}, ("Bern", noon), UUID(int=1)),
        ("b", [], None, None, UUID(int=2)),
        ("c", [Decimal("-0.01")], {}, ("Chur", None), UUID(int=3)),
    ]
    batch = ArrowRows(COLUMNS).batch(rows)
    batch.validate(full=True)
    assert [tuple(row.values()) for row in batch.to_pylist()] == [
        ("a", [Decimal("1.50"), None], [("x", 1)], {"city": "Bern", "seen": noon}, UUID(int=1)),
        ("b", [], None, None, UUID(int=2)),
        ("c", [Decimal("-0.01")], [], {"city": "Chur", "seen": None}, UUID(int=3)),
    ]


def test_partition_value_is_none_when_a_struct_around_its_column_is() -> None:
    rows: list[tuple[Any, ...]] = [
        ("a", [], None, ("Bern", datetime(1969, 12, 31, 23, tzinfo=UTC)), UUID(int=1)),
        ("b", [], None, None, UUID(int=2)),
        ("c", [], None, ("Chur", None), UUID(int=3)),
    ]
    batch = ArrowRows(COLUMNS).batch(rows)
    values = PartitionValues(COLUMNS, [field_of("hour(place.seen)"), field_of("truncate(2, place.city)")])
    arrays = values.arrays(batch)
    assert [values.python([array[place] for array in arrays]) for place in range(3)] == [
        (-1, "Be"),
        (None, None),
        (None, "Ch"),
    ]


def test_dates_before_1970_lie_in_their_own_year_when_they_are_parted() -> None:
    columns = (Column("day", "date"),)
    batch = ArrowRows(columns).batch([(date(1969, 12, 31),), (date(1970, 1, 1),), (date(1, 1, 1),)])
    (years,) = PartitionValues(columns, [field_of("year(day)")]).arrays(batch)
    assert years.to_pylist() == [-1, 0, -1969]


def test_partitioning_is_refused_when_its_column_is_missing() -> None:
    with pytest.raises(KeyError, match="nowhere"):
        PartitionValues(COLUMNS, [field_of("hour(nowhere)")])
