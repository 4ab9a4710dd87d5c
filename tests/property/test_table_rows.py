"""Rows of tables come back from Parquet files as they went in, and lie in the partitions where Iceberg looks
for them; DuckDB, pyiceberg and plain Python judge.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch
from uuid import UUID

import duckdb
import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg import transforms, types

from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.table_plan import Column, ColumnType, DecimalType
from airflow_kstreams.streams.tables.partition_fields import field_of
from airflow_kstreams.streams.tables.row_types import Precision
from airflow_kstreams.streams.tables.specs import IcebergTable
from airflow_kstreams.streams.tables.table_port import FileFacts
from airflow_kstreams.streams.tables.table_rows import RowsWriter, UnfitRowError
from airflow_kstreams.tables.parquet import parquet_files
from airflow_kstreams.tables.parquet.arrow_rows import ArrowRows, PartitionValues
from airflow_kstreams.tables.parquet.parquet_files import FileNames, FilePlan, ParquetRows
from tests.support.examples import examples
from tests.support.tables.folder_files import FolderFiles

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CONTEXT = TaskRecordContext()
NAMES = FileNames(RowsWriter(application_id="app", run_id="run", task_id="0_0", attempt=1))

TEXT = st.one_of(st.text(max_size=6), st.sampled_from(["", "a" * 70, "\U0010ffff" * 70, "\ud7ff" * 70, "\0"]))
LONG = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), 2**63 - 1, -1, 0]))
DOUBLE = st.one_of(
    st.floats(), st.sampled_from([-0.0, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308])
)
BINARY = st.one_of(
    st.binary(max_size=6), st.sampled_from([b"\xff" * 70, b"\x00" * 70, b"\xfe" + b"\xff" * 70])
)
DATE = st.one_of(st.dates(), st.sampled_from([date.min, date.max, date(1969, 12, 31), date(1970, 1, 1)]))
INSTANT = st.one_of(
    st.datetimes(timezones=st.just(UTC)),
    st.sampled_from(
        [
            datetime.min.replace(tzinfo=UTC),
            datetime.max.replace(tzinfo=UTC),
            EPOCH,
            EPOCH - timedelta(microseconds=1),
            EPOCH - timedelta(hours=1),
            datetime(1968, 2, 29, 23, 59, 59, 999999, tzinfo=UTC),
        ]
    ),
)
IDS = st.one_of(st.uuids(), st.sampled_from([UUID(int=0), UUID(int=2**128 - 1)]))


def decimals(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**digits - 1
    whole = st.one_of(st.integers(-most, most), st.sampled_from([-most, most, 0, -1]))
    return whole.map(lambda number: Decimal(number).scaleb(-scale, context=Context(prec=100)))


class Part(msgspec.Struct):
    text: str
    at: datetime | None
    fares: list[Annotated[Decimal, Precision(20, 3)]]


class Row(msgspec.Struct):
    text: str
    long: int
    double: float
    flag: bool
    binary: bytes
    small: Annotated[Decimal, Precision(9, 2)]
    middle: Annotated[Decimal, Precision(18, 18)]
    large: Annotated[Decimal, Precision(38, 10)]
    day: date
    at: datetime
    id: UUID
    texts: list[str | None]
    prices: dict[str, float]
    part: Part
    parts: list[Part | None]
    maps: dict[str, dict[str, list[int]]]
    text_or: str | None
    long_or: int | None
    double_or: float | None
    flag_or: bool | None
    binary_or: bytes | None
    large_or: Annotated[Decimal, Precision(38, 0)] | None
    day_or: date | None
    at_or: datetime | None
    id_or: UUID | None
    texts_or: list[str] | None
    prices_or: dict[str, int | None] | None
    part_or: Part | None


PART = st.builds(Part, TEXT, INSTANT | st.none(), st.lists(decimals(20, 3), max_size=2))
ROW = st.builds(
    Row,
    text=TEXT,
    long=LONG,
    double=DOUBLE,
    flag=st.booleans(),
    binary=BINARY,
    small=decimals(9, 2),
    middle=decimals(18, 18),
    large=decimals(38, 10),
    day=DATE,
    at=INSTANT,
    id=IDS,
    texts=st.lists(TEXT | st.none(), max_size=3),
    prices=st.dictionaries(TEXT, DOUBLE, max_size=2),
    part=PART,
    parts=st.lists(PART | st.none(), max_size=2),
    maps=st.dictionaries(TEXT, st.dictionaries(TEXT, st.lists(LONG, max_size=2), max_size=2), max_size=2),
    text_or=TEXT | st.none(),
    long_or=LONG | st.none(),
    double_or=DOUBLE | st.none(),
    flag_or=st.booleans() | st.none(),
    binary_or=BINARY | st.none(),
    large_or=decimals(38, 0) | st.none(),
    day_or=DATE | st.none(),
    at_or=INSTANT | st.none(),
    id_or=IDS | st.none(),
    texts_or=st.lists(TEXT, max_size=2) | st.none(),
    prices_or=st.dictionaries(TEXT, LONG | st.none(), max_size=2) | st.none(),
    part_or=PART | st.none(),
)
TABLE = IcebergTable("a.b", row=Row)

#: Instants as numbers: DuckDB's own objects for them need a time zone.
_PART = "{{'text': {p}.text, 'at': epoch_us({p}.at), 'fares': {p}.fares}}"
QUERY = f"""
select * replace (
  epoch_us("at") as "at", epoch_us(at_or) as at_or,
  {_PART.format(p="part")} as part,
  case when part_or is null then null else {_PART.format(p="part_or")} end as part_or,
  list_transform(parts, p -> case when p is null then null else {_PART.format(p="p")} end) as parts
) from read_parquet(?, hive_partitioning=false)
"""


@contextmanager
def written(rows: list[tuple[Any, ...]], plan: FilePlan) -> Iterator[list[FileFacts]]:
    """Write rows into files, in looks of one row."""
    with tempfile.TemporaryDirectory() as folder, patch.object(parquet_files, "_LOOK_ROWS", 1):
        writer = ParquetRows(FolderFiles(Path(folder)), plan, NAMES)
        for row in rows:
            writer.add(row)
        yield writer.take()


def plain(value: Any) -> Any:
    """Return a value as DuckDB gives it, floats by what tells them apart."""
    match value:
        case float():
            return "nan" if math.isnan(value) else value.hex()
        case datetime():
            return (value - EPOCH) // timedelta(microseconds=1)
        case Part():
            return {name: plain(part) for name, part in msgspec.structs.asdict(value).items()}
        case list():
            return [*map(plain, value)]
        case dict():
            return {key: plain(each) for key, each in value.items()}
        case _:
            return value


@settings(max_examples=examples(100), deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=6))
def test_rows_come_back_equal_when_another_program_reads_the_files(rows: list[Row]) -> None:
    make = TABLE.row_of()
    made = [make(None, row, CONTEXT) for row in rows]
    with written(made, FilePlan(columns=TABLE.columns)) as files, duckdb.connect() as reader:
        reader.execute(QUERY, [[file.path for file in files]])
        found = [dict(zip(Row.__struct_fields__, row, strict=True)) for row in reader.fetchall()]
    assert [{name: plain(value) for name, value in row.items()} for row in found] == [
        {name: plain(value) for name, value in msgspec.structs.asdict(row).items()} for row in rows
    ]


#: Values that fit some types, and values that fit none.
ANYTHING = st.one_of(
    TEXT, LONG, DOUBLE, BINARY, DATE, INSTANT, IDS, st.booleans(), st.none(), decimals(9, 2), decimals(38,
    10), st.integers(), st.decimals(), st.datetimes(), st.text(alphabet=st.characters(categories=["Cs",
    "Ll"]), max_size=2), st.lists(TEXT | LONG | st.none(), max_size=2), st.dictionaries(TEXT | LONG, DOUBLE |
    LONG, max_size=2), PART, )  # fmt: skip


@settings(max_examples=examples(500), deadline=None)
@given(data=st.data(), row=ROW)
def test_row_never_fails_later_when_it_has_passed_the_checks(data: st.DataObject, row: Row) -> None:
    for name in data.draw(st.sets(st.sampled_from(Row.__struct_fields__), min_size=1, max_size=2)):
        setattr(row, name, data.draw(ANYTHING))
    try:
        made = TABLE.row_of()(None, row, CONTEXT)
    except UnfitRowError:
        return
    batch = ArrowRows(TABLE.columns).batch([made])
    batch.validate(full=True)
    assert batch.column("long").to_pylist() == [row.long]
    assert batch.column("large").to_pylist() == [row.large]


# Partition values

ICEBERG: dict[str, types.PrimitiveType] = {
    "text": types.StringType(),
    "long": types.LongType(),
    "boolean": types.BooleanType(),
    "binary": types.BinaryType(),
    "date": types.DateType(),
    "instant": types.TimestamptzType(),
    "uuid": types.UUIDType(),
    "decimal(9, 2)": types.DecimalType(9, 2),
    "decimal(38, 10)": types.DecimalType(38, 10),
}
TRANSFORMS: dict[str, Any] = {
    "year(x)": transforms.YearTransform(),
    "month(x)": transforms.MonthTransform(),
    "day(x)": transforms.DayTransform(),
    "hour(x)": transforms.HourTransform(),
    "bucket(1, x)": transforms.BucketTransform(1),
    "bucket(16, x)": transforms.BucketTransform(16),
    "bucket(2147483647, x)": transforms.BucketTransform(2147483647),
    "truncate(1, x)": transforms.TruncateTransform(1),
    "truncate(10, x)": transforms.TruncateTransform(10),
    "x": transforms.IdentityTransform(),
}
VALUES: list[tuple[ColumnType, st.SearchStrategy[Any], str]] = [
    ("text", TEXT, "bucket truncate identity"),
    ("long", LONG.filter(lambda number: number > -(2**63) + 10), "bucket truncate identity"),
    ("boolean", st.booleans(), "identity"),
    ("binary", BINARY, "bucket truncate identity"),
    ("date", DATE, "year month day bucket identity"),
    ("instant", INSTANT, "year month day hour bucket identity"),
    ("uuid", IDS, "bucket identity"),
    (DecimalType(9, 2), decimals(9, 2), "bucket truncate identity"),
    (DecimalType(38, 10), decimals(38, 10), "bucket truncate identity"),
]
CASES = [
    (kind, values, text)
    for kind, values, names in VALUES
    for text in TRANSFORMS
    if field_of(text).transform in names.split()
]


def partition_values(kind: ColumnType, text: str, values: list[Any]) -> list[Any]:
    columns = (Column("x", kind, required=False),)
    batch = ArrowRows(columns).batch([(value,) for value in values])
    computed = PartitionValues(columns, [field_of(text)])
    (array,) = computed.arrays(batch)
    assert len(array) == len(values)
    return [computed.python([array[place]])[0] for place in range(len(values))]


@pytest.mark.parametrize(("kind", "values", "text"), CASES, ids=lambda given: str(given)[:20])
def test_partition_value_is_the_one_of_iceberg_when_it_is_computed(
    kind: ColumnType, values: st.SearchStrategy[Any], text: str
) -> None:
    transform = TRANSFORMS[text].transform(ICEBERG[str(kind)])

    @settings(max_examples=examples(50), deadline=None)
    @given(given_values=st.lists(values | st.none(), min_size=1, max_size=8))
    def judge(given_values: list[Any]) -> None:
        assert partition_values(kind, text, given_values) == [*map(transform, given_values)]

    judge()


@given(instant=INSTANT)
@example(instant=EPOCH - timedelta(microseconds=1))
@example(instant=datetime(1969, 12, 1, tzinfo=UTC))
def test_time_is_that_of_the_calendar_when_an_instant_is_put_into_its_partition(instant: datetime) -> None:
    (year,) = partition_values("instant", "year(x)", [instant])
    (month,) = partition_values("instant", "month(x)", [instant])
    (day,) = partition_values("instant", "day(x)", [instant])
    (hour,) = partition_values("instant", "hour(x)", [instant])
    assert year == instant.year - 1970
    assert month == (instant.year - 1970) * 12 + instant.month - 1
    assert day == instant.date().toordinal() - date(1970, 1, 1).toordinal()
    assert hour == (instant - EPOCH) // timedelta(hours=1)


def test_number_wraps_around_when_it_is_truncated_below_64_bits() -> None:
    """As Java's writers do it: a scan computes the same value."""
    assert partition_values("long", "truncate(10, x)", [-(2**63)]) == [2**63 - 2]


# Files

COLUMNS = (
    Column("text", "text", required=False),
    Column("day", "date", required=False),
    Column("double", "double", required=False),
    Column("binary", "binary", required=False),
    Column("large", DecimalType(38, 10), required=False),
    Column("at", "instant"),
    Column("id", "uuid"),
    Column("flag", "boolean", required=False),
    Column("long", "long"),
)
FILE_ROWS = st.lists(
    st.tuples(
        TEXT | st.none(), st.dates(date(1969, 12, 30), date(1970, 1, 2)) | st.none(), DOUBLE | st.none(),
        BINARY | st.none(), decimals(38, 10) | st.none(), INSTANT, IDS, st.booleans() | st.none(), LONG,
    ),
    min_size=1,
    max_size=24,
)  # fmt: skip


def read(file: FileFacts) -> list[tuple[Any, ...]]:
    with duckdb.connect() as reader:
        reader.execute(
            'select * replace (epoch_us("at") as "at") from read_parquet(?, hive_partitioning=false)',
            [file.path],
        )
        found: list[tuple[Any, ...]] = reader.fetchall()
        return found


@settings(max_examples=examples(100), deadline=None)
@given(rows=FILE_ROWS, pack_rows=st.integers(1, 8), open_files=st.integers(1, 3))
def test_each_row_lies_in_a_file_of_its_partition_when_files_are_few(
    rows: list[tuple[Any, ...]], pack_rows: int, open_files: int
) -> None:
    plan = FilePlan(
        columns=COLUMNS,
        partition_by=("day(day)", "flag"),
        sort_by=("long",),
        open_files=open_files,
        buffer_bytes=1,
    )
    with patch.object(parquet_files, "_PACK_ROWS", pack_rows), written(rows, plan) as files:
        found = [(file, read(file)) for file in files]
    days = date(1970, 1, 1).toordinal()
    for file, its_rows in found:
        assert file.rows == len(its_rows)
        for row in its_rows:
            assert file.partition == (None if row[1] is None else row[1].toordinal() - days, row[7])
        if len(file.row_groups) == 1:
            assert [row[8] for row in its_rows] == sorted(row[8] for row in its_rows)
    everything = [tuple(map(plain, row)) for _, its_rows in found for row in its_rows]
    assert sorted(everything, key=repr) == sorted((tuple(map(plain, row)) for row in rows), key=repr)


@settings(max_examples=examples(100), deadline=None)
@given(rows=FILE_ROWS, pack_rows=st.integers(1, 30))
@example(
    rows=[("\U0010ffff" * 70, None, -0.0, b"\xff" * 70, Decimal(0), EPOCH, UUID(int=0), None, 0)], pack_rows=1
)
@example(rows=[("\ud7ff" * 70, None, math.nan, b"", Decimal(0), EPOCH, UUID(int=0), None, 0)], pack_rows=1)
def test_no_value_lies_outside_of_the_bounds_when_a_file_is_closed(
    rows: list[tuple[Any, ...]], pack_rows: int
) -> None:
    plan = FilePlan(columns=COLUMNS, buffer_bytes=1)
    with patch.object(parquet_files, "_PACK_ROWS", pack_rows), written(rows, plan) as (file,):
        pass
    assert set(file.columns) == {column.name for column in COLUMNS}
    for column, values in zip(COLUMNS, zip(*rows, strict=True), strict=True):
        facts = file.columns[column.name]
        there = [value for value in values if value is not None]
        assert facts.nulls == len(values) - len(there)
        if any(value != value for value in there):
            assert facts.lower is facts.upper is None
            continue
        if facts.lower is not None:
            assert facts.lower <= min(there)
            assert type(facts.lower) is type(there[0])
        if facts.upper is not None:
            assert facts.upper >= max(there)
        if column.name in ("at", "id", "long"):
            assert (facts.lower, facts.upper) == (min(there), max(there))
        if column.name == "double" and 0.0 in (facts.lower, facts.upper):
            assert math.copysign(1, facts.lower) < 0 or facts.lower > 0
