"""Finds out whether keys stay in their partition groups when a topic gains partitions."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd


def keys_stay(before: Sequence[int], now: Sequence[int]) -> bool:
    """Say whether growth leaves every key in its partition group, under Kafka's default partitioner.

    The partitioner takes a key's hash modulo the partition count. By the Chinese remainder theorem some hash
    goes to partition ``a`` before and ``b`` now if and only if ``a`` and ``b`` are equal modulo the greatest
    common divisor of the two counts; so all partitions equal modulo it must be in one group.

    :param before: group id of each partition, by partition number, before the growth.
    :param now: group id of each partition after the growth.

    >>> keys_stay([0, 1], [0, 1, 0, 1])
    True
    >>> keys_stay([0, 1], [0, 1, 0])
    False
    """
    common = gcd(len(before), len(now))
    groups: list[set[int]] = [set() for _ in range(common)]
    for counted in (before, now):
        for partition, group in enumerate(counted):
            groups[partition % common].add(group)
    return all(len(found) == 1 for found in groups)
