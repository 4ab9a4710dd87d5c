"""Reads what others may have written in the place of the engine's own records: JSON, numbers and texts of
values, headers and offset metadata.

The broker lets a program write to a topic, and not only what fits it. Rule: a value that the engine reads
back goes through one of these functions, and each failure becomes one error, :class:`UnreadableError`, which
the caller turns into an error that names the place. The failures of JSON are many: no JSON, another shape,
text that is no UTF-8, lists in lists without an end, a name twice in an object, an integer of more than 64
bits, a float without a finite value.

Bounds: a number that a caller counts up to has a bound in its type (``PartitionCount`` and the others of
:mod:`airflow_kstreams.streams.plan`), so that a record of a few bytes costs no more than its own size.

Cost: a record that the engine wrote encodes to the very bytes that it was read from. So what msgspec does not
refuse by itself is looked for only where these differ, or where digits could make a number too long.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeVar

import msgspec

from airflow_kstreams.streams.plan import decode_json

_T = TypeVar("_T")
#: Largest number of 64 bits, as Kafka counts offsets and milliseconds.
LARGEST = 2**63 - 1
_LONG_NUMBER = re.compile(rb"[0-9]{19}")
_NUMBER = re.compile(rb"0|[1-9][0-9]{0,18}")


class UnreadableError(Exception):
    """The engine does not write such a value; the text says why, and quotes nothing of it."""


def read_json(data: bytes | str, kind: type[_T]) -> _T:
    """Return the value that JSON holds.

    :param kind: type of the value; it is kept as long as the process lives.
    :raises UnreadableError: the data is no such value, in whichever way.
    """
    try:
        found = decode_json(data, kind)
        given = data.encode() if isinstance(data, str) else data
        if _LONG_NUMBER.search(given) or msgspec.json.encode(found) != given:
            _look_closely(given)
    except UnreadableError:
        raise
    except msgspec.MsgspecError as error:
        raise UnreadableError(str(error)) from None
    except UnicodeError:
        raise UnreadableError("text that is no UTF-8") from None
    except RecursionError:
        raise UnreadableError("lists or objects in one another without an end") from None
    except (ValueError, OverflowError):
        raise UnreadableError("no JSON that the engine writes") from None
    return found


def read_number(data: bytes | None, *, most: int = LARGEST) -> int:
    """Return the number that ASCII digits give, without sign or leading zeros.

    :raises UnreadableError: there is no such number, or it is larger than ``most``.
    """
    if data is None or not _NUMBER.fullmatch(data):
        raise UnreadableError("no number")
    number = int(data)
    if number > most:
        raise UnreadableError(f"the number {number}, the largest that can be is {most}")
    return number


def read_text(data: bytes | None) -> str:
    """Return the text that UTF-8 gives.

    :raises UnreadableError: the data is missing, or is no UTF-8.
    """
    if data is None:
        raise UnreadableError("no text")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UnreadableError("text that is no UTF-8") from None


def _look_closely(data: bytes) -> None:
    """Refuse what msgspec lets pass.

    :raises UnreadableError: a name comes twice in an object, a number is too large, or a text is no UTF-8.
    """
    json.loads(
        data.decode(),
        object_pairs_hook=_pairs,
        parse_int=_int,
        parse_float=_float,
        parse_constant=_refuse_constant,
    )


def _pairs(pairs: Iterable[tuple[str, Any]]) -> Mapping[str, Any]:
    listed = list(pairs)
    found = dict(listed)
    if len(found) != len(listed):
        raise UnreadableError("an object that has a name twice")
    return found


def _int(digits: str) -> int:
    if len(digits) > 20 or not -LARGEST - 1 <= int(digits) <= LARGEST:
        raise UnreadableError("an integer of more than 64 bits")
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise UnreadableError("a number without a finite value")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise UnreadableError(f"{name}, which is no JSON")
