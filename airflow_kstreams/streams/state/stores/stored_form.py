"""Reads and writes entries as bytes: the timestamp in epoch milliseconds, 8 bytes big endian, and the value
in the store's serde.

An entry is one object, which Python's collector never visits: it would scan millions of tuples again and
again.
"""

from __future__ import annotations

import struct

_TIMESTAMP = struct.Struct(">q")

#: Returns the first bytes of a stored form: those of the timestamp.
timestamp_bytes = _TIMESTAMP.pack

#: Offset of the value.
VALUE_OFFSET = _TIMESTAMP.size


def timestamp_of(stored: bytes) -> int:
    """Return the timestamp of a stored form.

    >>> timestamp_of(timestamp_bytes(-1) + b"value")
    -1
    """
    timestamp_ms: int = _TIMESTAMP.unpack_from(stored)[0]
    return timestamp_ms
