"""Checks the timestamp and the headers that users give a result.

A wrong one would fail in the producer, or stand in the output, where nothing names the node that gave it.
"""

from __future__ import annotations

from typing import Any

from airflow_kstreams.streams.hints.hidden_values import UnfitResultError
from airflow_kstreams.streams.ports import Headers

#: Timestamps are signed 64-bit numbers.
_LATEST_MS = 2**63 - 1


def checked_time(given: Any, said: str) -> int:
    """Return a timestamp that Kafka can hold.

    :param given: the user's timestamp, epoch milliseconds.
    :param said: beginning of the message, with ``{}`` for the found value: ``forward: timestamp_ms is {}``.
    :raises TypeError: it is no whole number.
    :raises ValueError: it is negative, which Kafka takes for no timestamp, or too large.
    """
    if type(given) is not int:
        raise TypeError(f"{said.format(type(given).__name__)}, expected int: epoch milliseconds")
    if not 0 <= given <= _LATEST_MS:
        found = said.format(f"a number {'below 0' if given < 0 else 'beyond 64 bits'}")
        raise UnfitResultError(f"{found}, expected epoch milliseconds from 0 to {_LATEST_MS}")
    return given


def checked_headers(given: Any, said: str) -> Headers:
    """Return headers as a new list.

    :param given: the user's headers.
    :param said: beginning of the message, as for :func:`checked_time`.
    :raises TypeError: they are no pairs of text and bytes or None.
    """
    if not isinstance(given, list | tuple):
        found = said.format(type(given).__name__)
        raise TypeError(f"{found}, expected a list of pairs (name, bytes or None)")
    for header in given:
        fits = isinstance(header, tuple) and len(header) == 2 and isinstance(header[0], str)
        if not fits or not (header[1] is None or isinstance(header[1], bytes)):
            found = said.format("a list that holds something else than pairs (text, bytes or None)")
            raise TypeError(found)
    return [*given]
