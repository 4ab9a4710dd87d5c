"""What the plan says of the keys of topics, and what it does not know."""

from __future__ import annotations

import datetime
import enum
from dataclasses import dataclass
from typing import Annotated, Any

import attrs
import msgspec
import pydantic
import pytest

from airflow_kstreams.streams import KStreamBuilder, Serde, serdes
from airflow_kstreams.streams.plan import KeyForm
from airflow_kstreams.streams.serde.key_forms import as_written, form_of

pytestmark = pytest.mark.promise("equal-keys-meet")


@dataclass(frozen=True)
class Place:
    city: str
    code: int = 7


@dataclass
class Trimmed:
    city: str

    def __post_init__(self) -> None:
        self.city = self.city.strip()


@attrs.define
class Attributed:
    city: str


class Tree(msgspec.Struct):
    below: list[Tree] = []


class Folded(enum.Enum):
    A = "a"

    @classmethod
    def _missing_(cls, value: Any) -> Folded:
        return cls.A


class Rolled(msgspec.Struct):
    city: str = msgspec.field(default_factory=lambda: "Rome")


class Stripped(pydantic.BaseModel):
    city: str

    @pydantic.field_validator("city")
    @classmethod
    def strip(cls, city: str) -> str:
        return city.strip()


class Kept(pydantic.BaseModel, extra="allow"):
    city: str


class Lowered(pydantic.BaseModel, str_to_lower=True):
    city: str


class Sized(pydantic.BaseModel):
    city: str

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def size(self) -> int:
        return len(self.city)


class Renamed(pydantic.BaseModel):
    city: str = pydantic.Field(serialization_alias="town")


class Distances(pydantic.BaseModel):
    miles: list[Annotated[int, pydantic.AfterValidator(abs)]]


class Dated(pydantic.BaseModel):
    at: datetime.datetime


class Cities(pydantic.RootModel[list[str]]):
    pass


class Shown(pydantic.BaseModel):
    city: str

    def model_dump(self, **options: Any) -> dict[str, Any]:
        return {"town": self.city}


def test_plan_has_each_form_once_and_with_the_topics_that_a_pattern_matches() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.of(Place), default_value_serde=serdes.json())
    both = builder.stream("b").merge(builder.stream("a")).merge(builder.stream(pattern="c-.*"))
    both.group_by(lambda key, value: key).count()
    plan = builder.build().plan("app")
    place = ["Fields", {}, ["city", "Str"], ["code", "Int", 7]]
    forms = [form for sub in plan.matched(["a", "b", "c-1", "c-2"]).subtopologies for form in sub.key_forms]
    assert forms == [KeyForm(topics=("a", "b", "c-1", "c-2"), format="json", sorts=True, type=place)]
    assert msgspec.json.decode(msgspec.json.encode(plan), type=type(plan)) == plan


@pytest.mark.parametrize("kind", [Trimmed, Attributed, Tree, Folded, list[set[str]]])
def test_type_that_functions_of_the_users_change_has_no_description(kind: Any) -> None:
    form = form_of(serdes.json(kind))
    assert form == KeyForm(topics=(), format="json", sorts=False, type=None)
    assert as_written(form)(b'{"b": 1, "a": "\\u0041"}') == b'{"b":1,"a":"A"}'


@pytest.mark.parametrize(
    "model", [Stripped, Kept, Lowered, Sized, Renamed, Distances, Dated, Cities, Shown, list[Stripped]]
)
def test_model_that_is_more_than_its_fields_has_no_description(model: Any) -> None:
    form = form_of(serdes.of(pydantic.create_model("Model", inner=model)))
    assert form == KeyForm(topics=(), format="json", sorts=True, type=None)
    assert as_written(form)(b'{"b": 1, "a": "\\u0041"}') == b'{"a":"A","b":1}'


def test_field_whose_default_a_function_gives_is_described_as_one_that_is_there() -> None:
    form = form_of(serdes.json(Rolled))
    assert form is not None
    assert as_written(form)(b'{"more": 1, "city": "Bonn"}') == b'{"city":"Bonn"}'
    assert as_written(form)(b'{"more": 1}') == b'{"more":1}'


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "Complex",
        [],
        ["List"],
        ["List", None],
        ["List", "Str", "Int"],
        ["Fields"],
        ["Fields", {"of": 1}, ["a", "Str"]],
        ["Fields", {}, [7, "Str"]],
        ["Fields", {}, ["a", ""]],
        ["Fields", {}, ["a", ["Unset"]]],
        ["Fields", {}, []],
        ["Fields", 7, ["a", "Str"]],
        ["TypedDict", ["a"]],
        ["Enum", 1.5, []],
        ["Literal", {}],
        ["Dict", ["Set", "Int"], "Int", "Int"],
        ["Union", "Str", ["Literal", "a"], "UUID"],
        [["List"]],
    ],
)
def test_description_that_another_version_stored_is_none(broken: Any) -> None:
    form = KeyForm(topics=(), format="json", sorts=False, type=broken)
    assert as_written(form)(b'{"b": 1, "a": 2}') == b'{"b":1,"a":2}'


@pytest.mark.parametrize(
    "serde",
    [
        serdes.string(),
        Serde(id="json-sorted", serialize=serdes.json().serialize, deserialize=serdes.json().deserialize),
    ],
)
def test_other_formats_have_no_form(serde: Serde[Any]) -> None:
    assert form_of(serde) is None
