"""How an entry looks as bytes: its timestamp in epoch milliseconds, 8 bytes big endian, and its value in the
store's serde.

One object per entry, and one that Python's collector never visits: millions of tuples would make it walk
through all of them again and again.
"""

from __future__ import annotations

import struct

_TIMESTAMP = struct.Struct(">q")

#: Returns the first bytes of a stored form: those of the timestamp.
timestamp_bytes = _TIMESTAMP.pack

#: Where the value begins.
VALUE_OFFSET = _TIMESTAMP.size


def timestamp_of(stored: bytes) -> int:
    """Return the timestamp of a stored form.

    >>> timestamp_of(timestamp_bytes(-1) + b"value")
    -1
    """
    timestamp_ms: int = _TIMESTAMP.unpack_from(stored)[0]
    return timestamp_ms
