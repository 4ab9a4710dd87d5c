"""Row types that were refused are written as the error says, and their rows land in files."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa
import pydantic
import pytest

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.tables.row_types import Precision
from airflow_kstreams.streams.tables.specs import IcebergTable
from tests.support.remedies import walked
from tests.support.tables.rows_landed import parts_of

NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)


class Rank(enum.Enum):
    FIRST = 1


class RankInText(enum.Enum):
    FIRST = "1"


class Kind(enum.IntEnum):
    LONG = 7


class Fare(msgspec.Struct):
    amount: int


class Leg(msgspec.Struct):
    code: str


class FareOrLeg(msgspec.Struct):
    amount: int | None = None
    code: str | None = None


class Nested(msgspec.Struct):
    name: str
    next: Nested | None = None


class Second(msgspec.Struct):
    name: str


class First(msgspec.Struct):
    name: str
    next: Second | None = None


class Nothing(msgspec.Struct):
    pass


@dataclass
class Flight:
    code: str


class FlightModel(pydantic.BaseModel):
    code: str


CODES = pa.schema([pa.field("code", pa.string(), nullable=False)])


def columns(**fields: Any) -> Any:
    """Return a row type with these fields."""
    return make_dataclass("Row", list(fields.items()))


@dataclass
class InModule:
    here: Flight


def described(row: Any) -> IcebergTable:
    return IcebergTable("a.b", row=row)


def landed(row: Any, *values: Any) -> list[dict[str, Any]]:
    """Return the rows that a table of a row type gets."""
    ((_, rows),) = parts_of(described(row), *values).items()
    return rows


#: Type of the field that is refused, words of the text, the type as they say, a value of it, and that of the
#: column; for Arrow with the types of Arrow.
WRITTEN: list[tuple[Any, str, Any, Any, Any]] = [
    (Any, "str, int, float", str, "LX", "LX"),
    (Decimal, "Annotated[Decimal, Precision(18, 2)]", Annotated[Decimal, Precision(18, 2)],
     Decimal("1.5"), Decimal("1.50")),
    (list, "list[...], with the type of its items", list[str], ["a"], ["a"]),
    (dict, "dict[str, ...], with the type of its values", dict[str, float], {"a": 1.5}, {"a": 1.5}),
    (dict, "or a struct", Fare, Fare(1), {"amount": 1}),
    (dict[int, str], "dict[str, ...], with keys of text", dict[str, str], {"1": "a"}, {"1": "a"}),
    (tuple[str, str], "list[...]", list[str], ["a", "b"], ["a", "b"]),
    (tuple[int, str], "or a struct", FareOrLeg, FareOrLeg(1, "b"), {"amount": 1, "code": "b"}),
    (set[str], "list[...]", list[str], ["a"], ["a"]),
    (bytearray, "bytes", bytes, b"a", b"a"),
    (memoryview, "bytes", bytes, b"a", b"a"),
    (None, "another type", str, "a", "a"),
    (pydantic.NaiveDatetime, "datetime, and give values a time zone", datetime, NOON, NOON),
    (Annotated[datetime, msgspec.Meta(tz=False)], "give values a time zone", datetime, NOON, NOON),
    (Fare | Leg, "one struct whose fields are optional", FareOrLeg, FareOrLeg(1),
     {"amount": 1, "code": None}),
    (Fare | Leg, "or a table for each of them", Leg, Leg("LX"), {"code": "LX"}),
    (int | str, "one type", str, "1", "1"),
    (Nested, "a struct for each level", First, First("a", Second("b")), {"name": "a", "next": {"name": "b"}}),
    (Rank, "int", int, Rank.FIRST.value, 1),
    (Rank, "give its members text values", RankInText, RankInText.FIRST, "1"),
    (Kind, "int", int, Kind.LONG, 7),
    (Literal[1, 2], "int", int, 2, 2),
    (Literal[True], "or bool", bool, True, True),
    (Literal[1, 2], "a Literal of texts", Literal["1", "2"], "2", "2"),
    (Nothing, "one field at least", Leg, Leg("LX"), {"code": "LX"}),
    (pa.timestamp("ns", tz="UTC"), 'pa.timestamp("us", tz="UTC")', pa.timestamp("us", tz="UTC"), NOON, NOON),
    (pa.timestamp("us"), 'pa.timestamp("us", tz="UTC")', pa.timestamp("us", tz="UTC"), NOON, NOON),
    (pa.date64(), "pa.date32()", pa.date32(), date(2024, 2, 29), date(2024, 2, 29)),
    (pa.uint64(), "pa.int64()", pa.int64(), 7, 7),
    (pa.uint64(), "pa.decimal128(20, 0)", pa.decimal128(20, 0), Decimal(2**64 - 1), Decimal(2**64 - 1)),
    (pa.decimal256(50, 2), "pa.decimal128(digits, scale)", pa.decimal128(38, 2), Decimal(1), Decimal("1.00")),
    (pa.dictionary(pa.int8(), pa.string()), "pa.string()", pa.string(), "LX", "LX"),
    (pa.dictionary(pa.int8(), pa.int64()), "the type of the dictionary's values", pa.int64(), 7, 7),
    (pa.binary(4), "pa.binary()", pa.binary(), b"abcd", b"abcd"),
    (pa.map_(pa.int64(), pa.int64()), "pa.map_(pa.string(), ...)", pa.map_(pa.string(), pa.int64()),
     {"1": 2}, {"1": 2}),
    (pa.null(), "another type", pa.int64(), None, None),
    (pa.duration("us"), "int64()", pa.int64(), 7, 7),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "words", "told", "value", "wanted"),
    [walked("row_types._Reading.refuse", *case) for case in WRITTEN],
)
def test_field_of_the_type_that_the_error_says_lands(
    fault: Any, words: str, told: Any, value: Any, wanted: Any
) -> None:
    def row(kind: Any) -> Any:
        if isinstance(kind, pa.DataType):
            return pa.schema([pa.field("n", pa.int64()), pa.field("x", kind)])
        return columns(n=int, x=kind)

    with pytest.raises(TopologyError, match=r"field 'x(\.next)?' is ") as refused:
        described(row(fault))
    assert words in refused.value.fix
    kind = row(told)
    given = {"n": 1, "x": value} if isinstance(kind, pa.Schema) else kind(n=1, x=value)
    assert landed(kind, given) == [{"n": 1, "x": wanted}]


@pytest.mark.parametrize("fault", [walked("row_types._Reading.refuse", None)])
def test_field_that_would_have_no_values_is_left_out_as_the_error_says(fault: Any) -> None:
    with pytest.raises(TopologyError, match="field 'x' is NoneType") as refused:
        described(columns(n=int, x=fault))
    assert "or leave the field out" in refused.value.fix
    kind = columns(n=int)
    assert landed(kind, kind(1)) == [{"n": 1}]


@pytest.mark.remedy("row_types._Reading.refuse")
def test_struct_is_taken_when_its_types_stand_at_the_top_of_a_module() -> None:
    class Here(msgspec.Struct):
        code: str

    class Row(msgspec.Struct):
        here: Here

    with pytest.raises(TopologyError, match="field 'Row' is unreadable") as refused:
        described(Row)
    assert refused.value.fix == "write types defined at the top of a module"
    assert landed(InModule, InModule(Flight("LX"))) == [{"here": {"code": "LX"}}]


def schema(*names: str) -> pa.Schema:
    return pa.schema([pa.field(name, pa.int64()) for name in names])


#: What is refused, a row type as the text says, a value of it, and the row that is wanted.
WALKS: list[Any] = [
    walked(
        "row_types.Precision.__post_init__",
        lambda: Precision(50, 2),
        lambda: columns(x=Annotated[Decimal, Precision(38, 2)]),
        {"x": Decimal("1.5")},
        {"x": Decimal("1.50")},
    ),
    walked(
        "row_types.Precision.__post_init__",
        lambda: Precision(5, 6),
        lambda: columns(x=Annotated[Decimal, Precision(5, 5)]),
        {"x": Decimal("0.5")},
        {"x": Decimal("0.50000")},
    ),
    walked(
        "row_types.row_shape",
        lambda: described(dict),
        lambda: CODES,
        {"code": "LX"},
        {"code": "LX"},
    ),
    *(
        walked(
            "row_types.row_shape",
            lambda: described(Flight("LX")),
            lambda kind=kind: kind,
            {"code": "LX"},
            {"code": "LX"},
        )
        for kind in (Flight, Leg, FlightModel)
    ),
    walked(
        "row_types.check_names: give it one",
        lambda: described(pa.schema([pa.field("n", pa.int64()), pa.field("s", pa.struct([]))])),
        lambda: pa.schema([pa.field("n", pa.int64()), pa.field("s", pa.struct([pa.field("x", pa.int64())]))]),
        {"n": 1, "s": {"x": 2}},
        {"n": 1, "s": {"x": 2}},
    ),
    walked(
        "row_types.check_names: give it one",
        lambda: described(pa.schema([pa.field("n", pa.int64()), pa.field("s", pa.struct([]))])),
        lambda: schema("n"),
        {"n": 1},
        {"n": 1},
    ),
    walked(
        "row_types.check_names: give it one",
        lambda: described(schema()),
        lambda: schema("n"),
        {"n": 1},
        {"n": 1},
    ),
    walked(
        "row_types.check_names: give the column a name",
        lambda: described(schema("delay (min)")),
        lambda: schema("delay_min"),
        {"delay_min": 1},
        {"delay_min": 1},
    ),
    walked(
        "row_types.check_names: give the column a name",
        lambda: described(msgspec.defstruct("Row", [("delay", int)], rename=lambda name: f"{name}/min")),
        lambda: msgspec.defstruct("Row", [("delay", int)], rename=lambda name: f"{name}_min"),
        {"delay": 1},
        {"delay_min": 1},
    ),
    walked(
        "row_types.check_names: rename one of them",
        lambda: described(schema("code", "Code")),
        lambda: schema("code", "name"),
        {"code": 1, "name": 2},
        {"code": 1, "name": 2},
    ),
]


@pytest.mark.parametrize(("fault", "told", "fields", "wanted"), WALKS)
def test_row_type_that_is_written_as_the_error_says_lands(
    fault: Callable[[], object], told: Callable[[], Any], fields: dict[str, Any], wanted: dict[str, Any]
) -> None:
    with pytest.raises(TopologyError):
        fault()
    kind = told()
    value = fields if isinstance(kind, pa.Schema) else kind(**fields)
    assert landed(kind, value) == [wanted]


@pytest.mark.parametrize("sign", [*" .()'\"`/\\,;={}", "\n", "\u200b"])
def test_name_without_the_signs_that_the_error_names_is_taken(sign: str) -> None:
    with pytest.raises(TopologyError, match="cannot be the name of a column") as refused:
        described(schema(f"a{sign}b"))
    named = ["printable", "spaces", "dots", "brackets", "quotes", "slashes"]
    assert [word for word in named if word not in refused.value.fix] == []
    assert ", ; =" in refused.value.fix
    assert landed(schema("a_b"), {"a_b": 1}) == [{"a_b": 1}]


def test_name_of_the_length_that_the_error_names_is_taken() -> None:
    with pytest.raises(TopologyError, match="cannot be the name of a column") as refused:
        described(schema("x" * 1000))
    (least, most) = map(int, re.findall(r"(\d+) to (\d+) printable signs", refused.value.fix)[0])
    assert [landed(schema("x" * size), {"x" * size: 1}) for size in (least, most)] == [
        [{"x": 1}],
        [{"x" * most: 1}],
    ]
    for size in (least - 1, most + 1):
        with pytest.raises(TopologyError, match="cannot be the name of a column"):
            described(schema("x" * size))
