"""Makes Arrow columns of Python objects, without pandas where that saves time.

Rule: types and values are those of ``pyarrow.array``, which makes every column that is not known here.

``pyarrow.array`` imports pandas if it is installed: half a second of CPU time, up to three seconds in all,
and 50 MB, once in a worker. Runs are short, and each may have new workers. So columns of bytes, text, whole
numbers of 64 bits, floats or booleans, each with None among them or without, are made of buffers, by calls
that take a whole list.

``pyarrow.array`` is faster than these by 0.1 µs an object. So it makes every column where pandas is imported
already, as by a function that hands Python objects to Arrow (``pc.multiply(column, 2)``), and behind so many
objects that the import would have paid.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import accumulate
from struct import error as StructError
from struct import pack
from types import ModuleType, NoneType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

#: Objects made into columns of buffers by which the import of pandas would have paid.
_WORTH_PANDAS = 5_000_000
_DIGITS = bytes.maketrans(b"\0\1", b"01")


class ArrowColumns:
    """Makes columns of one task's objects.

    :param arrow: the module ``pyarrow``.
    """

    def __init__(self, arrow: ModuleType) -> None:
        self._arrow: Any = arrow
        #: Number of objects that may still be made into columns of buffers.
        self._left = _WORTH_PANDAS
        #: Type of objects -> (type of their column, function that makes its buffers but the first, of objects
        #: without None, the object that stands for None).
        self._made: dict[type, tuple[pa.DataType, Callable[[Sequence[Any]], Iterable[bytes]], Any]] = {
            bytes: (arrow.binary(), binary_buffers, b""),
            str: (arrow.string(), text_buffers, ""),
            int: (arrow.int64(), lambda numbers: (pack(f"{len(numbers)}q", *numbers),), 0),
            float: (arrow.float64(), lambda numbers: (pack(f"{len(numbers)}d", *numbers),), 0.0),
            bool: (arrow.bool_(), lambda flags: (bitmap(flags),), False),
        }

    def column(self, objects: Sequence[Any], wanted: pa.DataType | None = None) -> pa.Array:
        """Return the column of objects, one or more.

        :param wanted: its type; None for the one that fits the objects.
        :raises pyarrow.ArrowException: the objects do not fit.
        :raises OverflowError: a number does not fit.
        :raises TypeError: the objects are not of one type.
        """
        if self._left > 0 and "pandas" not in sys.modules:
            self._left -= len(objects)
            with suppress(StructError, UnicodeError):  # then pyarrow says what does not fit
                column = self._of_buffers(objects, wanted)
                if column is not None:
                    return column
        return self._arrow.array(objects, type=wanted)

    def _of_buffers(self, objects: Sequence[Any], wanted: pa.DataType | None) -> pa.Array | None:
        """Return the column of objects that are alike; None if pyarrow has to look at them."""
        kinds = set(map(type, objects))
        nulls = NoneType in kinds
        kinds.discard(NoneType)
        if not kinds and (wanted is None or any(wanted.equals(made[0]) for made in self._made.values())):
            return self._arrow.nulls(len(objects), wanted)
        made = self._made.get(kinds.pop()) if len(kinds) == 1 else None
        if made is None or not (wanted is None or wanted.equals(made[0])):
            return None
        kind, buffers_of, stand_in = made
        validity, null_count = None, 0
        if nulls:
            there = [each is not None for each in objects]
            validity, null_count = self._arrow.py_buffer(bitmap(there)), there.count(False)
            objects = [stand_in if each is None else each for each in objects]
        buffers = [validity, *map(self._arrow.py_buffer, buffers_of(objects))]
        return self._arrow.Array.from_buffers(kind, len(objects), buffers, null_count)


def binary_buffers(values: Sequence[bytes]) -> Iterable[bytes]:
    """Return the offsets and the bytes of values.

    :raises StructError: they are too many bytes for one column.
    """
    return pack(f"{len(values) + 1}i", *accumulate(map(len, values), initial=0)), b"".join(values)


def text_buffers(values: Sequence[str]) -> Iterable[bytes]:
    """Return the offsets and the bytes of texts.

    :raises StructError: they are too many bytes for one column.
    :raises UnicodeError: one of them holds half a character.
    """
    text = "".join(values)
    if not text.isascii():
        return binary_buffers([*map(str.encode, values)])
    return pack(f"{len(values) + 1}i", *accumulate(map(len, values), initial=0)), text.encode()


def bitmap(flags: Sequence[bool]) -> bytes:
    """Return flags as a bitmap, the first flag in the lowest bit."""
    digits = bytes(flags).translate(_DIGITS)[::-1]
    return int(digits, 2).to_bytes((len(digits) + 7) // 8, "little")
