"""Takes what a user's function gave where a pair of key and value, a number of results or a key is expected.

Tuples are taken by the operators' own lines. What is asked of here is everything else: lists and iterators of
two are pairs, too. A text of two characters is none, though Python would unpack it, and neither is a set or
a dict, whose order means nothing. Of results, too, lists are taken by the operators' own lines; a text is no
list of its characters, and a dict none of its keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from itertools import islice
from typing import Any

from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.serde.base import Serde

_NO_RESULTS = (str, bytes, bytearray, Mapping)
_NO_PAIRS = (*_NO_RESULTS, Set)


def pair_of(call: str, given: Any, *, among: bool = False) -> tuple[Any, Any]:
    """Return what a function gave as key and value.

    :param call: the DSL method, for the message.
    :param among: whether it is one of several results.
    :raises TypeError: it is no pair.

    >>> pair_of("map", ["a", 1])
    ('a', 1)
    >>> pair_of("map", "ab")
    Traceback (most recent call last):
    TypeError: map: the function returned str, expected a pair (key, value)
    """
    found = type(given).__name__
    if isinstance(given, Iterable) and not isinstance(given, _NO_PAIRS):
        pair = tuple(islice(given, 3))
        if len(pair) == 2:
            return pair
        found += f" of {len(pair)}" if len(pair) < 3 else " of more than 2"
    if among:
        raise TypeError(
            f"{call}: the function returned {found} among its results, expected pairs (key, value)"
        )
    raise TypeError(f"{call}: the function returned {found}, expected a pair (key, value)")


def results_of(call: str, given: Any) -> Iterable[Any]:
    """Return what a function gave as any number of results.

    :param call: the DSL method, for the message.
    :raises TypeError: it is no iterable, or one object of several parts.

    >>> results_of("flat_map_values", "an ox")
    Traceback (most recent call last):
    TypeError: flat_map_values: the function returned str, expected a list of results
    """
    if not isinstance(given, _NO_RESULTS):
        with suppress(TypeError):
            results: Iterable[Any] = iter(given)
            return results
    found = type(given).__name__
    raise TypeError(f"{call}: the function returned {found}, expected a list of results")


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
