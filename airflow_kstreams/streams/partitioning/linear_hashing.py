"""Places keys by the hash of Java's Kafka producer and by linear hashing, under which a topic may gain any
number of partitions, one by one.

Rule: a topic begins with ``N0`` partitions. Among ``Q`` of them, with ``N = N0 * 2^k <= Q < 2 N``, a key
whose hash is ``h`` lies in ``h mod 2 N`` if there is such a partition, else in ``h mod N``. With ``Q = N0``
that is Kafka's default. The next partition takes keys from an existing one, its *parent*, and no other key
moves: ``p`` with ``N <= p < 2 N`` takes them from ``p - N``.

Invariant: the first ancestor of a partition below ``P`` is the partition of its keys among ``P`` partitions.
So a processor per partition of some earlier count keeps its keys, however the topic grows. Source: "partition
and processor expansion"; docs/internals/expansion.md has the proof.

Source of the hash: ``org.apache.kafka.common.utils.Utils#murmur2`` and
``BuiltInPartitioner#partitionForKey``. A key must lie where every other producer of its topic puts it; else a
task would look for its state in another task's store.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache

from airflow_kstreams.streams.errors import TopologyError

_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24
_UINT32 = 0xFFFFFFFF
_INT32_MAX = 0x7FFFFFFF
#: Stands for a partition that the client chooses.
ANY_PARTITION = -1
#: Keys whose partition one writer remembers: working it out costs more than all else that it does with them.
_PLACED_KEYS = 100_000


def partition_of_key(key: bytes, initial_partitions: int, partitions: int) -> int:
    """Return the partition of a serialized key, which is Java's default while a topic has not grown.

    :param key: the serialized key; a record without key may go anywhere.
    :param initial_partitions: the topic's partition count when its producers began, at least 1.
    :param partitions: the topic's partition count now, at least as large.
    :raises TopologyError: a topic cannot have these counts.

    >>> [partition_of_key(b"foo", 10, partitions) for partitions in (10, 16, 17)]
    [6, 6, 16]
    """
    return place(key_hash(key), initial_partitions, partitions)


def places_by_memory() -> Callable[[bytes, int, int], int]:
    """Return :func:`partition_of_key` with a cache of its own, for one writer."""
    return lru_cache(_PLACED_KEYS)(partition_of_key)


def processor_of_partition(partition: int, initial_processors: int, processors: int) -> int:
    """Return the processor that reads a partition: the partition's own number, or that of the first of its
    ancestors that is a processor.

    :param partition: number in a topic whose keys are placed by linear hashing.
    :param initial_processors: the first number of processors, which is the topic's partition count when its
        producers began.
    :param processors: the number of processors now, at least as large.
    :raises TopologyError: an application cannot have these numbers.

    >>> [processor_of_partition(partition, 10, 15) for partition in (9, 14, 15, 17)]
    [9, 14, 5, 7]
    """
    check_counts(initial_processors, processors, "processors")
    if partition < 0:
        raise TopologyError(f"{partition} is no partition", fix="give a partition's number, from 0 on")
    while partition >= processors:
        partition = parent_of(partition, initial_processors)
    return partition


def place(hashed: int, initial_partitions: int, partitions: int) -> int:
    """Return the partition of a key.

    :param hashed: the key's hash, from 0 on.
    """
    check_counts(initial_partitions, partitions, "partitions")
    modulus = 2 * _level(partitions, initial_partitions)
    found = hashed % modulus
    return found if found < partitions else found - modulus // 2


def parent_of(partition: int, initial_partitions: int) -> int:
    """Return the parent of a partition, from which it took its keys; it must not be one of the first
    partitions.

    >>> [parent_of(partition, 10) for partition in (10, 19, 20, 27, 39)]
    [0, 9, 0, 7, 19]
    """
    return partition - _level(partition, initial_partitions)


def check_counts(initial: int, now: int, what: str) -> None:
    """Refuse two counts between which a topic or an application cannot have grown.

    :raises TopologyError: the growth is impossible.
    """
    if not 1 <= initial <= now:
        raise TopologyError(
            f"{now} {what} cannot have grown from {initial}",
            fix=f"give first the number of {what} at the beginning, 1 at least, then today's, no less",
        )


def _level(number: int, initial: int) -> int:
    """Return the largest ``initial * 2^k`` that a number reaches."""
    return initial << ((number // initial).bit_length() - 1)


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
