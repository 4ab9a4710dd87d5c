"""Describes the form in which a serde writes keys as plain data, and writes keys in a form that it is given.

Begin sees keys in topics, and needs the bytes that the engine would write for them: those place a key in a
repartition topic. They depend on the key's type: on the order of its fields and their names in JSON, on
defaults, on the form of numbers and times. Begin loads no user code, so the plan describes the type, and
begin makes an equivalent one of msgspec's.

Rule: the equivalent type writes what it reads in the same bytes as the described one. A type of which that is
not certain has no description: one that has functions of the user's, or refers to itself. Limits of values
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
from typing import Any, Literal, NotRequired, Required, TypedDict, Union, get_origin

import msgspec
from msgspec import NODEFAULT, UNSET, UnsetType, inspect

from airflow_kstreams.streams.plan import KeyForm, TypeForm, decode_json, json_decoder, msgpack_decoder
from airflow_kstreams.streams.serde.base import Serde

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
    return generic if form.type is None else _rewriting(form, _rebuilt(form.type), order, otherwise=generic)


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
    if field.default_factory in (list, dict, set):
        return [field.encode_name, form, {} if field.default_factory is dict else []]
    if field.default_factory is not NODEFAULT:
        return [field.encode_name, form]  # it may give something else each time
    if field.default is NODEFAULT:
        return [field.encode_name, ["Unset", form]]
    return [field.encode_name, form, decode_json(msgspec.json.encode(field.default))]


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
