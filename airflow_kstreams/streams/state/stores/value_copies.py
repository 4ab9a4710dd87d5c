"""Copies values, so that a store and the functions that know its values never hold one object.

Rule: a value goes into a store as a copy and comes out as a copy (:func:`copies_of`), wherever a function
could change it: neither the giver nor the receiver of an object changes the store. No copy is made of an
object that cannot change, that no other part of the task has, or that goes to sinks only. A fold's function
is given the aggregate itself and may change it: it is the function's own.

**Kinds of copies.** A store whose serde reads objects of immutable types copies nothing. For a dict, list or
set of plain values, and for a struct whose fields are declared so, a flat copy is enough; where the serde's
type says that the parts are plain, nothing looks at them, since the commit refuses a value with other parts.
Every other object goes through the serde and back where msgspec makes it, which costs a tenth of a deep copy.
An object that goes in must come back the same, types included, else it is copied deeply: so the commit checks
the object that was put, and refuses it with the reason (``store_serdes.py``). An object that goes out need
only be equal. A store without a changelog need not fit its serde, so its values are copied deeply.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import decimal
import io
import marshal
import pickle
import types
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.state.stores.store_serdes import WITHOUT_REFERENCES, is_same

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
#: Returns True if all of some types are among them.
all_immutable = IMMUTABLE.issuperset
#: Attribute of a dataclass with its parameters, ``frozen`` among them.
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


def is_unchanged(value: Any, before: Any) -> bool:
    """Return True if a value is as it was when it was copied, as far as its bytes may depend on it: plain
    values of one type, with the order of dicts and the types of their parts; an object by its class's
    ``__eq__``, and without one by all that it holds.

    :param before: copy of the value, made by :func:`kept`.
    :raises UncopyableError: objects of the class cannot be compared.
    """
    if value is before or type(value) is not type(before):
        return value is before
    try:
        return marshal.dumps(value, WITHOUT_REFERENCES) == marshal.dumps(before, WITHOUT_REFERENCES)
    except ValueError:  # holds what is not plain
        if (value == before) is True:
            return True
    try:
        return _content(value) == _content(before)
    except Exception as error:
        raise UncopyableError(
            f"objects of type {type(value).__name__} cannot be compared ({type(error).__name__}: {error})"
        ) from error


class _ContentPickler(pickle.Pickler):
    """Pickles what objects hold; classes and functions, which may have no name to import, by identity."""

    def persistent_id(self, obj: Any) -> int | None:
        return id(obj) if isinstance(obj, (type, types.FunctionType)) else None


def _content(value: Any) -> bytes:
    written = io.BytesIO()
    pickler = _ContentPickler(written)
    # Without references, bytes do not depend on the identity of parts.
    pickler.fast = True
    pickler.dump(value)
    return written.getvalue()


def _copied(value: Any) -> Any:
    """Return a copy of a value, flat where that is enough; the value itself if it cannot change."""
    kind = type(value)
    if kind is list and all(map(_stays, value)):
        return value.copy()
    if kind is dict and all(map(_stays, value)) and all(map(_stays, value.values())):
        return value.copy()
    return value if _stays(value) else copy.deepcopy(value)


def _stays(value: Any) -> bool:
    """Return True if a value is known to be immutable; False for some immutable ones, too."""
    kind = type(value)
    if kind in IMMUTABLE:
        return True
    if kind is tuple:
        return all(map(_stays, value))
    # Only a class's own declaration counts: a subclass of a frozen class may have more attributes.
    frozen = kind.__struct_config__ if isinstance(value, msgspec.Struct) else vars(kind).get(_DATACLASS)
    if frozen is None or not frozen.frozen:
        return False
    names = kind.__struct_fields__ if isinstance(value, msgspec.Struct) else kind.__dataclass_fields__
    return all(_stays(getattr(value, name, ...)) for name in names)


def same(value: Any) -> Any:
    """Return a value."""
    return value


class FlatCopy(NamedTuple):
    """The flat copy that is enough for a store's values, by the type that its serde reads.

    :param cls: class of those values.
    :param copied: function that copies one.
    """

    cls: type
    copied: Callable[[Any], Any]


class ValueCopies(NamedTuple):
    """Functions that copy a store's value to an equal one that no other part of the task holds.

    :param taken_in: function that makes the copy which the store keeps.
    :param handed_out: function that makes the copy which the store gives.
    :param flat: the copy that both make of most values; None if there is no such copy.
    """

    taken_in: Callable[[Any], Any]
    handed_out: Callable[[Any], Any]
    flat: FlatCopy | None


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

    flat = _flat_copy(*read)
    return ValueCopies(
        _copying(spec.value_serde, read, flat, the_same), _copying(spec.value_serde, read, flat, equal), flat
    )


def _copying(
    serde: Serde,
    read: tuple[inspect.Type] | tuple[()],
    flat: FlatCopy | None,
    is_copy: Callable[[Any, Any, bytes], bool],
) -> Callable[[Any], Any]:
    """Make a function that copies values.

    :param serde: the store's serde of values.
    :param read: the type that msgspec reads, in a tuple; empty for another serde.
    :param flat: the flat copy that is enough, if there is one.
    :param is_copy: function of a value, the object read back, and the bytes: it returns True if the object is
        a copy of the value.
    """
    serialize, deserialize = serde.serialize, serde.deserialize
    flat_class, copied_flat = flat or (None, same)

    def through_serde(value: Any) -> Any:
        """Return a value that went through the serde and back; None if that is no copy of it."""
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
        if kind is flat_class:
            return copied_flat(value)
        if read:
            if kind is dict and all_immutable(map(type, value.values())):
                return value.copy()
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
    """Return True if objects read as a type cannot change.

    :param read: the type, as msgspec describes it.
    :param within: classes around it: a class inside itself needs no second check.
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


def _flat_copy(read: inspect.Type | None = None) -> FlatCopy | None:
    """Return the flat copy that is enough for objects read as a type; None if there is none.

    :param read: the type, as msgspec describes it; None if msgspec does not read it.
    """
    match read:
        case inspect.ListType() if _never_changes(read.item_type, ()):
            return FlatCopy(list, list.copy)
        case inspect.SetType() if _never_changes(read.item_type, ()):
            return FlatCopy(set, set.copy)
        case inspect.DictType() if _never_changes(read.value_type, ()):
            return FlatCopy(dict, dict.copy)
        case inspect.StructType() if all(_never_changes(field.type, ()) for field in read.fields):
            cls: Any = read.cls  # whose declaration leaves the method out
            return FlatCopy(cls, cls.__copy__)
    return None
