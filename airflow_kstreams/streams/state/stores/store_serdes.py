"""Turns the keys and values of a store into bytes and back: applies the serdes of its spec, explains their
errors, and checks that values come back as they were written.

A stored entry is one object of bytes: the timestamp in epoch milliseconds, 8 bytes big endian, and the value
in the store's serde. Python's collector never visits it; it would scan millions of tuples again and again.

Rule: a store keeps objects while a task lives, and a later task restores them from bytes. A value that its
serde does not give back unchanged would therefore give other results in the next run, without an error. So
each value is read back before its commit, unless its serde is known to give back all of its type.

Types count, at every depth. ``{1: "a"}`` that comes back as ``{"1": "a"}``, a tuple that comes back as a
list, ``True`` as 1 and -0.0 as 0.0 are not the same; NaN is the same as NaN. An int that comes back as an
equal float is the same: only a serde that was declared to hold floats does that. A wrong refusal would stop
an application that is right. So where Python's ``==`` cannot decide (an object without ``__eq__``, an array),
a value is the same if its type is the same and it is written to the same bytes again.

Speed: every value that a store logs is checked, so usual ones are decided in C. Of some types a serde is
known to give every object back (:func:`kept_types`). Plain containers, and structs of plain fields, are
compared by their bytes of ``marshal``, which differ for all types, and which it makes of no subclass. Only if
these differ is each part compared.

A serde that writes a value as None deletes the value's entry, as in Kafka Streams. A store must be without it
at once, not from the next restore on, so every put asks the serde (:func:`deletes_of`): a serde of a user's
own, for those of this package write every value as bytes.
"""

from __future__ import annotations

import dataclasses
import functools
import marshal
import math
import struct
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol

import msgspec

from airflow_kstreams.streams.errors import KStreamsError, StateStoreError, StoreSerdeError
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.hints.hidden_values import shown_text
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.streams.serde.base import Serde

log = package_log(__name__)
_TIMESTAMP = struct.Struct(">q")
#: Returns the first bytes of a stored form: those of the timestamp.
timestamp_bytes = _TIMESTAMP.pack
#: Offset of the value.
VALUE_OFFSET = _TIMESTAMP.size
#: The last of marshal's formats whose bytes do not depend on the identity of an object's parts.
WITHOUT_REFERENCES = 2
_CONTAINERS = (dict, list, tuple, set, frozenset)
_PACKAGE = __name__.partition(".")[0]
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


def timestamp_of(stored: bytes) -> int:
    """Return the timestamp of a stored form.

    >>> timestamp_of(timestamp_bytes(-1) + b"value")
    -1
    """
    timestamp_ms: int = _TIMESTAMP.unpack_from(stored)[0]
    return timestamp_ms


class UnfitKeyError(ValueError):
    """A key that the key serde of a store does not take, or stored bytes that it does not read.

    Unlike a value, which is written later, it belongs to the record being processed: the processing handler
    decides about that, and its error names the record, too.
    """

    own_words = True  # their texts hold no values to hide


def key_serializer(spec: StoreSpec) -> Callable[[Any], bytes]:
    """Return the serializer of a store's keys; it raises UnfitKeyError for others."""
    serialize = spec.key_serde.serialize

    def serialize_key(key: Any) -> bytes:
        try:
            return serialize(key)
        except KStreamsError:
            raise
        except Exception as error:
            raise UnfitKeyError(
                f"store {spec.name!r}: a key of type {_type_name(key)} does not fit its key serde "
                f"{spec.key_serde!r}: {_text_of(error, key)}"
            ) from error

    return serialize_key


def key_deserializer(spec: StoreSpec) -> Callable[[bytes], Any]:
    """Return the deserializer of a store's keys; it raises UnfitKeyError for others."""
    deserialize = spec.key_serde.deserialize

    def deserialize_key(data: bytes) -> Any:
        try:
            return deserialize(data)
        except KStreamsError:
            raise
        except Exception as error:
            raise UnfitKeyError(
                f"store {spec.name!r}: a stored key of {len(data)} B is not of its key serde "
                f"{spec.key_serde!r}: {_text_of(error)}"
            ) from error

    return deserialize_key


class KeyedStore(Protocol):
    """A store that is read by key.

    :ivar serialize_key: the function of :func:`key_serializer`.
    """

    name: str
    serialize_key: Callable[[Any], bytes]


def key_bytes_of(store: KeyedStore, key: Any) -> bytes:
    """Serialize a key that a user gave.

    :raises StateStoreError: the key is None.
    :raises UnfitKeyError: the store's key serde does not take it.
    """
    if key is None:
        raise StateStoreError(
            f"store {store.name!r} was asked for the key None",
            fix="check for null keys before using the store",
        )
    return store.serialize_key(key)


class StoredValues:
    """Serializes and deserializes the values of one store of a task.

    An error of the engine that a serde raises, such as an unreachable registry, is passed on unchanged.

    :param spec: name and serdes.
    :param joins: whether it is a join's, which has the serdes of its streams.
    :param put: returns the user's object of a stored value, for messages.
    :ivar kept: types of values that need not be read back.
    """

    __slots__ = ("_joins", "_put", "_spec", "kept")

    def __init__(
        self, spec: StoreSpec, *, joins: bool = False, put: Callable[[Any], Any] | None = None
    ) -> None:
        self._spec = spec
        self._put = put
        self._joins = joins
        self.kept = kept_types(spec.value_serde)

    def serialize(self, key: bytes, value: Any) -> bytes:
        """Return a value as bytes.

        :param key: serialized key; for the log at DEBUG.
        :raises StoreSerdeError: the serde does not take the value or does not give it back.
        """
        try:
            data = self._spec.value_serde.serialize(value)
        except KStreamsError:
            raise
        except Exception as error:
            raise self.error(key, "a value that does not fit", error, value) from error
        if type(value) not in self.kept:
            self.check(key, value, data)
        return data

    def deserialize(self, key: bytes, data: bytes) -> Any:
        """Return a value that was stored.

        :param key: serialized key; for the log at DEBUG.
        :raises StoreSerdeError: the bytes are not of the serde's format.
        """
        try:
            return self._spec.value_serde.deserialize(data)
        except KStreamsError:
            raise
        except Exception as error:
            raise self.error(key, "a changelog record that is not", error) from error

    def check(self, key: bytes, value: Any, data: bytes) -> None:
        """Read back a value.

        :param key: serialized key; for the log at DEBUG.
        :param data: the serde's bytes.
        :raises StoreSerdeError: the value that is read back differs.
        """
        try:
            same = survives(value, data, self._spec.value_serde)
        except KStreamsError:
            raise
        except Exception as error:
            raise self.error(key, "a value that cannot be read back by", error, value) from error
        if same:
            return
        if self._put is not None:
            value = self._put(value)
        fitting = serde_for(value)
        serde = f"such as {fitting!r}" if fitting is not None else "such as a Serde of your own"
        raise StoreSerdeError(
            f"{self._place(key)}: found a value of type {_type_name(value)} that {self._spec.value_serde!r} "
            "does not give back as it was: a later run would restore another value",
            fix=f"put what its serde gives back; or give the store a serde that keeps the types inside the "
            f"value, {serde}, and if it has state already, another name, under which it begins empty once "
            "that is given up, as begin says",
        )

    def error(self, key: bytes, what: str, error: Exception, value: Any = None) -> StoreSerdeError:
        """Return the error of a value that the serde does not take.

        :param key: serialized key.
        :param what: the finding, up to the name of the serde: ``a value that does not fit``.
        :param error: the serde's error.
        :param value: the value if there is one; only its type is shown.
        """
        if self._put is not None and value is not None:
            value = self._put(value)
        kind = "" if value is None else f" (type {_type_name(value)})"
        given = "join the serdes of its streams" if self._joins else "store the serde of its objects"
        return StoreSerdeError(
            f"{self._place(key)}: found {what} {self._spec.value_serde!r}{kind}: {_text_of(error, value)}",
            fix=f"give the {given}; if it has state of another format, that format's, or another name, under "
            "which it begins empty once that is given up, as begin says",
        )

    def _place(self, key: bytes) -> str:
        """Return the store and the key's size; only the log at DEBUG shows the key."""
        log.debug("store %r: at the key %r", self._spec.name, key)
        return f"store {self._spec.name!r}, at a key of {len(key)} B"


def _text_of(error: Exception, given: Any = None) -> str:
    """Return the text of a serde's error, without parts of a record.

    :param given: the serde's argument, if that is an object.
    """
    return f"{type(error).__name__}: {shown_text(error, str(error), own=_type_name(given))}"


def _type_name(value: Any) -> str:
    return type(value).__qualname__


def survives(value: Any, data: bytes, serde: Serde) -> bool:
    """Return True if a serde gives a value back unchanged.

    :param value: the value that was written.
    :param data: the serde's bytes.
    :raises Exception: any error of the serde that reads its own bytes.
    """
    return is_same(value, serde.deserialize(data), lambda read: serde.serialize(read) == data)


def is_same(value: Any, read: Any, same_bytes: Callable[[Any], bool]) -> bool:
    """Return True if two objects are the same, types included.

    :param value: the object that was written.
    :param read: the object that was read back.
    :param same_bytes: function that returns True if an object is written to the bytes of ``value``.
    """
    return _looks_same(value, read) or _same(value, read, lambda: same_bytes(read))


def _looks_same(one: Any, other: Any) -> bool:
    """Return True if two objects are plain and equal, types included; False if that is not known."""
    kind: Any = type(one)
    if kind is not type(other):
        return False
    try:
        if kind not in _CONTAINERS:
            names = _fields(kind)  # type: ignore[arg-type]  # mypy takes a type for unhashable
            if names is None:
                return False
            one, other = ([getattr(each, name) for name in names] for each in (one, other))
        return marshal.dumps(one, WITHOUT_REFERENCES) == marshal.dumps(other, WITHOUT_REFERENCES)
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


def deletes_of(serde: Serde) -> Callable[[Any], bool] | None:
    """Return a function that says of a value whether its entry is to be deleted: it is None, or a store's
    serde writes it as None. None for a serde that writes every value as bytes.

    An error of the serde says nothing here: the commit, which asks again, raises it with the reason.
    """
    serialize: Callable[[Any], Any] = serde.serialize
    module = getattr(serialize, "__module__", None) or ""
    if module.partition(".")[0] == _PACKAGE or kept_types(serde):
        return None
    if isinstance(getattr(serialize, "__self__", None), (msgspec.json.Encoder, msgspec.msgpack.Encoder)):
        return None

    def deletes(value: Any) -> bool:
        try:
            return value is None or serialize(value) is None
        except Exception:
            return False

    return deletes


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
    kind: Any = type(one)
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
    fields = _fields(kind)  # type: ignore[arg-type]  # mypy takes a type for unhashable
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
    """Return the fields by which objects of a dataclass or struct are equal; None for another class, or one
    with its own ``__eq__``.
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
