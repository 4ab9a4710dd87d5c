"""Copies values, so that a store and the functions that know its values never hold one object.

Rule: a value goes into a store as a copy and comes out as a copy (:func:`copies_of`), wherever a function
could change it: neither who gave an object to a store nor who received one changes the store. No copy is made
of what cannot change, of what no other part of the task has, and of what goes to sinks only. A fold's
function is given the aggregate itself and may change it: it is the function's own.

**Which copy.** What a store's serde reads is never changed where its type says so: such stores copy nothing.
Of a dict or list of plain values, and of a struct whose fields are declared so, a flat copy is a whole one.
Everything else goes through the serde and back where msgspec makes it, which costs a tenth of a deep copy.
What goes in must come back the same, types included, else it is copied deeply: so the commit sees what was
put, and refuses it with the reason (``store_serdes.py``). What goes out need only be equal. A store without a
changelog need not fit its serde, so its values are copied deeply.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import decimal
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.state.stores.store_serdes import is_same

#: Types whose objects nothing changes.
IMMUTABLE = frozenset(
    (
        type(None),
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        decimal.Decimal,
        datetime.date,
        datetime.datetime,
        datetime.time,
        datetime.timedelta,
        uuid.UUID,
    )
)
#: Says whether all of some types are among them.
all_immutable = IMMUTABLE.issuperset
#: Where a dataclass says whether it is frozen.
_DATACLASS = "__dataclass_params__"
_UNCHANGED = tuple(
    (serde.serialize, serde.deserialize)
    for serde in (serdes.bytes(), serdes.string(), serdes.int32(), serdes.int64(), serdes.double())
)
_PLAIN = (
    inspect.NoneType,
    inspect.BoolType,
    inspect.IntType,
    inspect.FloatType,
    inspect.StrType,
    inspect.BytesType,
    inspect.DateType,
    inspect.DateTimeType,
    inspect.TimeType,
    inspect.TimeDeltaType,
    inspect.UUIDType,
    inspect.DecimalType,
    inspect.EnumType,
    inspect.LiteralType,
)


class UncopyableError(Exception):
    """An object cannot be copied."""


def kept(value: Any) -> Any:
    """Return a value that stays as this one is: itself, if no one can change it.

    :raises UncopyableError: it cannot be copied.
    """
    if type(value) in IMMUTABLE:
        return value
    try:
        return _copied(value)
    except Exception as error:
        raise UncopyableError(
            f"an object of type {type(value).__name__} cannot be copied ({type(error).__name__}: {error})"
        ) from error


def kept_if_copyable(value: Any) -> Any:
    """Return a value that stays as this one is; itself, if it cannot be copied."""
    try:
        return kept(value)
    except UncopyableError:
        return value


def _copied(value: Any) -> Any:
    """Return a copy of a value, flat where that is enough; a value that stays as it is, itself."""
    kind = type(value)
    if kind is list and all(map(_stays, value)):
        return value.copy()
    if kind is dict and all(map(_stays, value)) and all(map(_stays, value.values())):
        return value.copy()
    return value if _stays(value) else copy.deepcopy(value)


def _stays(value: Any) -> bool:
    """Return whether no one can change a value; some of which that is true are not known here."""
    kind = type(value)
    if kind in IMMUTABLE:
        return True
    if kind is tuple:
        return all(map(_stays, value))
    # Other classes are asked for what they have themselves: one below a frozen one may have more attributes.
    frozen = kind.__struct_config__ if isinstance(value, msgspec.Struct) else vars(kind).get(_DATACLASS)
    if frozen is None or not frozen.frozen:
        return False
    names = kind.__struct_fields__ if isinstance(value, msgspec.Struct) else kind.__dataclass_fields__
    return all(_stays(getattr(value, name, ...)) for name in names)


def same(value: Any) -> Any:
    """Return a value."""
    return value


class ValueCopies(NamedTuple):
    """Functions that make of a store's value an equal one that nothing else holds.

    :param taken_in: makes what the store keeps.
    :param handed_out: makes what the store gives.
    """

    taken_in: Callable[[Any], Any]
    handed_out: Callable[[Any], Any]


def copies_of(spec: StoreSpec) -> ValueCopies | None:
    """Return the functions that copy a store's values; None for a store whose values never change."""
    serialize, deserialize = spec.value_serde.serialize, spec.value_serde.deserialize
    read = _read_by_msgspec(spec)
    if spec.logged and ((serialize, deserialize) in _UNCHANGED or (read and _never_changes(*read, ()))):
        return None

    def the_same(value: Any, found: Any, data: bytes) -> bool:
        return is_same(value, found, lambda read: serialize(read) == data)

    def equal(value: Any, found: Any, data: bytes) -> bool:
        return (value == found) is True

    return ValueCopies(_copying(spec.value_serde, read, the_same), _copying(spec.value_serde, read, equal))


def _copying(
    serde: Serde,
    read: tuple[inspect.Type] | tuple[()],
    is_copy: Callable[[Any, Any, bytes], bool],
) -> Callable[[Any], Any]:
    """Make a function that copies values.

    :param read: the type that msgspec reads, in a tuple; nothing for another serde.
    :param is_copy: whether what came back from some bytes is a copy of a value.
    """
    serialize, deserialize = serde.serialize, serde.deserialize
    flat = _flat_struct(*read)

    def through_serde(value: Any) -> Any:
        """Return what the serde makes of a value, None if that is no copy of it."""
        try:
            data = serialize(value)
            found = deserialize(data)
            copied = is_copy(value, found, data)
        except Exception:
            return None
        return found if copied else None

    def copied(value: Any) -> Any:
        kind = type(value)
        if kind in IMMUTABLE:
            return value
        if read:
            if kind is dict and all_immutable(map(type, value.values())):
                return value.copy()
            if kind is flat:
                return value.__copy__()
            if kind is list and all_immutable(map(type, value)):
                return value.copy()
            found = through_serde(value)
            if found is not None:
                return found
        try:
            return kept(value)
        except UncopyableError:
            found = through_serde(value)
            return value if found is None else found

    return copied


def _read_by_msgspec(spec: StoreSpec) -> tuple[inspect.Type] | tuple[()]:
    """Return, in a tuple, the type that a store's serde reads; nothing if msgspec does not do it all, or the
    values need not fit the serde.
    """
    functions = spec.value_serde.serialize, spec.value_serde.deserialize
    encoder, decoder = (getattr(function, "__self__", None) for function in functions)
    for form in (msgspec.json, msgspec.msgpack):
        if spec.logged and isinstance(encoder, form.Encoder) and isinstance(decoder, form.Decoder):
            return (inspect.type_info(decoder.type),)
    return ()


def _never_changes(read: inspect.Type, within: tuple[Any, ...]) -> bool:
    """Return whether nothing changes what is read as a type.

    :param within: classes around it; one in itself says nothing new.
    """
    match read:
        case inspect.UnionType() | inspect.TupleType():
            parts = read.types if isinstance(read, inspect.UnionType) else read.item_types
            return all(_never_changes(part, within) for part in parts)
        case inspect.VarTupleType() | inspect.FrozenSetType():
            return _never_changes(read.item_type, within)
        case inspect.StructType() | inspect.DataclassType() | inspect.NamedTupleType():
            if isinstance(read, inspect.StructType) and not read.cls.__struct_config__.frozen:
                return False
            if isinstance(read, inspect.DataclassType) and not _frozen_dataclass(read.cls):
                return False
            inside = (*within, read.cls)
            return read.cls in within or all(_never_changes(field.type, inside) for field in read.fields)
    return isinstance(read, _PLAIN)


def _frozen_dataclass(cls: type) -> bool:
    return bool(getattr(cls, _DATACLASS).frozen) if dataclasses.is_dataclass(cls) else False


def _flat_struct(read: inspect.Type | None = None) -> type | None:
    """Return the class of structs of which a flat copy is a whole one, None if a type is no such class."""
    if not isinstance(read, inspect.StructType):
        return None
    return read.cls if all(_never_changes(field.type, ()) for field in read.fields) else None
