"""Looks at the types within a type that msgspec reads, and makes it write the defaults of dataclasses that it
has read.

msgspec (0.22) gives an object that it reads no attribute for a default that the class itself has, and writes
the attributes of an object only. So a key that leaves a default out would be written without it, and an equal
one that the user made with it: in other bytes, which lie in another partition.

Rule: reading such an attribute of an object sets it. msgspec asks for the attribute of each default before it
sets those that are missing, and so an object has them all when it has been read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, get_origin

import msgspec
from msgspec import inspect


def keep_defaults(annotation: Any) -> None:
    """Let msgspec write the defaults of all dataclasses in a type whose decoder it has made."""
    for info in _types_in(inspect.type_info(annotation)):
        if isinstance(info, inspect.DataclassType):
            _keep_defaults_of(get_origin(info.cls) or info.cls)


def _keep_defaults_of(kind: type) -> None:
    """:param kind: a dataclass, or a class of attrs, which keeps no defaults itself."""
    owners = kind.__mro__
    if not dataclasses.is_dataclass(kind):
        return
    given = {field.name: field.default for field in dataclasses.fields(kind)}
    for owner in owners:
        for name in given.keys() & owner.__dict__.keys():
            if owner.__dict__[name] is given[name]:
                setattr(owner, name, _Default(name, given[name]))


class _Default:
    """A default of a dataclass, in place of the attribute of the class that gave it.

    An object's own attribute goes first, as it does before a plain attribute of the class.
    """

    def __init__(self, name: str, value: object) -> None:
        self._name = name
        self._value = value

    def __get__(self, owner: Any, kind: type) -> object:
        if owner is not None:
            owner.__dict__[self._name] = self._value
        return self._value


def has_sets(annotation: Any) -> bool:
    """Return True if there is a set in a type whose decoder msgspec has made."""
    sets = inspect.SetType | inspect.FrozenSetType
    return any(isinstance(each, sets) for each in _types_in(inspect.type_info(annotation)))


def _types_in(info: inspect.Type) -> Iterator[inspect.Type]:
    """Yield a type and those within it, each once."""
    seen: dict[int, msgspec.Struct] = {}
    left: list[msgspec.Struct] = [info]
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen[id(each)] = each
        if isinstance(each, inspect.Type):
            yield each
        for name in each.__struct_fields__:
            part = getattr(each, name)
            parts = part if isinstance(part, tuple) else (part,)
            left += [one for one in parts if isinstance(one, inspect.Type | inspect.Field)]
