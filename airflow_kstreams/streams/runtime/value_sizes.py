"""About how much memory an object takes up, for the bound of what waits."""

from __future__ import annotations

import sys
from typing import Any

#: Parts of one object that are looked at; a larger one is taken to be alike throughout.
_MOST_PARTS = 64


def size_of(value: Any, depth: int = 3) -> int:
    """Return about how many bytes an object takes up, what it holds included, some levels deep."""
    kind = type(value)
    if value is None or kind is bool:
        return 0
    size = sys.getsizeof(value)
    if kind in (str, bytes, int, float) or not depth:
        return size
    if isinstance(value, dict):
        return size + _scaled([*value.items()], len(value), depth)
    if isinstance(value, (list, tuple, set, frozenset)):
        return size + _scaled(value, len(value), depth)
    fields = getattr(kind, "__struct_fields__", None) or getattr(kind, "__dataclass_fields__", None)
    if fields:
        return size + sum(size_of(getattr(value, name, None), depth - 1) for name in fields)
    held = getattr(value, "__dict__", None)
    return size if held is None else size + size_of(held, depth - 1)


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
