from __future__ import annotations

import enum
import typing
from dataclasses import dataclass, make_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import msgspec
import pyarrow as pa
import pydantic
import pytest

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.tables.row_types import Precision, columns_of_row, row_shape

Iata = NewType("Iata", str)


class Status(enum.Enum):
    LANDED = "landed"
    GONE = "gone"


class Rank(enum.IntEnum):
    FIRST = 1


class Fare(msgspec.Struct):
    amount: Annotated[Decimal, Precision(18, 2)]
    currency: str = "EUR"


class Flight(msgspec.Struct):
    code: str
    seats: int
    delay: float
    late: bool
    raw: bytes
    fare: Annotated[Decimal, Precision(9, 3)]
    day: date
    at: datetime
    id: UUID
    status: Status
    cabin: Literal["Y", "J"]
    tags: list[str | None]
    prices: dict[str, float]
    fares: list[Fare]
    best: Fare | None = None
    iata: Iata | None = None
    note: str | msgspec.UnsetType = msgspec.UNSET
    aware: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


FLIGHT = [
    "code: text",
    "seats: long",
    "delay: double",
    "late: boolean",
    "raw: binary",
    "fare: decimal(9, 3)",
    "day: date",
    "at: instant",
    "id: uuid",
    "status: text",
    "cabin: text",
    "tags: list<text?>",
    "prices: map<text, double>",
    "fares: list<struct<amount: decimal(18, 2), currency: text>>",
    "best: struct<amount: decimal(18, 2), currency: text>?",
    "iata: text?",
    "note: text?",
    "aware: instant?",
]


def columns(row: Any) -> list[str]:
    return [str(column) for column in columns_of_row(row)]


def test_each_type_has_its_column_when_the_row_is_a_struct() -> None:
    assert columns(Flight) == FLIGHT


def test_columns_are_the_same_when_the_row_is_a_dataclass() -> None:
    same = make_dataclass("Flight", [(field.name, field.type) for field in msgspec.structs.fields(Flight)])
    assert columns(same) == FLIGHT


class Price(pydantic.BaseModel):
    amount: Annotated[Decimal, Precision(18, 2)]


class Booking(pydantic.BaseModel):
    code: str = pydantic.Field(alias="flightCode")
    at: pydantic.AwareDatetime
    seats: pydantic.PositiveInt
    price: Price | None = None
    parts: list[Price] = []
    digits: Annotated[Decimal, Precision(4, 1)] | None = None
    secret: str = pydantic.Field(default="", exclude=True)


def test_each_field_that_is_written_has_a_column_when_the_row_is_a_pydantic_model() -> None:
    assert columns(Booking) == [
        "flightCode: text",
        "at: instant",
        "seats: long",
        "price: struct<amount: decimal(18, 2)>?",
        "parts: list<struct<amount: decimal(18, 2)>>",
        "digits: decimal(4, 1)?",
    ]


def test_columns_have_the_names_of_json_when_a_struct_renames_fields() -> None:
    class Renamed(msgspec.Struct, rename="camel"):
        flight_code: str

    assert columns(Renamed) == ["flightCode: text"]


def test_columns_follow_the_schema_when_the_row_is_of_arrow() -> None:
    schema = pa.schema(
        [
            pa.field("code", pa.large_string(), nullable=False),
            pa.field("seats", pa.int16()),
            pa.field("delay", pa.float32(), nullable=False),
            pa.field("fare", pa.decimal128(18, 2)),
            pa.field("day", pa.date32()),
            pa.field("at", pa.timestamp("ms", tz="Europe/Zurich")),
            pa.field("id", pa.uuid()),
            pa.field("raw", pa.binary()),
            pa.field("late", pa.bool_()),
            pa.field("tags", pa.list_(pa.field("item", pa.string(), nullable=False))),
            pa.field("prices", pa.map_(pa.string(), pa.float64())),
            pa.field("best", pa.struct([pa.field("amount", pa.int64(), nullable=False)])),
        ]
    )
    assert columns(schema) == [
        "code: text",
        "seats: long?",
        "delay: double",
        "fare: decimal(18, 2)?",
        "day: date?",
        "at: instant?",
        "id: uuid?",
        "raw: binary?",
        "late: boolean?",
        "tags: list<text>?",
        "prices: map<text, double?>?",
        "best: struct<amount: long>?",
    ]


class Node(msgspec.Struct):
    name: str
    next: Node | None = None


@dataclass
class Leg:
    at: str


REFUSED: dict[str, tuple[Any, str, str]] = {
    "any": (Any, "field 'x' is Any", "write str, int, float"),
    "object": (object, "field 'x' is object", "write str, int, float"),
    "bare decimal": (
        Decimal,
        "field 'x' is Decimal without its digits",
        "write Annotated[Decimal, Precision(18",
    ),
    "naive datetime": (
        Annotated[datetime, msgspec.Meta(tz=False)],
        "field 'x' is a datetime without a time zone",
        "write datetime, and give values a time zone",
    ),
    "naive datetime of pydantic": (pydantic.NaiveDatetime, "without a time zone", "write datetime"),
    "union of structs": (Fare | Leg, "field 'x' is Fare | Leg", "write one struct whose fields are optional"),
    "union": (int | str | None, "field 'x' is int | str", "write one type"),
    "recursive": (Node, "field 'x.next' is Node within itself", "so many levels"),
    "enum of numbers": (Rank, "field 'x' is Rank, an enum whose values are not text", "write int"),
    "literal of numbers": (Literal[1, 2], "a Literal whose values are not all text", "write int or bool"),
    "dict by number": (dict[int, str], "field 'x' is a dict with keys of int", "write dict[str, ...]"),
    "list of anything": (list, "field 'x' is list", "write list[...], with the type of its items"),
    "list of Python before 3.9": (typing.List, "field 'x' is", "write list[...]"),  # noqa: UP006
    "dict of Python before 3.9": (typing.Dict, "field 'x' is", "write dict[str, ...]"),  # noqa: UP006
    "list of any": (list[Any], "field 'x[]' is Any", "write str"),
    "dict of anything": (dict, "field 'x' is dict", "write dict[str, ...]"),
    "tuple": (tuple[int, str], "field 'x' is tuple[int, str]", "write list[...], or a struct"),
    "set": (set[str], "field 'x' is set[str]", "write list[...]"),
    "bytearray": (bytearray, "field 'x' is bytearray", "write bytes"),
    "time": (time, "field 'x' is time", "write str, int"),
    "timedelta": (timedelta, "field 'x' is timedelta", "write str, int"),
    "none": (None, "field 'x' is NoneType", "leave the field out"),
    "within": (list[dict[str, Decimal]], "field 'x[][]' is Decimal", "Precision"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_field_is_refused_with_what_to_write_when_no_table_has_its_type(kind: str) -> None:
    annotation, cause, fix = REFUSED[kind]
    with pytest.raises(TopologyError) as raised:
        columns_of_row(make_dataclass("Row", [("x", annotation)]), table="IcebergTable 'a.b'")
    assert raised.value.cause.startswith("IcebergTable 'a.b' at ")
    assert cause in raised.value.cause
    assert fix in raised.value.fix


@pytest.mark.parametrize(
    ("kind", "fix"),
    [
        (pa.timestamp("us"), "without a time zone it is no instant"),
        (pa.timestamp("ns", tz="UTC"), "tables have microseconds"),
        (pa.date64(), "write pa.date32()"),
        (pa.uint64(), "write pa.int64()"),
        (pa.decimal256(50, 2), "38 digits at most"),
        (pa.decimal128(5, -2), "write one of pa.string()"),
        (pa.dictionary(pa.int8(), pa.string()), "write pa.string()"),
        (pa.binary(4), "write pa.binary()"),
        (pa.map_(pa.int64(), pa.int64()), "keys of text"),
        (pa.null(), "leave the field out"),
        (pa.duration("us"), "write one of pa.string()"),
    ],
    ids=str,
)
def test_field_is_refused_with_what_to_write_when_no_table_has_its_arrow_type(kind: Any, fix: str) -> None:
    with pytest.raises(TopologyError) as raised:
        columns_of_row(pa.schema([pa.field("outer", pa.struct([pa.field("x", kind)]))]))
    assert "field 'outer.x' is " in raised.value.cause
    assert fix in raised.value.fix


@pytest.mark.parametrize("row", [dict, "Flight", Fare(amount=Decimal(1)), int, list[int], None])
def test_row_type_is_refused_when_it_is_no_class_of_rows(row: Any) -> None:
    with pytest.raises(TopologyError, match="expected a type of rows"):
        columns_of_row(row)


def test_row_type_is_refused_when_its_types_cannot_be_found() -> None:
    class Lost(msgspec.Struct):
        x: Nowhere  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TopologyError, match=r"field 'Lost' is unreadable: .*Nowhere"):
        columns_of_row(Lost)


def test_row_type_is_refused_when_it_or_a_struct_in_it_has_no_fields() -> None:
    class Empty(msgspec.Struct):
        pass

    with pytest.raises(TopologyError, match="'Empty' is without fields"):
        columns_of_row(Empty)
    with pytest.raises(TopologyError, match="'x' is without fields"):
        columns_of_row(make_dataclass("Row", [("x", Empty)]))
    with pytest.raises(TopologyError, match="has no fields"):
        columns_of_row(pa.schema([pa.field("x", pa.struct([]))]))


@pytest.mark.parametrize(
    "name", ["", "a b", "a.b", "a,b", "a(b", "a=b", "a;b", "a\nb", "a`b", "x" * 256, "\u200b"]
)
def test_name_is_refused_when_some_format_does_not_allow_it(name: str) -> None:
    with pytest.raises(TopologyError, match="cannot be the name of a column"):
        columns_of_row(pa.schema([pa.field(name, pa.int64())]))


def test_names_are_refused_when_they_differ_in_capitals_alone() -> None:
    with pytest.raises(TopologyError, match="columns 'code' and 'Code' differ in capitals alone"):
        columns_of_row(make_dataclass("Row", [("code", str), ("Code", str)]))
    inner = make_dataclass("Inner", [("a", int), ("A", int)])
    with pytest.raises(TopologyError, match=r"columns 'x\.a' and 'x\.A' differ"):
        columns_of_row(make_dataclass("Row", [("x", list[inner])]))  # type: ignore[valid-type]


@pytest.mark.parametrize("digits", [(0, 0), (39, 0), (5, 6), (5, -1), (True, 0), (5.0, 1)])
def test_precision_is_refused_when_no_decimal_has_it(digits: tuple[Any, Any]) -> None:
    with pytest.raises(TopologyError, match="none of a table's decimals"):
        Precision(*digits)


def test_ids_are_text_when_a_format_has_no_ids() -> None:
    class Ids(msgspec.Struct):
        one: UUID
        more: dict[str, list[UUID | None]]

    shape = row_shape(Ids, table="t").with_ids_as_text()
    assert [str(column) for column in shape.columns] == ["one: text", "more: map<text, list<text?>>"]
