"""Checks the serdes that users pass: the error names the user's line and the argument.

A format's name, or a serde function that was not called, would otherwise fail only in a run.
"""

from __future__ import annotations

from typing import Any

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.hints.function_checks import call_site
from airflow_kstreams.streams.serde.base import Serde

_ROOM = __name__.rpartition(".")[0]
#: Calls of the functions of ``serdes``.
_CALLED = {
    **{name: f"{name}()" for name in ("bytes", "double", "int32", "int64", "json", "msgpack", "string")},
    "of": "of(Order)",
    "session_windowed": "session_windowed(serdes.string())",
    "time_windowed": "time_windowed(serdes.string(), 60_000)",
}
#: The serde to use in place of a type.
_OF_TYPES: dict[type, str] = {
    bytes: "serdes.bytes()",
    dict: "serdes.json()",
    float: "serdes.double()",
    int: "serdes.int64()",
    list: "serdes.json()",
    str: "serdes.string()",
}


def check_serdes(call: str, **given: Any) -> None:
    """Refuse objects that are no serde; the caller handles None.

    :param call: the user's call, for the message: ``send_to``.
    :param given: argument -> the user's object.
    :raises TopologyError: one of them is no serde.
    """
    for argument, serde in given.items():
        if serde is None or isinstance(serde, Serde):
            continue
        found, fix = _found(serde)
        raise TopologyError(
            f"{call} at {call_site()} is given {found} as {argument}, expected a serde", fix=fix
        )


def _found(given: Any) -> tuple[str, str]:
    """Return the description of an object that is no serde, and its remedy."""
    name = getattr(given, "__name__", type(given).__name__)
    if isinstance(given, type):
        called = f"{name}(...)" if issubclass(given, Serde) else _OF_TYPES.get(given, f"serdes.of({name})")
        return f"the class {name}", f"pass {called}"
    if not callable(given):
        return repr(given), "pass a serde, e.g. serdes.string()"
    known = (getattr(given, "__module__", "") or "").startswith(_ROOM)
    called = f"call it: serdes.{_CALLED[name]}" if known and name in _CALLED else ""
    return f"the function {name}", called or "pass what it returns, if that is one"
