"""Decoders of msgspec, made by one thread at a time: every decoder of ours is made here.

msgspec finds out how a type is read when the type is first decoded, and keeps with the type what it has found
before that is whole, so that types may refer to themselves. Another thread that decodes the type meanwhile
takes what is not whole: the process dies of a segmentation fault (msgspec 0.22; seen in a driver two of whose
jobs ended at the same moment). A decoder that is made already is safe in any number of threads.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")

#: Making a decoder may run annotations, which may make decoders.
_lock = threading.RLock()


@overload
def json_decoder(kind: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]: ...
def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return a decoder of JSON.

    :param kind: what it returns: any type that msgspec knows.
    :raises TypeError: msgspec does not know it.
    """
    with _lock:
        return msgspec.json.Decoder(kind)


@overload
def msgpack_decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]: ...
@overload
def msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]: ...
def msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """Return a decoder of MessagePack.

    :param kind: what it returns: any type that msgspec knows.
    :raises TypeError: msgspec does not know it.
    """
    with _lock:
        return msgspec.msgpack.Decoder(kind)


@overload
def decode_json(data: bytes | str, kind: type[T]) -> T: ...
@overload
def decode_json(data: bytes | str, kind: Any = Any) -> Any: ...
def decode_json(data: bytes | str, kind: Any = Any) -> Any:
    """Decode JSON.

    :param kind: what to return, of a type that lives as long as the process.
    :raises msgspec.MsgspecError: it is none, or not of that kind.
    """
    return _json_decoder_of(kind).decode(data)


@overload
def convert(data: object, kind: type[T], *, strict: bool = True) -> T: ...
@overload
def convert(data: object, kind: Any, *, strict: bool = True) -> Any: ...
def convert(data: object, kind: Any, *, strict: bool = True) -> Any:
    """Turn plain lists, dicts, texts and numbers into a type.

    :param kind: what to return, of a type that lives as long as the process.
    :param strict: whether a text is no number.
    :raises msgspec.ValidationError: it is not of that kind.
    """
    _json_decoder_of(kind)
    return msgspec.convert(data, kind, strict=strict)


@cache
def _json_decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    return json_decoder(kind)
