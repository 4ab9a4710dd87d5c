"""Describes the form in which a serde writes keys as plain data, and writes keys in a form that it is given.

Begin sees keys in topics, and needs the bytes that the engine would write for them: those place a key in a
repartition topic. They depend on the key's type: on the order of its fields and their names in JSON, on
defaults, on the form of numbers and times. Begin loads no user code, so the plan describes the type, and
begin makes an equivalent one of msgspec's.

Rule: the equivalent type writes what it reads in the same bytes as the described one. A type of which that is
not certain has no description: one that has functions of the user's, or refers to itself, or a model with
more than fields of plain types. Limits of values
are no part of it, since what they exclude ends the run that reads it. Without a description, and with keys
that are not of the type, a key keeps its fields as they are, and only blanks and escapes go.

A description has msgspec's own names: ``"Int"``, ``["List", "Str"]``, ``["Fields", {}, ["code", "Str"],
["year", "Int", 2013]]`` of a class with a default. As a field's type ``["Unset", "Str"]`` is one that may be
left out.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import uuid
from collections.abc import Callable, Iterator
from inspect import isclass
from types import UnionType
from typing import Any, Literal, NotRequired, Required, TypedDict, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, UNSET, UnsetType, inspect

from airflow_kstreams.streams.plan import KeyForm, TypeForm, decode_json, json_decoder, msgpack_decoder
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.typed import is_model

_PLAIN: dict[str, Any] = {
    "Any": Any,
    "None": None,
    "Bool": bool,
    "Int": int,
    "Float": float,
    "Str": str,
    "Bytes": bytes,
    "DateTime": datetime.datetime,
    "Time": datetime.time,
    "Date": datetime.date,
    "TimeDelta": datetime.timedelta,
    "UUID": uuid.UUID,
    "Decimal": decimal.Decimal,
}
_GENERIC: dict[str, Any] = {
    "List": list,
    "Set": set,
    "FrozenSet": frozenset,
    "Tuple": tuple,
    "VarTuple": tuple,
    "Dict": dict,
    "Union": Union,
}


#: Returns the bytes of a key in another form.
Rewrite = Callable[[bytes], bytes]


def form_of(serde: Serde) -> KeyForm | None:
    """Return the form in which a serde writes keys, without topics; None if equal ones have one form only, or
    the serde is none of this package's.

    >>> from airflow_kstreams.streams import serdes
    >>> form_of(serdes.json(list[int]))
    KeyForm(topics=(), format='json', sorts=False, type=['List', 'Int'])
    """
    kind = serde.id.partition("(")[0]
    if kind not in ("json", "msgpack", "of", "model"):
        return None
    sorts = kind in ("of", "model")
    read_type = getattr(getattr(serde.deserialize, "__self__", None), "type", None)
    form = None if read_type is None else _description(read_type, sorts=sorts)
    return KeyForm(
        topics=(),
        format="msgpack" if kind == "msgpack" else "json",
        # The order of the fields of an unknown class is not that of a dict's keys; a model is written as one.
        sorts=sorts and (form is not None or kind == "model"),
        type=form,
    )


def as_written(form: KeyForm) -> Rewrite:
    """Return the function from a key in any form to the engine's bytes of it."""
    order: Any = "deterministic" if form.sorts else None
    generic = _rewriting(form, Any, order)
    if form.type is None:
        return generic
    try:
        return _rewriting(form, _rebuilt(form.type), order, otherwise=generic)
    except (LookupError, TypeError, ValueError, RecursionError):  # stored by another version
        return generic


def in_one_form(form: KeyForm) -> Rewrite:
    """Return the function from the engine's bytes of a key to those that all equal ones have."""
    return _rewriting(form, Any, "sorted")


def _rewriting(form: KeyForm, kind: Any, order: Any, otherwise: Rewrite = bytes) -> Rewrite:
    """:param otherwise: for keys that are not of the type: each is an error of its record."""
    format, decoder = (  # noqa: A001  (as in the form)
        (msgspec.json, json_decoder) if form.format == "json" else (msgspec.msgpack, msgpack_decoder)
    )
    decode, encode = decoder(kind).decode, format.Encoder(order=order).encode

    def rewrite(key: bytes) -> bytes:
        try:
            written: bytes = encode(decode(key))
        except (ValueError, TypeError, RecursionError):
            return otherwise(key)
        return written

    return rewrite


class _UnknownError(Exception):
    """There is no description."""


def _description(type: Any, *, sorts: bool) -> TypeForm | None:  # noqa: A002  (as in serdes)
    """Return the description of a type that msgspec reads; None if there is none.

    :param sorts: whether the items of sets are sorted where they are written: else their order is chance.
    """
    try:
        form = _described(inspect.type_info(type), sorts)
        _rebuilt(form)
    except (_UnknownError, RecursionError, TypeError, ValueError):
        return None
    return form


def _rebuilt(form: TypeForm) -> Any:
    """Return a type that writes what it reads as the described one does."""
    if isinstance(form, str):
        return _PLAIN[form]
    kind, *parts = form
    if kind == "Fields":
        return _with_fields(*parts)
    if kind == "TypedDict":
        return TypedDict(  # type: ignore[operator]
            "Key",
            {name: (Required if always else NotRequired)[_rebuilt(part)] for name, part, always in parts},
        )
    if kind == "Enum":
        return enum.Enum("Key", [(f"m{number}", value) for number, value in enumerate(parts)])
    if kind == "Literal":
        return Literal[tuple(parts)]
    types = map(_rebuilt, parts)
    return _GENERIC[kind][(*types, ...) if kind == "VarTuple" else tuple(types)]


def _described(info: inspect.Type, sorts: bool) -> TypeForm:
    kind = type(info).__name__.removesuffix("Type")
    match info:
        case inspect.Metadata():
            return _described(info.type, sorts)
        case inspect.CustomType() if info.cls is object:
            return "Any"
        case inspect.CustomType() if is_model(info.cls):
            return _described_model(info.cls)
        case inspect.SetType() | inspect.FrozenSetType() if not sorts:
            raise _UnknownError
        case inspect.LiteralType():
            return [kind, *info.values]
        case inspect.EnumType() if _is_plain(info.cls):
            return [kind, *(member.value for member in info.cls)]
        case inspect.TypedDictType():
            return [kind, *([each.name, _described(each.type, sorts), each.required] for each in info.fields)]
        case inspect.StructType() | inspect.DataclassType() | inspect.NamedTupleType():
            fields = (_described_field(each, sorts) for each in _in_order(info))
            return ["Fields", _options(info), *fields]
    if kind in _GENERIC:
        return [kind, *(_described(each, sorts) for each in _items(info))]
    if kind in _PLAIN:
        return kind
    raise _UnknownError


def _items(info: inspect.Type) -> tuple[inspect.Type, ...]:
    match info:
        case inspect.DictType():
            return info.key_type, info.value_type
        case inspect.TupleType():
            return info.item_types
        case inspect.UnionType():
            return info.types
        case inspect.CollectionType():
            return (info.item_type,)
    raise _UnknownError


def _is_plain(kind: type[enum.Enum]) -> bool:
    """Return True unless a function of the user's makes members of values that there are not."""
    own: Any = kind._missing_
    plain: Any = enum.Enum._missing_
    return own.__func__ is plain.__func__


def _in_order(
    info: inspect.StructType | inspect.DataclassType | inspect.NamedTupleType,
) -> Iterator[inspect.Field]:
    """Yield the fields in the order in which they are written."""
    kind = get_origin(info.cls) or info.cls
    if hasattr(kind, "__post_init__"):
        raise _UnknownError  # it may change what was read
    if not isinstance(info, inspect.DataclassType):
        yield from info.fields
        return
    found = {each.name: each for each in info.fields}
    names = [each.name for each in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
    if {*names} != {*found}:
        raise _UnknownError  # a class of attrs
    yield from (found[name] for name in names)


def _options(info: inspect.StructType | inspect.DataclassType | inspect.NamedTupleType) -> dict[str, Any]:
    """Return the arguments of the equivalent ``msgspec.defstruct``."""
    if not isinstance(info, inspect.StructType):
        return {"array_like": True} if isinstance(info, inspect.NamedTupleType) else {}
    config = info.cls.__struct_config__
    options = {
        "tag_field": config.tag_field,
        "tag": config.tag,
        "array_like": config.array_like,
        "omit_defaults": config.omit_defaults,
    }
    return {name: value for name, value in options.items() if value is not None and value is not False}


def _described_field(field: inspect.Field, sorts: bool) -> TypeForm:
    form = _described(field.type, sorts)
    if field.required:
        return [field.encode_name, form]
    if field.default_factory is not NODEFAULT:
        return [field.encode_name, form, *_empty(field.default_factory)]
    if field.default is NODEFAULT:
        return [field.encode_name, ["Unset", form]]
    return [field.encode_name, form, decode_json(msgspec.json.encode(field.default))]


def _empty(factory: Any) -> list[Any]:
    """Return the default that a function gives, or none if it may give another one each time."""
    return [{} if factory is dict else []] if factory in (list, dict, set) else []


def _with_fields(options: dict[str, Any], *fields: Any) -> Any:
    made: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for number, (_, form, *default) in enumerate(fields):
        name = f"f{number}"
        if form[0] == "Unset":
            made.append((name, _rebuilt(form[1]) | UnsetType, UNSET))
        else:
            kind = _rebuilt(form)
            made.append((name, kind, *(_value(kind, each) for each in default)))
    names = {f"f{number}": name for number, (name, *_) in enumerate(fields)}
    return msgspec.defstruct("Key", made, rename=names, kw_only=True, frozen=True, **options)


def _value(kind: Any, default: Any) -> Any:
    """Return a default: an object of the type, as msgspec leaves it out by its identity, unless the class has
    one that is none.
    """
    data = msgspec.json.encode(default)
    try:
        return json_decoder(kind).decode(data)
    except msgspec.ValidationError:
        return default


#: Types that pydantic writes as msgspec does, in all forms in which msgspec reads them.
_IN_MODELS = {_PLAIN[name]: name for name in ("Bool", "Int", "Float", "Str", "Date", "UUID")}
#: Settings of a model that change no bytes.
_IDLE = frozenset({"frozen", "title", "extra"})
#: Functions with which a model reads and writes in its own way.
_OWN_WAYS = frozenset(
    {"model_dump", "model_validate_json", "model_post_init", "__get_pydantic_core_schema__", "__init__"}
)


def _described_model(model: Any) -> TypeForm:
    """Return the description of a pydantic model that has fields only; it is written as a dict."""
    decorators = model.__pydantic_decorators__
    if (
        model.__pydantic_root_model__
        or not _IDLE.issuperset(model.model_config)
        or model.model_config.get("extra") == "allow"
        or any(getattr(decorators, each.name) for each in dataclasses.fields(decorators))
        or any(_OWN_WAYS & vars(each).keys() for each in model.__mro__ if is_model(each) and _is_own(each))
    ):
        raise _UnknownError
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    return ["Fields", {}, *(_described_model_field(name, fields[name]) for name in sorted(fields))]


def _is_own(model: type) -> bool:
    return model.__module__.partition(".")[0] != "pydantic"


def _described_model_field(name: str, field: Any) -> TypeForm:
    limits = all(type(each).__module__ == "annotated_types" for each in field.metadata)
    names = {field.alias, field.validation_alias, field.serialization_alias}
    if not limits or len(names) > 1 or field.exclude or getattr(field, "exclude_if", None):
        raise _UnknownError
    form = _described_in_model(field.annotation)
    if field.is_required():
        return [name, form]
    if field.default_factory is not None:
        return [name, form, *_empty(field.default_factory)]
    return [name, form, decode_json(msgspec.json.encode(field.default))]


def _described_in_model(annotation: Any) -> TypeForm:
    if isclass(annotation):
        if annotation in _IN_MODELS:
            return _IN_MODELS[annotation]
        if is_model(annotation):
            return _described_model(annotation)
        if issubclass(annotation, enum.Enum) and _is_plain(annotation):
            return ["Enum", *(member.value for member in annotation)]
    kind, items = get_origin(annotation), get_args(annotation)
    if kind is Literal and all(isinstance(each, str) for each in items):
        return ["Literal", *items]
    if kind in (Union, UnionType) and len(items) == 2 and type(None) in items:
        return ["Union", *("None" if each is type(None) else _described_in_model(each) for each in items)]
    if kind is list:
        return ["List", _described_in_model(*items)]
    if kind is dict and items[0] is str:
        return ["Dict", "Str", _described_in_model(items[1])]
    if kind is tuple and ... not in items:
        return ["Tuple", *map(_described_in_model, items)]
    if annotation is Any:
        return "Any"
    raise _UnknownError
