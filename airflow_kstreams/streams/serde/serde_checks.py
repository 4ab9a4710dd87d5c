"""Checks of the serdes that users pass: a mistake is refused at the line that makes it, and the
argument is named.

A serde's maker that was not called, or a format's name, would show up in a run only.
"""

from __future__ import annotations

from typing import Any

from airflow_kstreams.streams.call_site import call_site
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.serde.base import Serde


def check_serdes(call: str, **given: Any) -> None:
    """Refuse what is no serde; None is left to the caller.

    :param call: what was called, for the message: ``send_to``.
    :param given: argument -> what the user gave.
    :raises TopologyError: one of them is another object.
    """
    for argument, serde in given.items():
        if serde is None or isinstance(serde, Serde):
            continue
        if callable(serde):
            name = getattr(serde, "__name__", type(serde).__name__)
            found, fix = f"the function {name}", f"call it: serdes.{name}()"
        else:
            found, fix = repr(serde), "pass a serde, e.g. serdes.string()"
        raise TopologyError(
            f"{call} at {call_site()} is given {found} as {argument}, expected a serde", fix=fix
        )
