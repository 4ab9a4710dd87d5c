"""Makes the serdes that ship with the engine, one function each, e.g. ``serdes.string()``.

Formats are Kafka's own where Kafka has one: ``string`` is Java's StringSerializer (UTF-8), ``int32`` its
IntegerSerializer, ``int64`` its LongSerializer, ``double`` its DoubleSerializer. The callables are C
functions wherever C does the whole job, since each runs once per record.
"""

from __future__ import annotations

import builtins
import struct
from typing import TYPE_CHECKING, Any, Literal, overload

import msgspec

from airflow_kstreams.streams.plan import json_decoder, msgpack_decoder
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.typed import of, reading, type_name, without_sets
from airflow_kstreams.streams.serde.windowed import session_windowed, time_windowed
from airflow_kstreams.streams.type_variables import T

__all__ = [
    "Serde",
    "bytes",
    "double",
    "int32",
    "int64",
    "json",
    "msgpack",
    "of",
    "session_windowed",
    "string",
    "time_windowed",
]

_OWN = "a Serde(id=..., serialize=..., deserialize=...) of your own"
_WHOLE = "serdes.int64(), or serdes.int32()"
_TEXT_OF_UUID = "serdes.string(), with str(value) and uuid.UUID(text): Java's UUIDs are written as text"
_NONE = "serdes.bytes(): None is written as no bytes by every serde"
_LIST = f"serdes.json(list[int]), or {_OWN} for the bytes of Java's lists"
_FLOAT = f"serdes.double(), or {_OWN} for Java's 4 bytes"
_SHORT = f"serdes.int32(), or {_OWN} for Java's 2 bytes"
_BOOLEAN = f"serdes.json(bool), or {_OWN} for Java's 1 byte"

#: Methods of Java's ``Serdes``, and what one may guess, that have another name here.
_JAVAS = {
    "String": "serdes.string()",
    "str": "serdes.string()",
    "text": "serdes.string()",
    "Integer": "serdes.int32()",
    "Long": "serdes.int64()",
    "long": "serdes.int64()",
    "int": _WHOLE,
    "integer": _WHOLE,
    "Double": "serdes.double()",
    "float64": "serdes.double()",
    "Float": _FLOAT,
    "float": _FLOAT,
    "float32": _FLOAT,
    "Short": _SHORT,
    "short": _SHORT,
    "int16": _SHORT,
    "Boolean": _BOOLEAN,
    "boolean": _BOOLEAN,
    "bool": _BOOLEAN,
    "UUID": _TEXT_OF_UUID,
    "uuid": _TEXT_OF_UUID,
    "Void": _NONE,
    "void": _NONE,
    "ListSerde": _LIST,
    "list": _LIST,
    "ByteArray": "serdes.bytes()",
    "Bytes": "serdes.bytes()",
    "ByteBuffer": "serdes.bytes()",
    "bytearray": "serdes.bytes()",
    "serdeFrom": _OWN,
}

if not TYPE_CHECKING:  # hidden from type checkers, which otherwise accept any name

    def __getattr__(name: str) -> Any:
        """Refuse a name, with the serde to use if it is one of Java's ``Serdes``.

        :raises AttributeError: always.
        """
        ours = _JAVAS.get(name)
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(f"{message}: write {ours}" if ours else message, name=name)


_DOUBLE = struct.Struct(">d")
#: The one NaN that Java's DoubleSerializer writes, whatever sign and payload the number has.
_JAVA_NAN = builtins.bytes.fromhex("7ff8000000000000")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


def bytes() -> Serde[builtins.bytes]:  # noqa: A001  (users write serdes.bytes())
    """Return the serde that hands bytes through, e.g. ``b"ab"`` <-> ``b"ab"``.

    >>> serdes.bytes().serialize(b"ab")
    b'ab'
    """
    return Serde(id="bytes", serialize=_checked_bytes, deserialize=builtins.bytes)


def string() -> Serde[str]:
    """Return the serde of text in UTF-8, e.g. ``"ab"`` <-> ``b"ab"``.

    >>> serdes.string().serialize("ab"), serdes.string().deserialize(b"ab")
    (b'ab', 'ab')
    """
    return Serde(id="string", serialize=str.encode, deserialize=builtins.bytes.decode)


def int32() -> Serde[int]:
    """Return the serde of whole numbers in 4 bytes, big-endian: ``258`` <-> hex ``00 00 01 02``.

    Numbers beyond 32 bits and bytes of another length are errors.

    >>> serdes.int32().serialize(258).hex(" ")
    '00 00 01 02'
    """
    return Serde(id="int32", serialize=_INT32.pack, deserialize=_unpack_int32)


def int64() -> Serde[int]:
    """Return the serde of whole numbers in 8 bytes, big-endian: ``258`` <-> hex ``00 00 00 00 00 00 01 02``.

    Numbers beyond 64 bits and bytes of another length are errors.

    >>> serdes.int64().serialize(258).hex(" ")
    '00 00 00 00 00 00 01 02'
    >>> serdes.int64().deserialize(serdes.int64().serialize(-1))
    -1
    """
    return Serde(id="int64", serialize=_INT64.pack, deserialize=_unpack_int64)


def double() -> Serde[float]:
    """Return the serde of floating-point numbers in 8 bytes (IEEE 754), big-endian: ``1.5`` <-> hex
    ``3f f8 00 00 00 00 00 00``.

    Every NaN is written as Java's. A whole number is written as the nearest double and read back as a float;
    one too large for a double and bytes of another length are errors.

    >>> serdes.double().serialize(1.5).hex(" ")
    '3f f8 00 00 00 00 00 00'
    """
    return Serde(id="double", serialize=_pack_double, deserialize=_unpack_double)


@overload
def json(type: None = None) -> Serde[Any]: ...
@overload
def json(type: type[T]) -> Serde[T]: ...
@overload
def json(type: Any) -> Serde[Any]: ...
def json(type: Any = None) -> Serde[Any]:  # noqa: A002  (as in msgspec)
    """Return the serde of JSON, e.g. ``{"a": 1}`` <-> ``b'{"a":1}'``.

    JSON has neither NaN nor infinity: both are written as ``null``. Items of a set are written in any order,
    so a type that has sets is refused for keys; :func:`of` sorts them.

    :param type: the type to decode into and check against: a ``msgspec.Struct``, a dataclass, a
        ``TypedDict``, or any type msgspec knows; None gives plain dicts, lists, strings and numbers. A
        pydantic model is read by :func:`of`.
    :raises TopologyError: msgspec does not know the type.

    >>> import msgspec
    >>> class Order(msgspec.Struct):
    ...     customer: str
    ...     cents: int = 0
    >>> serdes.json().deserialize(b'{"customer": "ann"}')
    {'customer': 'ann'}
    >>> serdes.json(Order).deserialize(b'{"customer": "ann"}')
    Order(customer='ann', cents=0)
    >>> serdes.json(Order).serialize(Order("bob", 250))
    b'{"customer":"bob","cents":250}'
    """
    encode = msgspec.json.Encoder().encode
    if type is None:
        return Serde(id="json", serialize=encode, deserialize=json_decoder(Any).decode)
    read = reading("serdes.json", type, json_decoder)
    return without_sets(Serde(id=f"json({type_name(type)})", serialize=encode, deserialize=read), type)


@overload
def msgpack(type: None = None) -> Serde[Any]: ...
@overload
def msgpack(type: type[T]) -> Serde[T]: ...
@overload
def msgpack(type: Any) -> Serde[Any]: ...
def msgpack(type: Any = None) -> Serde[Any]:  # noqa: A002  (as in msgspec)
    """Return the serde of MessagePack, e.g. ``{"a": 1}`` <-> hex ``81 a1 61 01``.

    A type that has sets is refused for keys, as by :func:`json`.

    :param type: the type to decode into and check against, as in :func:`json`.
    :raises TopologyError: msgspec does not know the type.

    >>> serdes.msgpack().serialize({"a": 1}).hex(" ")
    '81 a1 61 01'
    """
    encode = msgspec.msgpack.Encoder().encode
    if type is None:
        return Serde(id="msgpack", serialize=encode, deserialize=msgpack_decoder(Any).decode)
    read = reading("serdes.msgpack", type, msgpack_decoder)
    return without_sets(Serde(id=f"msgpack({type_name(type)})", serialize=encode, deserialize=read), type)


def _checked_bytes(value: Any) -> builtins.bytes:
    # bytes(value) would turn the number 5 into five zero bytes.
    if not isinstance(value, builtins.bytes):
        raise TypeError(f"serdes.bytes() takes bytes, got {value.__class__.__name__}")
    return value


def _pack_double(number: float) -> builtins.bytes:
    return _DOUBLE.pack(number) if number == number else _JAVA_NAN


def _unpack_double(data: builtins.bytes) -> float:
    number: float
    (number,) = _DOUBLE.unpack(data)
    return number


def _unpack_int32(data: builtins.bytes) -> int:
    number: int
    (number,) = _INT32.unpack(data)
    return number


def _unpack_int64(data: builtins.bytes) -> int:
    number: int
    (number,) = _INT64.unpack(data)
    return number


#: (serialize, deserialize): every object is immutable and has one form in bytes, so that the former gives
#: back exactly what the latter read.
_GIVE_BACK: tuple[tuple[Any, Any], ...] = (
    (_checked_bytes, builtins.bytes),
    (str.encode, builtins.bytes.decode),
    (_INT32.pack, _unpack_int32),
    (_INT64.pack, _unpack_int64),
)


def gives_back(read: Serde, written: Serde) -> bool:
    """Return True if one serde is known to write exactly the bytes that another one has read.

    It is known for the functions above only. A serde that combines one of them with a function of the user's
    is not among them, whatever its id.
    """
    return any(
        serialize == written.serialize and deserialize == read.deserialize
        for serialize, deserialize in _GIVE_BACK
    )


def takes_bytes(serde: Serde) -> bool:
    """Return True if a serde is known to write bytes as they are, and to refuse everything else."""
    return serde.serialize is _checked_bytes


def plain_form(serde: Serde) -> Literal["bytes", "text"] | None:
    """Return the form of a serde's objects if it is known to hand bytes through, or to read them as UTF-8;
    None of any other.
    """
    if gives_back(serde, bytes()):
        return "bytes"
    return "text" if gives_back(serde, string()) else None
