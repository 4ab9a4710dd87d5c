"""Checks that a value is the same after it was written and read.

Rule: types count, at every depth. ``{1: "a"}`` that comes back as ``{"1": "a"}``, a tuple that comes back as
a list, ``True`` as 1 and -0.0 as 0.0 are not the same; NaN is the same as NaN. An int that comes back as an
equal float is the same: only a serde that was declared to hold floats does that.

A wrong refusal would stop an application that is right. So where Python's ``==`` cannot decide (an object
without ``__eq__``, an array), the value is the same if its type is and it is written to the same bytes again.

Speed: every value that a store logs is asked for, so usual ones are decided in C. Of some types a serde is
known to give every object back (:func:`kept_types`). Plain containers, and structs of plain fields, are
compared by what ``marshal`` makes of them: it tells all types apart, and takes no subclass. Only where that
says no is each part compared.
"""

from __future__ import annotations

import dataclasses
import functools
import marshal
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.streams.serde.base import Serde

#: Of marshal's formats the last one whose bytes do not depend on which parts of an object are one object.
_WITHOUT_REFERENCES = 2
_CONTAINERS = (dict, list, tuple, set, frozenset)
_SCALARS: frozenset[type] = frozenset((bool, int, str))
_KEPT: tuple[tuple[Serde, frozenset[type]], ...] = (
    (serdes.bytes(), frozenset((bytes,))),
    (serdes.string(), frozenset((str,))),
    (serdes.int32(), frozenset((int,))),
    (serdes.int64(), frozenset((int,))),
    (serdes.double(), frozenset((float,))),
)
#: Offsets of a zone in winter and summer tell most zones from a fixed offset.
_MONTHS = (1, 7)


def survives(value: Any, data: bytes, serde: Serde) -> bool:
    """Say whether a serde gives a value back unchanged.

    :param value: the value that was written.
    :param data: the serde's bytes.
    :raises Exception: any error of the serde that reads its own bytes.
    """
    read = serde.deserialize(data)
    return _looks_same(value, read) or _same(value, read, lambda: serde.serialize(read) == data)


def _looks_same(one: Any, other: Any) -> bool:
    """Say whether two objects are plain and equal, types included; False may mean anything."""
    kind = type(one)
    if kind is not type(other):
        return False
    try:
        if kind not in _CONTAINERS:
            names = _fields(kind)
            if names is None:
                return False
            one, other = ([getattr(each, name) for name in names] for each in (one, other))
        return marshal.dumps(one, _WITHOUT_REFERENCES) == marshal.dumps(other, _WITHOUT_REFERENCES)
    except ValueError:  # holds what is not plain
        return False


def kept_types(serde: Serde) -> frozenset[type]:
    """Return types of which a serde gives back every object that it takes."""
    pair = (serde.serialize, serde.deserialize)
    for known, kinds in _KEPT:
        if pair == (known.serialize, known.deserialize):
            return kinds
    encoder, decoder = (getattr(function, "__self__", None) for function in pair)
    for form in (msgspec.json, msgspec.msgpack):
        if isinstance(encoder, form.Encoder) and isinstance(decoder, form.Decoder):
            return _SCALARS if decoder.type is Any else _SCALARS & {decoder.type}
    return frozenset()


def serde_for(value: Any) -> Serde | None:
    """Return a serde of this package that gives a value back unchanged, None if none does."""
    kind = _type_of(value)
    makers: tuple[Callable[[], Serde], ...] = (
        lambda: serdes.json(kind),
        lambda: serdes.msgpack(),
        lambda: serdes.msgpack(kind),
    )
    for make in makers:
        try:
            serde = make()
            if survives(value, serde.serialize(value), serde):
                return serde
        except Exception:  # noqa: S112  (this one does not take it)
            continue
    return None


def _same(one: Any, other: Any, same_bytes: Callable[[], bool]) -> bool:
    kind = type(one)
    if kind is not type(other):
        return kind is int and type(other) is float and one == other
    if isinstance(one, float):
        return (one == other and math.copysign(1, one) == math.copysign(1, other)) or (
            one != one and other != other
        )
    if isinstance(one, Decimal):
        return str(one) == str(other)
    if isinstance(one, datetime):
        return one == other and _same_zone(one, other)
    if isinstance(one, dict):
        return _same_dicts(one, other, same_bytes)
    if isinstance(one, (set, frozenset)):
        return _same_dicts(dict.fromkeys(one), dict.fromkeys(other), same_bytes)
    if isinstance(one, (list, tuple, deque)):
        return len(one) == len(other) and _all_same(zip(one, other, strict=True), same_bytes)
    fields = _fields(kind)
    if fields is not None:
        return _all_same(((getattr(one, name), getattr(other, name)) for name in fields), same_bytes)
    return _equal(one, other, same_bytes)


def _all_same(pairs: Iterable[tuple[Any, Any]], same_bytes: Callable[[], bool]) -> bool:
    return all(_same(one, other, same_bytes) for one, other in pairs)


def _same_dicts(one: Mapping[Any, Any], other: Mapping[Any, Any], same_bytes: Callable[[], bool]) -> bool:
    """Compare dicts in any order, with types of keys, since 1, 1.0 and True are equal."""
    if len(one) != len(other):
        return False
    found = {key: key for key in other}
    return all(
        key in found and _same(key, found[key], same_bytes) and _same(value, other[key], same_bytes)
        for key, value in one.items()
    )


def _same_zone(one: datetime, other: datetime) -> bool:
    if one.utcoffset() != other.utcoffset():
        return False
    return all(
        one.replace(month=month, day=1).utcoffset() == other.replace(month=month, day=1).utcoffset()
        for month in _MONTHS
    )


@functools.lru_cache
def _fields(kind: Any) -> list[str] | None:
    """Return the fields by which records of a class are equal, None if it is none of records or has its own
    ``__eq__``.
    """
    equality: Any = kind.__eq__
    # A generated method has no file; one written in the class has.
    file_name = getattr(getattr(equality, "__code__", None), "co_filename", None)
    if dataclasses.is_dataclass(kind) and file_name == "<string>":
        return [field.name for field in dataclasses.fields(kind) if field.compare]
    if issubclass(kind, msgspec.Struct) and equality is msgspec.Struct.__eq__:
        return list(kind.__struct_fields__)
    return None


def _equal(one: Any, other: Any, same_bytes: Callable[[], bool]) -> bool:
    equality: Any = type(one).__eq__
    if equality is object.__eq__:
        return one is other or same_bytes()
    try:
        equal = one == other
    except Exception:
        return same_bytes()
    return equal if isinstance(equal, bool) else same_bytes()


def _type_of(value: Any) -> Any:
    """Return the type to declare for values such as this one."""
    kind = type(value)
    if kind is dict:
        return dict[_common(value), _common(value.values())]  # type: ignore[misc]
    if kind in (set, frozenset, list):
        return kind[_common(value)]
    if kind is tuple and value:
        return tuple[tuple(map(_type_of, value))]  # type: ignore[misc]
    return None if value is None else kind


def _common(values: Iterable[Any]) -> Any:
    kinds = [_type_of(value) for value in values]
    return kinds[0] if kinds and all(kind == kinds[0] for kind in kinds) else Any
