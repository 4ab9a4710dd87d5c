"""Computes the hash by which Java's Kafka producer chooses the partition of a key.

Source: ``org.apache.kafka.common.utils.Utils#murmur2`` and ``BuiltInPartitioner#partitionForKey``. A key must
lie where every other producer of its topic puts it; else a task would look for its state in another task's
store.
"""

from __future__ import annotations

import struct

_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24
_UINT32 = 0xFFFFFFFF
_INT32_MAX = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """Return the hash as Java does: a signed 32-bit number.

    :param data: bytes of any length.

    >>> murmur2(b"foobar")
    -790332482
    """
    length = len(data)
    words = length // 4
    hashed = _SEED ^ length
    for word in struct.unpack_from(f"<{words}I", data):
        mixed = (word * _M) & _UINT32
        mixed ^= mixed >> _R
        hashed = ((hashed * _M) ^ (mixed * _M)) & _UINT32
    tail = data[4 * words :]
    if tail:
        hashed = ((hashed ^ int.from_bytes(tail, "little")) * _M) & _UINT32
    hashed ^= hashed >> 13
    hashed = (hashed * _M) & _UINT32
    hashed ^= hashed >> 15
    return hashed - (1 << 32) if hashed > _INT32_MAX else hashed


def key_hash(key: bytes) -> int:
    """Return the number whose remainder by the partition count is a key's partition, from 0 on.

    >>> key_hash(b"foobar") % 10
    6
    """
    return murmur2(key) & _INT32_MAX
