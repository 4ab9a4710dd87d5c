"""Tables whose description was refused are described as the error says, and rows land in their partitions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import make_dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pytest

from airflow_kstreams.streams import KStreamBuilder, Serde
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.tables.row_types import Precision
from airflow_kstreams.streams.tables.specs import DeltaTable, IcebergTable
from tests.support.remedies import walked
from tests.support.tables.rows_landed import NOW_MS, Lake, parts_of
from tests.support.tables.sending import send_to_table

Table = IcebergTable | DeltaTable
AT = datetime(2017, 11, 16, 22, 31, 8, tzinfo=UTC)
#: Years, months, days and hours since 1970.
YEAR, MONTH, DAY, HOUR = 47, 574, 17486, 17486 * 24 + 22
#: Hashes of the values of a flight, as the specification of Iceberg gives them, appendix B.
HASHES = {"code": 1210000089, "seats": 2017239379, "fare": -500754589, "day": -653330422, "at": -2047944441}


class Place(msgspec.Struct):
    city: str = "Bern"


class Flight(msgspec.Struct):
    code: str = "iceberg"
    seats: int = 34
    delay: float = 1.5
    late: bool = True
    raw: bytes = b"r"
    day: date = AT.date()
    at: datetime = AT
    id: UUID = UUID(int=7)
    fare: Annotated[Decimal, Precision(9, 2)] = Decimal("14.20")
    digit: Annotated[Decimal, Precision(1, 0)] = Decimal(7)
    place: Place = msgspec.field(default_factory=Place)


def iceberg(name: Any = "a.b", **options: Any) -> IcebergTable:
    return IcebergTable(name, **{"row": Flight, **options})


def delta(uri: Any = "/lake/b", **options: Any) -> DeltaTable:
    return DeltaTable(uri, **{"row": Flight, **options})


def fields(**columns: Any) -> Any:
    """Return a row type whose fields have these types."""
    return make_dataclass("Row", list(columns.items()))


def partitions(table: Table, value: Any = None) -> list[tuple[Any, ...]]:
    """Return the partitions that a row lies in."""
    return [*parts_of(table, Flight() if value is None else value, key="k")]


def row(table: Table, value: Any = None, key: Any = "k") -> dict[str, Any]:
    """Return the row of one value, as its file holds it, without the fields of the row type."""
    ((landed,),) = parts_of(table, Flight() if value is None else value, key=key).values()
    return {name: found for name, found in landed.items() if name not in Flight.__struct_fields__}


def in_16(column: str) -> int:
    """Return the bucket of a flight's value among 16."""
    return (HASHES[column] & 0x7FFFFFFF) % 16


def said(fix: str, pattern: str) -> list[str]:
    """Return what a text says to write."""
    found: list[str] = re.findall(pattern, fix)
    assert found, fix
    return found


def quoted(fix: str) -> list[str]:
    return said(fix, r"partition_by=\['(.*?)'\]")


def forms(fix: str) -> list[str]:
    """Return the partition fields that a text names."""
    return said(fix.partition(": ")[2], r"(?:\w+\([^)]*\)|\w+)")


#: What is refused; what a table is that is described as the text says, given the text; and what it should be.
WALKS: list[Any] = [
    # == partitions
    walked(
        "partition_fields.parsed_field: write one of",
        lambda: iceberg(partition_by=["hours(at)"]),
        lambda fix: partitions(iceberg(partition_by=[said(fix, r"hour\(\w+\)")[0].replace("column", "at")])),
        [(HOUR,)],
    ),
    walked(
        "partition_fields.parsed_field: write one of",
        lambda: delta(partition_by=["day(at)"]),
        lambda fix: partitions(delta(partition_by=[said(fix, r"date\(\w+\)")[0].replace("column", "at")])),
        [(AT.date(),)],
    ),
    walked(
        "partition_fields.parsed_field: write e.g.",
        lambda: iceberg(partition_by=["hour(4, at)"]),
        lambda fix: partitions(iceberg(partition_by=[fix.removeprefix("write e.g. ")])),
        [(HOUR,)],
    ),
    *(
        walked(
            "partition_fields.parsed_field: write e.g.",
            lambda wrong=wrong: iceberg(partition_by=[wrong]),
            lambda fix: partitions(iceberg(partition_by=[fix.removeprefix("write e.g. ")])),
            [wanted],
        )
        for wrong, wanted in {
            "truncate(code)": ("iceberg",),
            "truncate(0, seats)": (30,),
            "truncate(0, fare)": (Decimal("14.20"),),
            "truncate(digit)": (Decimal(0),),
        }.items()
    ),
    walked(
        "specs._with_written_fields: leave one",
        lambda: delta(row=fields(code=str, seats=int), partition_by=["code", "seats"]),
        lambda fix: [
            *parts_of(delta(row=(made := fields(code=str, seats=int)), partition_by=["code"]), made("a", 1))
        ],
        [("a",)],
    ),
    walked(
        "partition_fields.checked_fields",
        lambda: iceberg(partition_by="day(at)"),
        lambda fix: partitions(iceberg(partition_by=quoted(fix))),
        [(DAY,)],
    ),
    walked(
        "partition_fields.check_field: name one of its columns",
        lambda: iceberg(partition_by=["Code"]),
        lambda fix: partitions(iceberg(partition_by=forms(fix)[:1])),
        [("iceberg",)],
    ),
    walked(
        "partition_fields.check_field: partition by another column",
        lambda: iceberg(partition_by=["delay"]),
        lambda fix: partitions(iceberg(partition_by=["late"])),
        [(True,)],
    ),
    walked(
        "partition_fields.check_field: write a power of ten",
        lambda: iceberg(partition_by=["truncate(3, fare)"]),
        lambda fix: partitions(iceberg(partition_by=forms(fix))),
        [(Decimal("14.20"),)],
    ),
    walked(
        "partition_fields.check_field: write a power of ten",
        lambda: iceberg(partition_by=["truncate(3, digit)"]),
        lambda fix: partitions(iceberg(partition_by=forms(fix))),
        [(Decimal(0),)],
    ),
    walked(
        "partition_fields._check_together: leave one of them out",
        lambda: iceberg(partition_by=["day(at)", "hour(at)"]),
        lambda fix: partitions(iceberg(partition_by=["hour(at)"])),
        [(HOUR,)],
    ),
    walked(
        "partition_fields._check_together: rename the column",
        lambda: iceberg(row=fields(at=datetime, at_hour=int), partition_by=["hour(at)"]),
        lambda fix: partitions(
            iceberg(row=(kind := fields(at=datetime, hour=int)), partition_by=["hour(at)"]), kind(AT, 12)
        ),
        [(HOUR,)],
    ),
    walked(
        "partition_fields._check_together: rename the column",
        lambda: delta(row=fields(at=datetime, at_date=str), partition_by=["date(at)"]),
        lambda fix: partitions(
            delta(row=(kind := fields(at=datetime, on=str)), partition_by=["date(at)"]), kind(AT, "")
        ),
        [(AT.date(),)],
    ),
    walked(
        "specs._with_written_fields: partition by a column of the row itself",
        lambda: delta(partition_by=["place.city"]),
        lambda fix: partitions(
            delta(row=(kind := fields(city=str, place=Place)), partition_by=["city"]), kind("Bern", Place())
        ),
        [("Bern",)],
    ),
    walked(
        "specs._with_written_fields: partition by text",
        lambda: delta(partition_by=["raw"]),
        lambda fix: partitions(
            delta(row=(kind := fields(raw=str, n=int)), partition_by=["raw"]), kind("r", 1)
        ),
        [("r",)],
    ),
    walked(
        "specs._check_buckets",
        lambda: iceberg(mode="upsert", key_column="key", key_type=str, partition_by=["code"]),
        lambda fix: (
            iceberg(mode="upsert", key_column="key", key_type=str, partition_by=quoted(fix)).plan.partition_by
        ),
        ("bucket(16, key)",),
    ),
    # == names and places
    walked(
        "specs.IcebergTable.__post_init__",
        lambda: iceberg("carriers"),
        lambda fix: iceberg(said(fix, r'IcebergTable\("(.*)", \.\.\.\)')[0]).plan.location,
        "flights.carriers",
    ),
    walked(
        "specs.DeltaTable.__post_init__",
        lambda: delta("/lake/Flüge"),
        lambda fix: (delta("/lake/Flüge", name="flights-1.a_b").name, delta("/lake/Flüge", name="f").uri),
        ("flights-1.a_b", "/lake/Flüge"),
    ),
    *(
        walked(
            "specs.DeltaTable._check_location",
            lambda wrong=wrong: delta(wrong),
            lambda fix, told=told: delta(told(fix)).plan.location,
            wanted,
        )
        for wrong, told, wanted in (
            ("bucket/path", lambda fix: said(fix, r"s3://[\w/]+")[0], "s3://bucket/path"),
            ("wasb://x", lambda fix: said(fix, r"abfss://[\w@/]+")[0], "abfss://container@account/path"),
            ("gs:/bucket/path", lambda fix: said(fix, "gs://")[0] + "bucket/path", "gs://bucket/path"),
            ("./lake", lambda fix: "/lake/b", "/lake/b"),
            ("/my lake/b", lambda fix: "/my_lake/b", "/my_lake/b"),
            ("s3://lake/b?versionId=1", lambda fix: "s3://lake/b", "s3://lake/b"),
            ("/lake//b", lambda fix: "/lake/b", "/lake/b"),
            ("/lake/../b", lambda fix: "/b", "/b"),
            ("s3://lake/b@home", lambda fix: "s3://lake/b-home", "s3://lake/b-home"),
            ("s3://key:secret@lake/b", lambda fix: "s3://lake/b", "s3://lake/b"),
        )
    ),
    # == options
    walked(
        "specs._made: write True or False",
        lambda: iceberg(provenance="yes"),
        lambda fix: [[*row(iceberg(provenance=each))] for each in (True, False)],
        [["_topic", "_partition", "_offset", "_run"], []],
    ),
    walked(
        "specs._made: write True or False",
        lambda: delta(create="no"),
        lambda fix: [delta(create=each).plan.create for each in (True, False)],
        [True, False],
    ),
    walked(
        "specs._made: write the number of snapshots",
        lambda: iceberg(expire_snapshots="all"),
        lambda fix: [iceberg(expire_snapshots=int(each)).plan.expire_snapshots for each in said(fix, r"\d+")],
        [100, 0],
    ),
    # == columns that are added
    walked(
        "specs._check_added: give key_column=",
        lambda: delta(mode="upsert", key_type=str),
        lambda fix: row(delta(mode="upsert", key_type=str, key_column="key")),
        {"key": "k"},
    ),
    walked(
        "specs._check_added: give the column a name",
        lambda: iceberg(timestamp_column="record/time"),
        lambda fix: row(iceberg(timestamp_column="record_time")),
        {"record_time": datetime.fromtimestamp(NOW_MS / 1000, UTC)},
    ),
    walked(
        "specs._add: rename one of them",
        lambda: iceberg(timestamp_column="At"),
        lambda fix: [*row(iceberg(timestamp_column="sent"))],
        ["sent"],
    ),
    walked(
        "specs._add: rename one of them",
        lambda: iceberg(row=fields(key=str), key_column="key", key_type=str),
        lambda fix: row(
            iceberg(row=(kind := fields(flight=str)), key_column="key", key_type=str), kind("LX"), "a"
        ),
        {"key": "a", "flight": "LX"},
    ),
    walked(
        "specs._add: rename the field",
        lambda: iceberg(row=fields(_run=int), provenance=True),
        lambda fix: [*row(iceberg(row=(kind := fields(run=int)), provenance=True), kind(1))],
        ["run", "_topic", "_partition", "_offset", "_run"],
    ),
    walked(
        "specs._add: rename the field",
        lambda: iceberg(row=fields(_run=int), provenance=True),
        lambda fix: row(iceberg(row=(kind := fields(_run=int))), kind(1)),
        {"_run": 1},
    ),
    # == keys
    *(
        walked(
            "specs._key_shape",
            lambda wrong=wrong: delta(mode="upsert", key_column="key", key_type=wrong),
            lambda fix, told=told, key=key: row(
                delta(mode="upsert", key_column="key", key_type=told), key=key
            ),
            {"key": wanted},
        )
        for wrong, told, key, wanted in (
            (float, str, "k", "k"),
            (float, int, 7, 7),
            (bool, bytes, b"k", b"k"),
            (Place, date, AT.date(), AT.date()),
            (list[str], UUID, UUID(int=7), str(UUID(int=7))),
            (str | None, str, "k", "k"),
        )
    ),
]


@pytest.mark.parametrize(("fault", "told", "wanted"), WALKS)
def test_table_that_is_described_as_the_error_says_is_as_it_should_be(
    fault: Callable[[], object], told: Callable[[str], object], wanted: object
) -> None:
    with pytest.raises(TopologyError) as refused:
        fault()
    assert told(refused.value.fix) == wanted


@pytest.mark.parametrize(
    ("make", "wrong", "wanted"),
    [
        walked("partition_fields.check_field: write one of", *case)
        for case in (
            (iceberg, "hour(code)", ["iceberg", in_16("code"), "iceberg"]),
            (iceberg, "hour(day)", [AT.date(), YEAR, MONTH, DAY, in_16("day")]),
            (iceberg, "truncate(4, at)", [AT, YEAR, MONTH, DAY, HOUR, in_16("at")]),
            (iceberg, "day(seats)", [34, in_16("seats"), 30]),
            (iceberg, "day(fare)", [Decimal("14.20"), in_16("fare"), Decimal("14.20")]),
            (iceberg, "bucket(4, late)", [True]),
            (delta, "date(day)", [AT.date()]),
            (delta, "hour(code)", ["iceberg"]),
        )
    ],
)
def test_each_partition_field_that_the_error_says_parts_rows(
    make: Callable[..., Table], wrong: str, wanted: list[Any]
) -> None:
    with pytest.raises(TopologyError) as refused:
        make(partition_by=[wrong])
    found = [partitions(make(partition_by=[each])) for each in forms(refused.value.fix)]
    assert found == [[(value,)] for value in wanted]


# == several calls


class Count(msgspec.Struct):
    n: int


def counts(builder: KStreamBuilder, **options: Any) -> Any:
    """Return the stream of counts 1, 2, 3, with the keys ``a``, ``b``, ``a``."""
    return builder.stream("in", **options).map_values(Count)


#: Says no type.
OWN = Serde(id="own", serialize=str.encode, deserialize=bytes.decode)


def keyed(**options: Any) -> IcebergTable:
    return iceberg(row=Count, key_column="key", **options)


@pytest.mark.parametrize(
    ("fault", "told", "wanted"),
    [
        walked(
            "specs._Made.rows",
            lambda: keyed().plan,
            lambda b: send_to_table(counts(b), keyed()),
            [("a", 1), ("a", 3), ("b", 2)],
        ),
        walked(
            "specs._Made.rows",
            lambda: keyed().plan,
            lambda b: send_to_table(counts(b, key_serde=OWN), keyed(key_type=str)),
            [("a", 1), ("a", 3), ("b", 2)],
        ),
        walked(
            "specs._key_type",
            lambda: keyed().with_keys(OWN),
            lambda b: send_to_table(counts(b, key_serde=OWN), keyed(key_type=str)),
            [("a", 1), ("a", 3), ("b", 2)],
        ),
        walked(
            "specs._key_type",
            lambda: keyed().with_keys(OWN),
            lambda b: send_to_table(counts(b, key_serde=OWN), iceberg(row=Count)),
            [(1,), (2,), (3,)],
        ),
    ],
)
def test_keys_land_when_their_type_is_given_as_the_error_says(
    fault: Callable[[], object], told: Callable[[KStreamBuilder], object], wanted: list[Any]
) -> None:
    with pytest.raises(TopologyError):
        fault()
    lake = Lake(b"1", b"2", b"3")
    lake.run(told)
    assert sorted(tuple(each.values()) for each in lake.rows("a.b")) == wanted


def to_both(first: Table, second: Table) -> Callable[[KStreamBuilder], object]:
    """Write odd counts to one table and even ones to another."""

    def define(builder: KStreamBuilder) -> None:
        odd, even = parted(builder)
        send_to_table(odd, first)
        send_to_table(even, second)

    return define


def parted(builder: KStreamBuilder) -> tuple[Any, Any]:
    both = counts(builder)
    return both.filter(lambda key, value: value.n % 2), both.filter_not(lambda key, value: value.n % 2)


def to_one(builder: KStreamBuilder) -> None:
    odd, even = parted(builder)
    send_to_table(odd.merge(even), iceberg(row=Count))


def of_counts(uri: str, **options: Any) -> DeltaTable:
    return delta(uri, row=Count, **options)


@pytest.mark.parametrize(
    ("fault", "told", "wanted"),
    [
        walked(
            "validation._check_tables: merge both streams",
            to_both(iceberg(row=Count), iceberg(row=Count)),
            to_one,
            {"a.b": [1, 2, 3]},
        ),
        walked(
            "validation._check_tables: merge both streams",
            to_both(iceberg(row=Count), iceberg(row=Count)),
            to_both(iceberg(row=Count), iceberg("a.c", row=Count)),
            {"a.b": [1, 3], "a.c": [2]},
        ),
        walked(
            "validation._check_tables: merge both streams",
            to_both(of_counts("/lake/b"), of_counts("/lake/b", name="other")),
            to_both(of_counts("/lake/b"), of_counts("/lake/c")),
            {"/lake/b": [1, 3], "/lake/c": [2]},
        ),
        walked(
            "validation._check_tables: give a DeltaTable another name=",
            to_both(of_counts("/lake/one/b"), of_counts("/lake/two/b")),
            to_both(of_counts("/lake/one/b"), of_counts("/lake/two/b", name="c")),
            {"/lake/one/b": [1, 3], "/lake/two/b": [2]},
        ),
        walked(
            "validation._check_tables: give a DeltaTable another name=",
            to_both(iceberg(row=Count), of_counts("/lake/a.b")),
            to_both(iceberg(row=Count), of_counts("/lake/a.b", name="b")),
            {"a.b": [1, 3], "/lake/a.b": [2]},
        ),
    ],
)
def test_both_streams_land_once_when_they_are_written_as_the_error_says(
    fault: Callable[[KStreamBuilder], object],
    told: Callable[[KStreamBuilder], object],
    wanted: dict[str, list[int]],
) -> None:
    lake = Lake(b"1", b"2", b"3")
    with pytest.raises(TopologyError):
        lake.run(fault)
    lake.run(told)
    found = {location: sorted(each["n"] for each in lake.rows(location)) for location in lake.tables.states}
    assert found == wanted
