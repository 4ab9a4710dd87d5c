"""The type that begin makes of a key type's description writes the bytes that the serde writes."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import uuid
from decimal import Decimal
from functools import partial
from typing import Any, Literal, NamedTuple, NotRequired, Required, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kstreams.streams import Serde, serdes
from airflow_kstreams.streams.plan import KeyForm, decode_json
from airflow_kstreams.streams.serde.key_forms import as_written, form_of

pytestmark = pytest.mark.promise("equal-keys-meet")

# As values, for type checkers.
LIST: Any = list
TUPLE: Any = tuple
DICT: Any = dict
NAMED_TUPLE: Any = NamedTuple
TYPED_DICT: Any = TypedDict
STRUCT: Any = msgspec.defstruct
FIELD: Any = pydantic.Field

#: A type, and what producers may write for it, as objects of JSON.
Drawn = tuple[Any, st.SearchStrategy[Any]]


class Side(enum.Enum):
    LEFT = "l"
    RIGHT = "r"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3000


TIMES = st.datetimes(
    datetime.datetime(1970, 1, 1),  # noqa: DTZ001
    datetime.datetime(2100, 1, 1),  # noqa: DTZ001
    timezones=st.sampled_from([None, datetime.UTC, datetime.timezone(datetime.timedelta(hours=2))]),
)
LEAVES: list[Drawn] = [
    (Any, st.none() | st.integers(0, 9) | st.text(max_size=2) | st.lists(st.booleans(), max_size=2)),
    (object, st.dictionaries(st.text(max_size=2), st.integers(0, 9), max_size=3)),
    (bool, st.booleans()),
    (int, st.integers(-(2**63), 2**63 - 1)),
    (float, st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False)),
    (str, st.text(max_size=3)),
    (bytes, st.sampled_from(["", "YQ==", "YWI="])),
    (datetime.datetime, TIMES.map(lambda at: at.isoformat("T")) | TIMES.map(lambda at: at.isoformat(" "))),
    (datetime.date, st.dates().map(str)),
    (datetime.timedelta, st.sampled_from(["PT90S", "P1DT1H", "PT0.50S"])),
    (uuid.UUID, st.uuids().map(str) | st.uuids().map(lambda one: one.hex.upper())),
    (Decimal, st.sampled_from(["1.50", "-0", "1E+2", 7, 1.5])),
    (Side, st.sampled_from(["l", "r"])),
    (Level, st.sampled_from([1, 3000])),
    (Literal["p", "quite long", 2013], st.sampled_from(["p", "quite long", 2013])),
]


@st.composite
def typed(draw: st.DrawFn, depth: int = 2) -> Drawn:
    """Draw a type."""
    if depth == 0 or draw(st.integers(0, 2)) == 0:
        return draw(st.sampled_from(LEAVES))
    if draw(st.booleans()):
        return draw(classes(depth - 1))
    kind, values = draw(typed(depth - 1))
    made: list[Drawn] = [] if kind in (Any, object) else [(kind | None, st.none() | values)]
    made += [
        (LIST[kind], st.lists(values, max_size=3)),
        (TUPLE[kind, ...], st.lists(values, max_size=3)),
        (TUPLE[kind, int], st.tuples(values, st.integers(0, 9))),
        (DICT[str, kind], st.dictionaries(st.text(max_size=2), values, max_size=3)),
        (frozenset[int], st.lists(st.integers(0, 99), max_size=5)),
    ]
    return draw(st.sampled_from(made))


@st.composite
def classes(draw: st.DrawFn, depth: int = 2) -> Drawn:
    """Draw a class, and objects that have its fields in any order, lack defaults, or have a field more."""
    names = draw(st.lists(st.sampled_from(["code", "Year", "a", "b", "z9"]), min_size=1, unique=True))
    fields = {name: draw(typed(depth)) for name in names}
    kind = draw(st.sampled_from(["struct", "dataclass", "dict", "array"]))
    types = {name: part for name, (part, _) in fields.items()}
    if kind == "array":
        array = draw(st.sampled_from([NAMED_TUPLE, partial(STRUCT, array_like=True)]))
        values_of_all = st.tuples(*(values for _, values in fields.values()))
        return array("Array", list(types.items())), values_of_all.map(list)
    defaults = {name: draw(default(*fields[name])) for name in names if draw(st.booleans())}
    optional = {name: values for name, (_, values) in fields.items() if name in defaults}
    needed = {name: values for name, (_, values) in fields.items() if name not in defaults}
    written = st.fixed_dictionaries(needed, optional={**optional, "more": st.integers(0, 9)})
    rows = written.flatmap(lambda found: st.permutations(list(found.items())).map(dict))
    if kind == "dict":
        marks = {name: (NotRequired if name in defaults else Required)[part] for name, part in types.items()}
        return TYPED_DICT("Dict", marks), rows
    if kind == "dataclass":
        given_by = [
            (name, part, dataclasses.field(kw_only=True, **defaults.get(name, {})))
            for name, part in types.items()
        ]
        slots, frozen = draw(st.booleans()), draw(st.booleans())
        return dataclasses.make_dataclass("Class", given_by, slots=slots, frozen=frozen), rows
    options = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "omit_defaults": st.just(True),
                "tag": st.sampled_from(["key", 7]),
                "rename": st.sampled_from(["upper", "kebab", {name: f"{name}-of it" for name in names}]),
            },
        )
    )
    made = STRUCT(
        "Struct",
        [(name, part, msgspec.field(**defaults.get(name, {}))) for name, part in types.items()],
        kw_only=True,
        **options,
    )
    renamed = dict(zip(made.__struct_fields__, made.__struct_encode_fields__, strict=True))
    return made, rows.map(lambda row: {renamed.get(name, name): value for name, value in row.items()})


@st.composite
def default(draw: st.DrawFn, kind: Any, values: st.SearchStrategy[Any]) -> dict[str, Any]:
    value = draw(values)
    found = serdes.json(kind).deserialize(msgspec.json.encode(value))
    if isinstance(found, list | dict | set):
        return {"default_factory": type(found)}
    try:
        hash(found)
    except TypeError:
        return {"default": None}
    return {"default": found}


MODEL_LEAVES: list[Drawn] = [
    *(
        each
        for each in LEAVES
        if each[0] in (Any, bool, int, float, str, datetime.date, uuid.UUID, Side, Level)
    ),
    (Literal["p", "quite long"], st.sampled_from(["p", "quite long"])),
]


@st.composite
def models(draw: st.DrawFn, depth: int = 2) -> Drawn:
    """Draw a pydantic model, and objects as of :func:`classes`."""
    fields: dict[str, Any] = {}
    needed: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {"more": st.integers(0, 9)}
    for name in draw(st.lists(st.sampled_from(["code", "Year", "a", "b", "z9"]), min_size=1, unique=True)):
        kind, values = draw(
            models(depth - 1) if depth and draw(st.booleans()) else st.sampled_from(MODEL_LEAVES)
        )
        made: list[Drawn] = [
            (kind, values),
            (LIST[kind], st.lists(values, max_size=3)),
            (DICT[str, kind], st.dictionaries(st.text(max_size=2), values, max_size=3)),
            (TUPLE[kind, str], st.tuples(values, st.text(max_size=2)).map(list)),
        ]
        kind, values = draw(
            st.sampled_from(made if kind is Any else [*made, (kind | None, st.none() | values)])
        )
        alias = draw(st.sampled_from([name, f"of {name}"]))
        default = draw(st.sampled_from([..., None, 7, "x"]))
        (needed if default is ... else optional)[alias] = values
        fields[name] = (kind, FIELD(default, **({} if alias == name else {"alias": alias})))
    written = st.fixed_dictionaries(needed, optional=optional)
    rows = written.flatmap(lambda found: st.permutations(list(found.items())).map(dict))
    return pydantic.create_model("Model", **fields), rows


@given(st.data())
def test_key_of_a_model_is_rewritten_to_the_bytes_of_its_serde(data: st.DataObject) -> None:
    kind, values = data.draw(models())
    serde: Serde = serdes.of(kind)
    form = stored(form_of(serde))
    assert form.type is not None
    key = json.dumps(data.draw(values)).encode()
    try:
        ours = serde.serialize(serde.deserialize(key))
    except ValueError:
        return  # a default that its own model does not read
    assert as_written(form)(key) == ours


def stored(form: KeyForm | None) -> KeyForm:
    """Return a form as begin has it."""
    return decode_json(msgspec.json.encode(form), KeyForm)


@given(st.data())
def test_key_is_rewritten_to_the_bytes_of_its_serde(data: st.DataObject) -> None:
    kind, values = data.draw(typed())
    made: list[Serde] = [serdes.json(kind), serdes.msgpack(kind)]
    if isinstance(kind, type) and (issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind)):
        made.append(serdes.of(kind))
    written = data.draw(values)
    for serde in made:
        form = stored(form_of(serde))
        assert form.type is not None or "FrozenSet" in repr(msgspec.inspect.type_info(kind))
        in_json = form.format == "json"
        key = json.dumps(written).encode() if in_json else msgspec.msgpack.encode(written)
        try:
            ours = serde.serialize(serde.deserialize(key))
        except (msgspec.MsgspecError, ValueError):
            continue  # bytes and UUIDs are no text in MessagePack
        if form.type is not None:
            assert as_written(form)(key) == ours
