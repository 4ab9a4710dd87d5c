"""Refuses types that msgspec does not read where a serde is made, and names types in ids of serdes.

msgspec itself accepts any class as a type, and fails only when it reads a value of an unknown one.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any, get_args, get_origin

import msgspec

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.hints.call_site import call_site

#: Types of JSON and MessagePack themselves.
_PLAIN = (dict, list, str, int, float, bool, type(None), bytes)


def reading(call: str, annotation: Any, decoder: Callable[[Any], Any]) -> Callable[[bytes], Any]:
    """Return the function that reads a type.

    :param call: for messages: ``serdes.json``.
    :param decoder: makes msgspec's decoder of a type.
    :raises TopologyError: msgspec does not read the type.
    """
    if _is_instance(annotation):
        name = type(annotation).__name__
        raise TopologyError(
            f"{call} at {call_site()} is given an instance of {name}, expected a type",
            fix=f"pass the class: {call}({name})",
        )
    shown = type_name(annotation) if inspect.isclass(annotation) else repr(annotation)
    try:
        decode: Callable[[bytes], Any] = decoder(annotation).decode
    except (TypeError, NameError) as error:
        raise TopologyError(
            f"{call} at {call_site()} is given {shown}, and cannot read one: {error}",
            fix="pass a type that msgspec knows, defined at the top of its module",
        ) from error
    unknown = _unknown(annotation)
    if unknown is not None:
        name = unknown.__name__
        other = f"make {name} a msgspec.Struct or a dataclass, or leave the type out and read dicts"
        raise TopologyError(
            f"{call} at {call_site()} is given {shown}, and msgspec reads no {name}",
            fix=f"write serdes.of({name})" if is_model(unknown) else other,
        )
    return decode


def is_model(given: Any) -> bool:
    """Say whether an object is a pydantic model, or an instance of one.

    It compares names, not classes, because pydantic may not be installed.
    """
    return callable(getattr(given, "model_validate_json", None))


def _is_instance(given: Any) -> bool:
    fields = isinstance(given, msgspec.Struct) or dataclasses.is_dataclass(given) or is_model(given)
    return fields and not inspect.isclass(given)


def _unknown(annotation: Any) -> type | None:
    """Return the first class of an annotation that msgspec does not know, and so cannot read."""
    if get_origin(annotation) is not None:
        return next(filter(None, map(_unknown, get_args(annotation))), None)
    if not inspect.isclass(annotation):
        return None
    if not isinstance(msgspec.inspect.type_info(annotation), msgspec.inspect.CustomType):
        return None
    with suppress(TypeError):  # a protocol that isinstance cannot check
        if any(issubclass(plain, annotation) or issubclass(annotation, plain) for plain in _PLAIN):
            return None  # msgspec reads such values, or at least writes them
    return annotation


def type_name(annotation: Any) -> str:
    """Return a type's name without its module: an application file is ``__main__`` in one process only."""
    origin = get_origin(annotation)
    if origin is not None:
        arguments = ",".join(type_name(argument) for argument in get_args(annotation))
        return f"{type_name(origin)}[{arguments}]"
    if isinstance(annotation, (str, int)):
        return repr(annotation)
    return str(getattr(annotation, "__qualname__", annotation))
