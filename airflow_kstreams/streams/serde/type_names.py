"""Names a type in a serde's id, which is part of the topology hash."""

from __future__ import annotations

from typing import Any, get_args, get_origin


def type_name(annotation: Any) -> str:
    """Return a type's name without its module: an application file is ``__main__`` in one process only."""
    origin = get_origin(annotation)
    if origin is not None:
        arguments = ",".join(type_name(argument) for argument in get_args(annotation))
        return f"{type_name(origin)}[{arguments}]"
    if isinstance(annotation, (str, int)):
        return repr(annotation)
    return str(getattr(annotation, "__qualname__", annotation))
