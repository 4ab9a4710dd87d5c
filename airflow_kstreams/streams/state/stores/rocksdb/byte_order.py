"""Writes times and keys as bytes in the same order, for RocksDB, which orders keys by their bytes.

A time is its distance from the least time, 8 bytes, big-endian. A key before other bytes is escaped: 0 is
written as 0 255, and 0 0 ends it. So no key is the beginning of another one, and escaped keys sort as keys.
"""

from __future__ import annotations

import struct

_TIMES = {count: struct.Struct(f">{count}Q") for count in (1, 2)}
_LEAST_MS = -(2**63)
#: Bytes that a time takes.
TIME_BYTES = 8
_END = b"\x00\x00"


def times_to_bytes(times_ms: tuple[int, ...]) -> bytes:
    """Return one or two times as bytes in the order of the times.

    >>> sorted([times_to_bytes((1,)), times_to_bytes((-1,))]) == [times_to_bytes((-1,)), times_to_bytes((1,))]
    True
    """
    return _TIMES[len(times_ms)].pack(*(time_ms - _LEAST_MS for time_ms in times_ms))


def times_from_bytes(data: bytes, offset: int, count: int) -> tuple[int, ...]:
    """Return times.

    :param offset: offset of the first time.
    :param count: number of times, one or two.

    >>> times_from_bytes(times_to_bytes((-7, 8)), 0, 2)
    (-7, 8)
    """
    return tuple(time_ms + _LEAST_MS for time_ms in _TIMES[count].unpack_from(data, offset))


def escaped(key: bytes) -> bytes:
    r"""Return a key in the form before other bytes.

    >>> escaped(b"a\0b")
    b'a\x00\xffb\x00\x00'
    """
    return key.replace(b"\x00", b"\x00\xff") + _END


def unescaped(data: bytes) -> bytes:
    r"""Return the key of an escaped form.

    >>> unescaped(escaped(b"\0\xff\0"))
    b'\x00\xff\x00'
    """
    return data[: -len(_END)].replace(b"\x00\xff", b"\x00")


def behind(prefix: bytes) -> bytes:
    """Return the first bytes that sort behind all that begin with a prefix.

    :param prefix: not made of 255 alone.
    """
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1])


def up_to(prefix: bytes, last_ms: int) -> bytes:
    """Return the first bytes that sort behind all that begin with a prefix and a time up to ``last_ms``,
    which may be any number.

    >>> up_to(b"a", 2**63) == b"b", up_to(b"a", -(2**64)) == b"a"
    (True, True)
    """
    if last_ms >= -_LEAST_MS - 1:
        return behind(prefix)
    return prefix if last_ms < _LEAST_MS else prefix + times_to_bytes((last_ms + 1,))
