"""How a type is named in a serde's id, which is part of the topology hash."""

from __future__ import annotations

from typing import Any, get_args, get_origin


def type_name(annotation: Any) -> str:
    """Name a type without its module: an application file is ``__main__`` in one process and not in
    another.
    """
    origin = get_origin(annotation)
    if origin is not None:
        arguments = ",".join(type_name(argument) for argument in get_args(annotation))
        return f"{type_name(origin)}[{arguments}]"
    if isinstance(annotation, (str, int)):
        return repr(annotation)
    return str(getattr(annotation, "__qualname__", annotation))
