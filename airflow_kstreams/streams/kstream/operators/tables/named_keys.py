"""What is said of a key by which a user's function names an entry of another table, and that is none."""

from __future__ import annotations

from typing import Any

from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.serde.base import Serde


class UnfitNameError(TypeError):
    """A function named an entry by what the other table's key serde does not take."""

    own_words = True  # nothing of them is to be hidden


def unfit_name(call: str, named: Any, serde: Serde, error: Exception) -> Exception:
    """Return what to raise for an error of a key serde.

    :param call: the function's argument in the DSL.
    :param named: what the function gave.
    :param serde: of the other table's keys; errors of the engine's own that it raises stay what they are.

    >>> from airflow_kstreams.streams import serdes
    >>> unfit_name("foreign_key", "UA", serdes.int64(), ValueError())
    UnfitNameError('foreign_key: the function returned str, the keys of the other table are serdes.int64')
    """
    if isinstance(error, KStreamsError):
        return error
    found = type(named).__name__
    return UnfitNameError(f"{call}: the function returned {found}, the keys of the other table are {serde!r}")
