"""Estimates the memory that an object takes up, for the bound of waiting records.

Rule: no code of the object's own runs: its parts are read past its methods. An object whose parts cannot be
read so counts as one small object, and never as an error, which would not happen at the user's line.
"""

from __future__ import annotations

from typing import Any

#: Most parts of one object that are measured; the rest of a larger one counts as parts of the same mean size.
_MOST_PARTS = 64
_FLAT = frozenset((str, bytes, int, float))
#: (container, function that gives its parts, past the methods of a user's class).
_PARTS: tuple[tuple[Any, Any], ...] = (
    (dict, dict.items),
    (list, list.__iter__),
    (tuple, tuple.__iter__),
    (set, set.__iter__),
    (frozenset, frozenset.__iter__),
)
#: Flag of types that were made by a class statement.
_HEAP_TYPE = 1 << 9
#: Size that counts for an object that cannot be measured.
_UNKNOWN_BYTES = 64


def size_of(value: Any, depth: int = 3) -> int:
    """Return an estimate of the bytes that an object takes up, with its parts, ``depth`` levels deep."""
    kind = type(value)
    if kind in _FLAT:
        return value.__sizeof__()  # type: ignore[no-any-return]
    if value is None or kind is bool:
        return 0
    if kind is dict and depth and len(value) <= _MOST_PARTS:  # most values, measured here for speed
        size: int = value.__sizeof__()
        for name, part in value.items():
            size += name.__sizeof__() if type(name) is str else size_of(name, depth - 1)
            size += part.__sizeof__() if type(part) in _FLAT else size_of(part, depth - 1)
        return size
    try:
        return _size(value, kind, depth)
    except Exception:  # a base of the user's in C, a field that is computed
        return _UNKNOWN_BYTES


def _size(value: Any, kind: type, depth: int) -> int:
    size = _own(value)
    if not depth:
        return size
    for base, parts in _PARTS:
        if issubclass(kind, base):
            return size + _scaled(parts(value), base.__len__(value), depth)
    fields = getattr(kind, "__struct_fields__", None) or getattr(kind, "__dataclass_fields__", None)
    if fields:
        return size + sum(size_of(object.__getattribute__(value, name), depth - 1) for name in fields)
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return size
    return size + size_of(held, depth - 1)


def _own(value: Any) -> int:
    """Return the size of an object itself, by ``__sizeof__`` of its type's first base in C."""
    for base in type(value).__mro__:
        if base.__flags__ & _HEAP_TYPE == 0:
            sized: Any = base.__sizeof__
            size: int = sized(value)
            return size
    return _UNKNOWN_BYTES


def _scaled(parts: Any, count: int, depth: int) -> int:
    size = 0
    for looked, part in enumerate(parts):
        if looked == _MOST_PARTS:
            return size * count // looked
        if type(part) is tuple and len(part) == 2:
            size += size_of(part[0], depth - 1) + size_of(part[1], depth - 1)
        else:
            size += size_of(part, depth - 1)
    return size
