"""The serdes that ship with the engine, one function each; use as ``serdes.string()``.

Formats are Kafka's own where Kafka has one: ``string`` is Java's StringSerializer (UTF-8), ``int64`` is
Java's LongSerializer. The callables are C functions wherever C does the whole job, since each runs once per
record.
"""

from __future__ import annotations

import builtins
import struct
from typing import Any, get_args, get_origin

import msgspec

from airflow_kstreams.streams.serde.base import Serde

__all__ = ["Serde", "bytes", "int64", "json", "string"]

_INT64 = struct.Struct(">q")


def bytes() -> Serde:  # noqa: A001  (users write serdes.bytes())
    """Return the serde that hands bytes through, e.g. ``b"ab"`` <-> ``b"ab"``."""
    return Serde(id="bytes", serialize=_checked_bytes, deserialize=builtins.bytes)


def string() -> Serde:
    """Return the serde of text in UTF-8, e.g. ``"ab"`` <-> ``b"ab"``."""
    return Serde(id="string", serialize=str.encode, deserialize=builtins.bytes.decode)


def int64() -> Serde:
    """Return the serde of whole numbers in 8 bytes, big-endian: ``258`` <-> hex ``00 00 00 00 00 00 01 02``.

    Numbers beyond 64 bits and bytes of another length are errors.
    """
    return Serde(id="int64", serialize=_INT64.pack, deserialize=_unpack_int64)


def json(type: Any = None) -> Serde:  # noqa: A002  (as in msgspec)
    """Return the serde of JSON, e.g. ``{"a": 1}`` <-> ``b'{"a":1}'``.

    JSON has neither NaN nor infinity: both are written as ``null``.

    :param type: what to decode into and check against: a ``msgspec.Struct``, a dataclass, a ``TypedDict``, or
        any type msgspec knows; None gives plain dicts, lists, strings and numbers.
    """
    encode = msgspec.json.Encoder().encode
    if type is None:
        return Serde(id="json", serialize=encode, deserialize=msgspec.json.Decoder().decode)
    return Serde(
        id=f"json({_type_name(type)})", serialize=encode, deserialize=msgspec.json.Decoder(type).decode
    )


def _checked_bytes(value: Any) -> builtins.bytes:
    # bytes(value) would turn the number 5 into five zero bytes.
    if not isinstance(value, builtins.bytes):
        raise TypeError(f"serdes.bytes() takes bytes, got {value.__class__.__name__}")
    return value


def _unpack_int64(data: builtins.bytes) -> int:
    number: int
    (number,) = _INT64.unpack(data)
    return number


def _type_name(annotation: Any) -> str:
    """Name a type without its module: an application file is ``__main__`` in one process and not in
    another.
    """
    origin = get_origin(annotation)
    if origin is not None:
        arguments = ",".join(_type_name(argument) for argument in get_args(annotation))
        return f"{_type_name(origin)}[{arguments}]"
    if isinstance(annotation, (str, int)):
        return repr(annotation)
    return str(getattr(annotation, "__qualname__", annotation))
