from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pytest

from airflow_kstreams.streams import serdes
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.table_plan import Column, TablePlan
from airflow_kstreams.streams.tables.partition_fields import PartitionField, field_of
from airflow_kstreams.streams.tables.row_types import Precision
from airflow_kstreams.streams.tables.specs import DeltaTable, IcebergTable
from airflow_kstreams.streams.tables.table_rows import TableSpec


class Place(msgspec.Struct):
    city: str
    since: datetime | None = None


@dataclass
class Carrier:
    code: str
    flights: int
    delay: float
    late: bool
    raw: bytes
    fare: Annotated[Decimal, Precision(9, 2)]
    day: date
    at: datetime
    id: UUID
    tags: list[str]
    place: Place
    seen: datetime | None = None


def iceberg(**options: Any) -> IcebergTable:
    return IcebergTable("flights.carriers", row=Carrier, **options)


def delta(**options: Any) -> DeltaTable:
    return DeltaTable("s3://lake/flights/carriers", row=Carrier, **options)


def texts(columns: tuple[Column, ...]) -> list[str]:
    return [str(column) for column in columns]


def test_plan_holds_what_runs_need_when_the_table_is_one_of_iceberg() -> None:
    table = IcebergTable(
        "flights.places",
        row=Place,
        partition_by=["truncate( 4,city )", "hour(at)"],
        timestamp_column="at",
        create=False,
        merge=False,
        expire_snapshots=100,
    )
    assert isinstance(table, TableSpec)
    assert table.plan == TablePlan(
        name="flights.places",
        format="iceberg",
        location="flights.places",
        columns=(Column("city", "text"), Column("since", "instant", required=False), Column("at", "instant")),
        partition_by=("truncate(4, city)", "hour(at)"),
        create=False,
        merge=False,
        expire_snapshots=100,
    )
    assert table.partitioning == (PartitionField("truncate", "city", 4), PartitionField("hour", "at"))
    assert [field.name for field in table.partitioning] == ["city_trunc", "at_hour"]


def test_times_are_columns_of_their_own_when_the_table_is_one_of_delta() -> None:
    table = delta(partition_by=["code", "date(at)", "hour(seen)"])
    assert isinstance(table, TableSpec)
    assert (table.name, table.plan.location) == ("carriers", "s3://lake/flights/carriers")
    assert texts(table.columns)[-3:] == ["seen: instant?", "at_date: date", "seen_hour: instant?"]
    assert table.plan.partition_by == ("code", "at_date", "seen_hour")
    assert "id: text" in texts(table.columns)


def test_columns_come_in_a_fixed_order_when_some_are_added() -> None:
    table = IcebergTable(
        "a.b", row=Place, key_column="carrier", key_type=int, timestamp_column="at", provenance=True
    )
    assert texts(table.columns) == [
        "carrier: long",
        "city: text",
        "since: instant?",
        "at: instant",
        "_topic: text?",
        "_partition: long?",
        "_offset: long?",
        "_run: text",
    ]


@pytest.mark.parametrize(
    ("serde", "column"),
    [
        (serdes.string(), "key: text?"),
        (serdes.int32(), "key: long?"),
        (serdes.int64(), "key: long?"),
        (serdes.double(), "key: double?"),
        (serdes.bytes(), "key: binary?"),
        (serdes.json(str), "key: text?"),
        (serdes.msgpack(UUID), "key: uuid?"),
    ],
    ids=str,
)
def test_key_column_has_the_type_of_the_serde_when_none_is_given(serde: Any, column: str) -> None:
    table = iceberg(key_column="key")
    with pytest.raises(TopologyError, match="whose type is not known yet"):
        _ = table.columns
    assert str(table.with_keys(serde).columns[0]) == column
    assert str(iceberg(key_column="key", key_type=date).with_keys(serde).columns[0]) == "key: date"


def test_key_column_is_refused_when_the_serde_says_no_type() -> None:
    with pytest.raises(TopologyError, match="does not say their type") as raised:
        iceberg(key_column="key").with_keys(serdes.json())
    assert "key_type=str" in raised.value.fix
    assert texts(iceberg().with_keys(serdes.json()).columns)  # nothing is asked of keys without a column


def test_upserted_table_needs_one_bucket_field_of_its_key_when_it_is_one_of_iceberg() -> None:
    table = iceberg(mode="upsert", key_column="key", partition_by=["bucket( 16,key)"])
    assert table.with_keys(serdes.string()).plan.partition_by == ("bucket(16, key)",)
    assert str(table.with_keys(serdes.string()).columns[0]) == "key: text"
    for wrong in ([], ["key"], ["bucket(16, code)"], ["bucket(16, key)", "code"]):
        with pytest.raises(TopologyError, match="the key alone decides where its row lies"):
            iceberg(mode="upsert", key_column="key", partition_by=wrong)


def test_keys_are_refused_for_an_upsert_when_they_do_not_tell_rows_apart() -> None:
    for kind in (float, bool, list[str], Place, str | None):
        with pytest.raises(TopologyError, match="which do not tell rows apart"):
            delta(mode="upsert", key_column="key", key_type=kind)
    with pytest.raises(TopologyError, match="no column for keys"):
        delta(mode="upsert")


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("code", PartitionField("identity", "code")),
        (" year(day)", PartitionField("year", "day")),
        ("month( at )", PartitionField("month", "at")),
        ("day(at)", PartitionField("day", "at")),
        ("hour(place.since)", PartitionField("hour", "place.since")),
        ("bucket(16,id)", PartitionField("bucket", "id", 16)),
        ("truncate(100, fare)", PartitionField("truncate", "fare", 100)),
        ("late", PartitionField("identity", "late")),
    ],
)
def test_partition_field_has_one_text_when_it_is_read(text: str, parsed: PartitionField) -> None:
    (field,) = iceberg(partition_by=[text]).partitioning
    assert field == parsed
    assert field_of(str(field)) == field


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("hours(at)", "has no partition field 'hours(at)'"),
        ("hour(at", "has no partition field"),
        ("hour at", "has no partition field"),
        ("date(at)", "has no partition field"),
        ("", "has no partition field"),
        (7, "has no partition field 7"),
        ("bucket(id)", "needs a number from 1"),
        ("bucket(0, id)", "needs a number from 1"),
        ("bucket(-4, id)", "needs a number from 1"),
        ("bucket(9999999999, id)", "needs a number from 1"),
        ("hour(4, at)", "needs no number"),
        ("hour(nowhere)", "has no column 'nowhere'"),
        ("place.nowhere", "has no column 'place.nowhere'"),
        ("code.length", "has no column 'code.length'"),
        ("hour(day)", "'day' is date"),
        ("day(code)", "'code' is text"),
        ("delay", "'delay' is double"),
        ("bucket(4, delay)", "'delay' is double"),
        ("bucket(4, late)", "'late' is boolean"),
        ("truncate(4, day)", "'day' is date"),
        ("tags", "'tags' is list<text>"),
        ("place", "'place' is struct"),
        ("truncate(3, fare)", "a width that leaves values which are no decimal(9, 2)"),
    ],
)
def test_partition_field_is_refused_when_iceberg_does_not_have_it(text: Any, cause: str) -> None:
    with pytest.raises(TopologyError) as raised:
        iceberg(partition_by=[text])
    assert cause in raised.value.cause
    assert raised.value.fix


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("day(at)", "has no partition field 'day(at)'"),
        ("bucket(16, id)", "has no partition field"),
        ("date(day)", "'day' is date"),
        ("place.city", "within a struct"),
        ("raw", "which is binary"),
        ("delay", "'delay' is double"),
    ],
)
def test_partition_field_is_refused_when_delta_does_not_have_it(text: str, cause: str) -> None:
    with pytest.raises(TopologyError) as raised:
        delta(partition_by=[text])
    assert cause in raised.value.cause


def test_partition_fields_are_refused_when_they_stand_in_each_others_way() -> None:
    with pytest.raises(TopologyError, match=r"partitioned by 'day\(at\)' and by 'hour\(at\)'"):
        iceberg(partition_by=["day(at)", "hour(at)"])
    with pytest.raises(TopologyError, match="partitioned by 'code' and by 'code'"):
        iceberg(partition_by=["code", "code"])
    with pytest.raises(TopologyError, match=r"partition field 'hour\(at\)' is called 'at_hour'"):
        IcebergTable("a.b", row=_with("at_hour"), partition_by=["hour(at)"])
    with pytest.raises(TopologyError, match=r"partition field 'date\(at\)' is called 'at_date'"):
        DeltaTable("/lake/b", row=_with("at_date"), partition_by=["date(at)"])
    with pytest.raises(TopologyError, match="expected a list") as raised:
        iceberg(partition_by="hour(at)")
    assert raised.value.fix == "write partition_by=['hour(at)']"


def _with(name: str) -> Any:
    return msgspec.defstruct("Row", [("at", datetime), (name, str)])


@pytest.mark.parametrize("name", ["carriers", "", "a.", ".b", "a b.c", "a..b", "ä.b", None, "a.b\n"])
def test_name_is_refused_when_no_catalogue_has_it(name: Any) -> None:
    with pytest.raises(TopologyError, match="has no name that a catalogue has"):
        IcebergTable(name, row=Place)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "lake/carriers",
        "./lake",
        "s3://",
        "http://host/x",
        "s3://u:p@lake/x",
        "s3://lake/x?key=1",
        "/a b",
        "/",
        "//",
        "//lake",
        "/lake//carriers",
        "/lake/../carriers",
        "/lake/.",
        "file://lake/carriers",
        "file:///",
        "s3:///carriers",
        "s3://lake//carriers",
        "gs://lake/..",
        "abfss://files@/carriers",
        "s3://lake/carriers/_delta_log",
        None,
    ],
)
def test_location_is_refused_when_it_is_none(uri: Any) -> None:
    for name in ("", "carriers"):
        with pytest.raises(TopologyError, match="is no location of a table"):
            DeltaTable(uri, row=Place, name=name)


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("/lake/carriers/", "carriers"),
        ("file:///lake/carriers", "carriers"),
        ("s3://carriers", "carriers"),
        ("s3a://lake/a/carriers//", "carriers"),
        ("abfss://files@account.dfs.core.windows.net/carriers", "carriers"),
        ("gs://lake/carriers", "carriers"),
    ],
)
def test_name_is_the_last_part_of_the_location_when_none_is_given(uri: str, name: str) -> None:
    assert DeltaTable(uri, row=Place).name == name
    assert DeltaTable(uri, row=Place, name="other").name == "other"
    with pytest.raises(TopologyError, match="has the name 'a b'"):
        DeltaTable(uri, row=Place, name="a b")


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        (
            {"key_column": "code", "key_type": str},
            "key_column adds the column 'code', and the row type has it",
        ),
        ({"timestamp_column": "AT"}, "timestamp_column adds the column 'AT', and the row type has it"),
        (
            {"key_column": "k", "timestamp_column": "K", "key_type": str},
            "adds the column 'K', and key_column has it",
        ),
        ({"timestamp_column": "_topic", "provenance": True}, "provenance=True adds the column '_topic'"),
        ({"timestamp_column": "a b"}, "has timestamp_column='a b'"),
        ({"mode": "replace"}, "has mode='replace'"),
        ({"create": "no"}, "has create='no'"),
        ({"merge": 1}, "has merge=1"),
        ({"provenance": None}, "has provenance=None"),
        ({"expire_snapshots": -1}, "has expire_snapshots=-1"),
        ({"expire_snapshots": True}, "has expire_snapshots=True"),
        ({"key_column": "k", "key_type": Decimal}, "field 'k' is Decimal without its digits"),
    ],
)
def test_option_is_refused_when_it_cannot_be(options: dict[str, Any], cause: str) -> None:
    for table in (iceberg, delta):
        with pytest.raises(TopologyError) as raised:
            table(**options)
        assert cause in raised.value.cause
        assert raised.value.fix


def test_provenance_is_refused_when_the_row_has_one_of_its_columns() -> None:
    with pytest.raises(
        TopologyError, match="provenance=True adds the column '_run', and the row type has it"
    ):
        IcebergTable("a.b", row=_with("_run"), provenance=True)
    assert texts(IcebergTable("a.b", row=_with("_run")).columns)


def test_error_names_the_users_line_when_a_description_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"IcebergTable 'a' at .*test_specs\.py:\d+ "):
        IcebergTable("a", row=Place)


def test_description_goes_to_another_process_when_it_is_pickled() -> None:
    table = delta(partition_by=["date(at)"])
    again = pickle.loads(pickle.dumps(table))
    assert again.plan == table.plan
