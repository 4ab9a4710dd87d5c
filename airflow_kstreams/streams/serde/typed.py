"""Makes the serde of a user's class: JSON, checked against the class when it is read and when it is written.

Rule: an object has one form in bytes. Fields are in the order of the class, those of a pydantic model by
name; keys of dicts and items of sets are sorted; there are no spaces. Other producers may write the same
object in another form, so a key that was read is not always written to the same bytes
(``topology/entry_keys.py``).

A type that msgspec does not read is refused where a serde is made: msgspec itself accepts any class, and
fails only when it reads a value of an unknown one.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any, get_args, get_origin

import msgspec

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.hints.function_checks import call_site
from airflow_kstreams.streams.hints.hidden_values import UnfitTypeError, UnfitValueError, without_values
from airflow_kstreams.streams.plan import json_decoder
from airflow_kstreams.streams.serde.base import Serde, Side
from airflow_kstreams.streams.serde.inner_types import has_sets, keep_defaults
from airflow_kstreams.streams.type_variables import T

#: Types of JSON and MessagePack themselves.
_PLAIN = (dict, list, str, int, float, bool, type(None), bytes)


def reading(call: str, annotation: Any, decoder: Callable[[Any], Any]) -> Callable[[bytes], Any]:
    """Return the function that reads a type.

    :param call: the user's call, for messages: ``serdes.json``.
    :param annotation: the type.
    :param decoder: function that makes msgspec's decoder of a type.
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
            fix=f"write serdes.of({name})" if annotation is unknown and is_model(unknown) else other,
        )
    keep_defaults(annotation)
    return decode


def without_sets(serde: Serde[Any], annotation: Any) -> Serde[Any]:
    """Return a serde of a type that does not sort the items of sets, and refuses keys that have some."""
    if not has_sets(annotation):
        return serde
    return dataclasses.replace(serde, for_topic=_no_keys(serde, type_name(annotation)))


def is_model(given: Any) -> bool:
    """Return True if an object is a pydantic model, or an instance of one.

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


_encode = msgspec.json.Encoder(order="deterministic").encode


def of(type: type[T]) -> Serde[T]:  # noqa: A002  (as in json)
    """Return the serde of a class as JSON, e.g. ``Order(customer="ann")`` <-> ``b'{"customer":"ann"}'``.

    Objects are checked against the class both when they are read and when they are written, and the error
    names the field. :func:`json` with a type checks only what is read, and so is faster.

    :param type: a ``msgspec.Struct``, a dataclass, or a pydantic model (version 2) where pydantic is
        installed.
    :raises TopologyError: it is another type, or one of its fields has a type that msgspec does not know.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Order:
    ...     customer: str
    ...     cents: int = 0
    >>> orders = serdes.of(Order)
    >>> orders.serialize(Order("ann", 250)), orders.deserialize(b'{"customer": "bob"}')
    (b'{"customer":"ann","cents":250}', Order(customer='bob', cents=0))
    >>> orders.deserialize(b'{"customer": "bob", "cents": "many"}')
    Traceback (most recent call last):
    msgspec.ValidationError: Expected `int`, got `str` - at `$.cents`
    """
    kind: Any = get_origin(type) or type
    if inspect.isclass(kind) and (issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind)):
        return _of_fields(type, kind)
    if inspect.isclass(kind) and is_model(kind):
        return _of_model(type)
    raise TopologyError(
        f"serdes.of at {call_site()} is given {type!r}, expected a msgspec.Struct, a dataclass or a pydantic "
        "model",
        fix="pass the class itself; for any other type that msgspec knows, serdes.json(type)",
    )


def _of_fields(annotation: Any, kind: Any) -> Serde[Any]:
    """Return the serde of a type that msgspec knows.

    :param kind: the class of its objects, which differs from the annotation of a generic class.
    """
    name = type_name(annotation)
    try:
        decode = json_decoder(annotation).decode
    except (TypeError, NameError) as error:
        raise TopologyError(
            f"serdes.of at {call_site()} is given {name}, and cannot read one from JSON: {error}",
            fix="give each field a type that msgspec knows, defined at the top of its module",
        ) from error
    keep_defaults(annotation)
    return Serde(id=f"of({name})", serialize=_writing(name, kind, _encode, decode), deserialize=decode)


def _of_model(model: Any) -> Serde[Any]:
    """Return the serde of a pydantic model, which checks objects by its own validation."""
    name = type_name(model)

    def encode(value: Any) -> bytes:
        return _encode(value.model_dump(mode="json", by_alias=True, warnings=False))

    # Not "of(": pydantic's validators may change what they read, so entries do not follow their keys.
    write = _writing(name, model, encode, model.model_validate_json)
    serde = Serde[Any](id=f"model({name})", serialize=write, deserialize=_ModelDecoder(model).decode)
    if not any(_holds_set(field.annotation) for field in model.model_fields.values()):
        return serde
    return dataclasses.replace(serde, for_topic=_no_keys(serde, name))


@dataclasses.dataclass(frozen=True, slots=True)
class _ModelDecoder:
    """Reads a pydantic model, as msgspec's decoders read a type."""

    type: Any

    def decode(self, data: bytes) -> Any:
        try:
            return self.type.model_validate_json(data)
        except ValueError as error:
            raise UnfitValueError(f"the bytes hold no {type_name(self.type)}: {_of_error(error)}") from None


def _writing(
    name: str, kind: type, encode: Callable[[Any], bytes], decode: Callable[[bytes], object]
) -> Callable[[Any], bytes]:
    """Return the function that writes objects of a class, and reads its bytes again, so that no record is
    written that another run cannot read.
    """

    def write(value: Any) -> bytes:
        if value.__class__ is not kind:
            raise UnfitTypeError(f"serdes.of({name}) takes {name}, got {value.__class__.__name__}")
        data = encode(value)
        try:
            decode(data)
        except ValueError as error:
            raise UnfitValueError(f"serdes.of({name}) cannot write this {name}: {_of_error(error)}") from None
        return data

    return write


def _no_keys(serde: Serde[Any], name: str) -> Callable[[str, Side], Serde[Any]]:
    """Refuse a type with sets as a key: unless they are sorted, equal ones may be written in different
    orders.
    """

    def for_topic(topic: str, side: Side) -> Serde[Any]:
        if side == "key":
            raise TopologyError(
                f"the keys of {topic!r} are {name}, which has a set: equal ones may differ in their bytes",
                fix="give it a sorted tuple instead, or make it a dataclass and write serdes.of(...)",
            )
        return serde

    return for_topic


def _holds_set(annotation: Any) -> bool:
    kind = get_origin(annotation) or annotation
    return kind in (set, frozenset) or any(map(_holds_set, get_args(annotation)))


def _of_error(error: ValueError) -> str:
    """Return a pydantic error's text on each field, without the values."""
    listed: Callable[..., list[dict[str, Any]]] | None = getattr(error, "errors", None)
    if listed is None:
        return without_values(str(error), own="")
    found = listed(include_input=False, include_url=False, include_context=False)
    text = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'all of it'}: {each['msg']}" for each in found)
    return without_values(text, own="")
