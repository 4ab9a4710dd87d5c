from __future__ import annotations

import enum
import math
import pickle
from dataclasses import dataclass, make_dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pandas
import pyarrow as pa
import pydantic
import pytest

from airflow_kstreams.streams.hints.hidden_values import shown_text
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.tables.row_types import Precision
from airflow_kstreams.streams.tables.specs import DeltaTable, IcebergTable
from airflow_kstreams.streams.tables.table_rows import DeletedRow, UnfitRowError

NOON = datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)
ZURICH = timezone(timedelta(hours=2))


class Status(enum.Enum):
    LANDED = "landed"
    GONE = "gone"


class Code(enum.StrEnum):
    AA = "AA"


class Rank(enum.IntEnum):
    FIRST = 1


class Fare(msgspec.Struct):
    amount: Annotated[Decimal, Precision(5, 2)]
    note: str | None = None


class Taken(str):
    __slots__ = ()


def row_of(annotation: Any, **options: Any) -> Any:
    """Return the function that makes the one value of a row with one column of a type."""
    kind = make_dataclass("Row", [("x", annotation)])
    make = IcebergTable("a.b", row=kind, **options).row_of()
    return lambda value: make(None, kind(value), TaskRecordContext())[0]


FITS: list[tuple[Any, Any, Any]] = [
    (str, "", ""),
    (str, "Zürich 🛬", "Zürich 🛬"),
    (str, Taken("x"), "x"),
    (int, -(2**63), -(2**63)),
    (int, 2**63 - 1, 2**63 - 1),
    (int, Rank.FIRST, 1),
    (float, -0.0, -0.0),
    (float, math.inf, math.inf),
    (float, 3, 3.0),
    (float, 2**60, float(2**60)),
    (bool, True, True),
    (bytes, b"\x00\xff", b"\x00\xff"),
    (date, date(1, 1, 1), date(1, 1, 1)),
    (date, date(9999, 12, 31), date(9999, 12, 31)),
    (datetime, NOON, NOON),
    (datetime, NOON.astimezone(ZURICH), NOON),
    (datetime, pandas.Timestamp(NOON), NOON),
    (datetime, datetime.min.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)),
    (UUID, UUID(int=2**128 - 1), UUID(int=2**128 - 1)),
    (Status, Status.GONE, "gone"),
    (Status, "gone", "gone"),
    (Code, Code.AA, "AA"),
    (Literal["Y", "J"], "J", "J"),
    (Annotated[Decimal, Precision(5, 2)], Decimal("999.99"), Decimal("999.99")),
    (Annotated[Decimal, Precision(5, 2)], Decimal("-1.5000"), Decimal("-1.50")),
    (Annotated[Decimal, Precision(5, 2)], Decimal("1E+2"), Decimal("100.00")),
    (Annotated[Decimal, Precision(5, 2)], Decimal("0E+500"), Decimal("0.00")),
    (Annotated[Decimal, Precision(5, 2)], Decimal("-0"), Decimal("0.00")),
    (Annotated[Decimal, Precision(2, 2)], Decimal("0.09"), Decimal("0.09")),
    (Annotated[Decimal, Precision(38, 38)], Decimal("0." + "9" * 38), Decimal("0." + "9" * 38)),
    (Annotated[Decimal, Precision(38, 0)], Decimal("-" + "9" * 38), Decimal("-" + "9" * 38)),
    (list[int], [1, 2], [1, 2]),
    (list[int | None], [None], [None]),
    (list[list[str]], [[], ["a"]], [[], ["a"]]),
    (dict[str, float], {"EUR": 1.5}, {"EUR": 1.5}),
    (Fare, Fare(Decimal(1)), (Decimal("1.00"), None)),
    (list[Fare], [Fare(Decimal(1), "n")], [(Decimal("1.00"), "n")]),
    (str | None, None, None),
    (list[str] | None, None, None),
    (Fare | None, None, None),
    (str | msgspec.UnsetType, msgspec.UNSET, None),
]


@pytest.mark.parametrize(("annotation", "value", "expected"), FITS)
def test_value_has_the_plain_form_of_its_column_when_it_fits(
    annotation: Any, value: Any, expected: Any
) -> None:
    made = row_of(annotation)(value)
    assert (made, type(made), repr(made)) == (expected, type(expected), repr(expected))


UNFIT: list[tuple[Any, Any, str]] = [
    (str, 1, "column x: a value of type int, expected str"),
    (str, Code.AA, "column x: a value of type Code, expected str"),
    (str, b"x", "column x: a value of type bytes, expected str"),
    (str, "a\ud800", "column x: half a surrogate pair at sign 1"),
    (str, None, "column x: None in a required column"),
    (int, 2**63, "column x: an integer of 65 bits, and a column has 64"),
    (int, -(2**63) - 1, "column x: an integer of 65 bits"),
    (int, True, "column x: a value of type bool, expected int"),
    (int, 1.0, "column x: a value of type float, expected int"),
    (int | None, 2**63, "column x: an integer of 65 bits"),
    (float, True, "column x: a value of type bool, expected float"),
    (float, 2**53 + 1, "column x: an integer that a float does not hold exactly"),
    (float, 10**400, "column x: an integer that a float does not hold exactly"),
    (float, "1.5", "column x: a value of type str, expected float"),
    (bool, 1, "column x: a value of type int, expected bool"),
    (bytes, bytearray(b"x"), "column x: a value of type bytearray, expected bytes"),
    (date, NOON, "column x: a value of type datetime, expected date"),
    (datetime, date(2024, 1, 1), "column x: a value of type date, expected datetime"),
    (datetime, NOON.replace(tzinfo=None), "column x: a datetime without a time zone"),
    (datetime, datetime.min.replace(tzinfo=ZURICH), "column x: a datetime outside of the years 1 to 9999"),
    (datetime, datetime.max.replace(tzinfo=timezone(-timedelta(hours=1))), "outside of the years 1 to 9999"),
    (datetime, pandas.Timestamp("2024-01-01T00:00:00.000000001Z"), "column x: a datetime with nanoseconds"),
    (UUID, "9f1a3a4e-0000-4000-8000-000000000000", "column x: a value of type str, expected UUID"),
    (Status, "lost", "column x: a text that is not among the 2 that its type has"),
    (Status, Code.AA, "column x: a value of type Code, expected Status"),
    (Literal["Y", "J"], "F", "column x: a text that is not among the 2"),
    (Literal["Y"], 1, "column x: a value of type int, expected one of its texts"),
    (Annotated[Decimal, Precision(5, 2)], Decimal("1000"), "column x: 4 digits ahead of the point, and "),
    (
        Annotated[Decimal, Precision(5, 2)],
        Decimal("1E+999999"),
        "digits ahead of the point, and decimal(5, 2) has 3",
    ),
    (
        Annotated[Decimal, Precision(5, 2)],
        Decimal("1.001"),
        "digits behind the point that decimal(5, 2) would cut",
    ),
    (Annotated[Decimal, Precision(5, 2)], Decimal("1E-999999"), "digits behind the point that decimal(5, 2)"),
    (Annotated[Decimal, Precision(5, 2)], Decimal("999.999"), "digits behind the point that decimal(5, 2)"),
    (Annotated[Decimal, Precision(2, 2)], Decimal("0.995"), "digits behind the point"),
    (Annotated[Decimal, Precision(5, 2)], Decimal("NaN"), "column x: no number, or an infinite one"),
    (Annotated[Decimal, Precision(5, 2)], Decimal("sNaN"), "column x: no number, or an infinite one"),
    (Annotated[Decimal, Precision(5, 2)], Decimal("-Infinity"), "column x: no number, or an infinite one"),
    (Annotated[Decimal, Precision(5, 2)], 1.5, "column x: a value of type float, expected Decimal"),
    (list[int], (1, 2), "column x: a value of type tuple, expected list"),
    (list[int], [1, 2**63], "column x[1]: an integer of 65 bits"),
    (list[int], [1, None], "column x[1]: None in a required column"),
    (dict[str, list[int]], {"a": [1], "b": [1, "2"]}, "column x['b'][1]: a value of type str, expected int"),
    (dict[str, int], {1: 1}, "column x: a key of the dict: a value of type int, expected str"),
    (dict[str, int], {"\ud800": 1}, "column x: a key of the dict: half a surrogate pair"),
    (dict[str, int], [], "column x: a value of type list, expected dict"),
    (Fare, Fare(Decimal("NaN")), "column x.amount: no number"),
    (list[Fare], [Fare(Decimal(1)), Fare(Decimal(1), 7)], "column x[1].note: a value of type int"),  # type: ignore[arg-type]
    (Fare, {"amount": Decimal(1)}, "column x: a value of type dict, expected Fare"),
    (Fare, None, "column x: None in a required column"),
]


@pytest.mark.parametrize(("annotation", "value", "message"), UNFIT)
def test_value_is_refused_with_column_and_reason_when_it_does_not_fit(
    annotation: Any, value: Any, message: str
) -> None:
    with pytest.raises(UnfitRowError) as raised:
        row_of(annotation)(value)
    assert message in str(raised.value)


def test_error_holds_no_value_when_it_stands_in_a_log() -> None:
    with pytest.raises(UnfitRowError) as raised:
        row_of(dict[str, str])({"ann@example.com": 4111_1111_1111_1111})
    assert str(raised.value) == "column x['ann@example.com']: a value of type int, expected str"
    shown = shown_text(raised.value, str(raised.value), own="")
    assert shown == "column x['***']: a value of type int, expected str"


def test_long_key_of_a_map_is_cut_when_an_error_names_it() -> None:
    with pytest.raises(UnfitRowError, match=r"column x\['k{40}'\]: a value"):
        row_of(dict[str, str])({"k" * 1000: 1})


def test_error_is_the_same_when_it_was_pickled() -> None:
    error = UnfitRowError("a reason", "x")
    assert str(pickle.loads(pickle.dumps(error))) == "column x: a reason"


@dataclass
class Flight:
    code: str
    at: datetime | None = None


@dataclass
class LongFlight(Flight):
    legs: int = 2


class Record:
    """As a record of Kafka."""

    def topic(self) -> str:
        return "flights"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 42


def context(*, record: Any = None, timestamp_ms: int = 0) -> TaskRecordContext:
    made = TaskRecordContext(timestamp_ms=timestamp_ms)
    made.record = record
    return made


def test_row_has_key_time_and_provenance_when_the_table_has_columns_for_them() -> None:
    table = IcebergTable(
        "a.b", row=Flight, key_column="key", key_type=int | None, timestamp_column="time", provenance=True
    )
    make = table.row_of("run-7")
    row = make(5, Flight("LX", NOON), context(record=Record(), timestamp_ms=-1))
    time = datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)
    assert row == (5, "LX", NOON, time, "flights", 3, 42, "run-7")
    row = make(None, Flight("LX"), context(timestamp_ms=253402300799999))
    assert row[:1] + row[3:] == (
        None,
        datetime.max.replace(microsecond=999000, tzinfo=UTC),
        None,
        None,
        None,
        "run-7",
    )
    with pytest.raises(UnfitRowError, match="column time: the record's timestamp lies outside"):
        make(None, Flight("LX"), context(timestamp_ms=2**62))
    with pytest.raises(UnfitRowError, match="column key: a value of type str, expected int"):
        make("5", Flight("LX"), context())


def test_row_is_made_of_its_fields_alone_when_the_value_is_of_a_subclass() -> None:
    make = IcebergTable("a.b", row=Flight).row_of()
    assert make(None, LongFlight("LX"), context()) == ("LX", None)


@pytest.mark.parametrize("value", [None, {"code": "LX"}, "LX", Fare(Decimal(1))])
def test_record_makes_no_row_when_its_value_is_of_another_class(value: Any) -> None:
    with pytest.raises(UnfitRowError, match=r"None, and a row is made of Flight|expected Flight"):
        IcebergTable("a.b", row=Flight).row_of()(None, value, context())


def test_key_is_given_as_deleted_when_an_upserted_value_is_none() -> None:
    table = IcebergTable(
        "a.b", row=Flight, mode="upsert", key_column="key", key_type=str, partition_by=["bucket(4, key)"]
    )
    assert table.row_of()("ann", None, context()) == DeletedRow("ann")
    assert table.row_of()("ann", Flight("LX"), context()) == ("ann", "LX", None)
    with pytest.raises(UnfitRowError, match="column key: None in a required column"):
        table.row_of()(None, None, context())


def test_times_of_partitions_are_written_in_utc_when_the_table_is_one_of_delta() -> None:
    make = DeltaTable("/lake/b", row=Flight, partition_by=["date(at)", "hour(at)", "code"]).row_of()
    late = datetime(2024, 1, 1, 1, 59, 59, 999999, tzinfo=ZURICH)
    assert make(None, Flight("LX", late), context())[2:] == (
        date(2023, 12, 31),
        datetime(2023, 12, 31, 23, tzinfo=UTC),
    )
    assert make(None, Flight("LX"), context()) == ("LX", None, None, None)


def test_empty_text_is_refused_when_a_delta_table_is_partitioned_by_it() -> None:
    make = DeltaTable("/lake/b", row=Flight, partition_by=["code"]).row_of()
    with pytest.raises(UnfitRowError, match=r"column code: an empty text .* is read as None"):
        make(None, Flight(""), context())
    assert DeltaTable("/lake/b", row=Flight).row_of()(None, Flight(""), context())[0] == ""


def test_ids_are_written_as_text_when_the_table_is_one_of_delta() -> None:
    class Ids(msgspec.Struct):
        one: UUID
        more: list[UUID | None]

    table = DeltaTable("/lake/b", row=Ids, key_column="key", key_type=UUID)
    one = UUID(int=1)
    assert table.row_of()(one, Ids(one, [None, one]), context()) == (str(one), str(one), [None, str(one)])


class Model(pydantic.BaseModel):
    code: str = pydantic.Field(alias="flightCode")
    fare: Annotated[Decimal, Precision(5, 2)] | None = None


def test_row_has_the_fields_of_a_model_when_they_have_aliases() -> None:
    make = IcebergTable("a.b", row=Model).row_of()
    assert make(None, Model(flightCode="LX", fare=Decimal(1)), context()) == ("LX", Decimal("1.00"))


SCHEMA = pa.schema(
    [
        pa.field("code", pa.string(), nullable=False),
        pa.field(
            "place", pa.struct([pa.field("city", pa.string(), nullable=False), pa.field("n", pa.int64())])
        ),
    ]
)


def test_row_is_made_of_a_dict_when_the_table_has_an_arrow_schema() -> None:
    make = IcebergTable("a.b", row=SCHEMA).row_of()
    assert make(None, {"code": "LX", "place": {"city": "Bern"}}, context()) == ("LX", ("Bern", None))
    assert make(None, {"code": "LX"}, context()) == ("LX", None)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "column code: the dict does not have it, and it is required"),
        ({"code": None}, "column code: None in a required column"),
        ({"code": "LX", "Place": None}, "the dict has a key that is no field of the schema"),
        ({"code": "LX", "place": {"n": 1}}, "column place.city: the dict does not have it"),
        ({"code": "LX", "place": {"city": "Bern", "x": 1}}, "column place: the dict has a key"),
        ({"code": "LX", "place": ("Bern", 1)}, "column place: a value of type tuple, expected dict"),
        (["LX"], "a value of type list, expected dict"),
    ],
)
def test_dict_is_refused_when_it_does_not_follow_the_schema(value: Any, message: str) -> None:
    with pytest.raises(UnfitRowError) as raised:
        IcebergTable("a.b", row=SCHEMA).row_of()(None, value, context())
    assert message in str(raised.value)
