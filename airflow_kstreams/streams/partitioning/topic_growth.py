"""Counts the partitions of an application's source topics, and finds the partitions of a key in a topic that
has gained partitions (docs/internals/expansion.md).

Rule of counts: an existing topic keeps its count. A repartition topic that is yet to be created takes the
count given for it, else that of the topics it is joined with, else that of the largest source of the
subtopology that writes it. Joined topics must fit each other.

A *history* is the known partition counts of a topic, rising: the first one before all growth, the last one
now. A *kind* is the arithmetic of its producers:

- ``linear``: linear hashing over the first count (``linear_hashing.py``); any counts.
- ``modulo``: Kafka's default, the hash modulo the count; each count a multiple of the one before, else keys
  leave their ancestors.

A topic may have had unseen counts between two known ones. Linear hashing then placed a key in an ancestor of
its present partition. Modulo placed it in ``h mod c`` for an unseen count ``c``: a multiple of the known
count before it that divides the known count after it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from math import gcd
from typing import Literal

import msgspec

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.partitioning.linear_hashing import parent_of, place
from airflow_kstreams.streams.plan import SubtopologyPlan, TopologyPlan


def partition_counts(
    plan: TopologyPlan,
    found: Mapping[str, int],
    *,
    first: Mapping[str, int] | None = None,
    read: Collection[str] = (),
) -> dict[str, int]:
    """Return the partition count of every source topic, also of repartition topics that are yet to be
    created.

    :param plan: the application's; topics by their real names.
    :param found: partition count of every topic that exists, among them every source that is no repartition
        topic.
    :param first: partition count with which a topic began, where it is known; else the topic began with
        today's.
    :param read: the topics that runs have read; all of the plan's unless given.
    :raises TopologyError: co-partitioned topics have unequal counts, or a repartition topic has another count
        than the topology asks for.
    """
    counts = {topic: count for topic, count in found.items() if topic in plan.sources}
    open_counts = {
        topic for topic, fixed in plan.repartition_topics.items() if fixed is None and topic not in found
    }
    for topic, fixed in plan.repartition_topics.items():
        if topic in open_counts or fixed is None:
            continue
        if counts.setdefault(topic, fixed) != fixed:
            raise TopologyError(
                f"repartition topic {topic} has {counted(counts[topic], 'partition')}, the topology asks "
                f"for {fixed}",
                fix="ask for the old count again, or start over with empty state: "
                + plan.start_over_command(read),
            )
    # Writers come before readers, so each writer's own sources are known when it is reached.
    for sub in plan.subtopologies:
        _settle_copartitioned(sub, counts, open_counts, first or {})
        widest = max(counts[topic] for topic in sub.sources)
        for topic in open_counts.intersection(sub.sinks):
            counts[topic] = max(counts.get(topic, 0), widest)
    for sub in plan.subtopologies:
        _check_copartitioning(sub, counts, first or {})
    return counts


def _settle_copartitioned(
    sub: SubtopologyPlan, counts: dict[str, int], open_counts: set[str], first: Mapping[str, int]
) -> None:
    """Give repartition topics the partition count of the topics they are joined with."""
    for group in sub.copartitioned:
        free = open_counts.intersection(group)
        fixed = {first.get(topic, counts[topic]) for topic in group if topic not in free}
        wanted = fixed or {max(counts[topic] for topic in free)} if free else set()
        if len(wanted) == 1:
            counts.update(dict.fromkeys(free, next(iter(wanted))))


def _check_copartitioning(sub: SubtopologyPlan, counts: Mapping[str, int], first: Mapping[str, int]) -> None:
    for group in sub.copartitioned:
        began = {topic: first.get(topic, counts[topic]) for topic in group}
        if len({*began.values()}) > 1:
            listed = " and ".join(
                f"{topic!r} has {counts[topic]}"
                + (f" and began with {began[topic]}" if began[topic] != counts[topic] else "")
                for topic in group
            )
            raise TopologyError(
                f"subtopology {sub.id} joins topics that need equal partition counts, but {listed}",
                fix="create the topics with equal partition counts, or give each stream the same number by "
                "repartition(partitions); if one has grown since its producers began, give its first count: "
                "initial.partitions=TOPIC=N",
            )


#: The producers' placement of keys when a topic grows.
GrowthKind = Literal["linear", "modulo"]
#: A topic's partition counts: rising, the first before all growth.
History = tuple[int, ...]

LINEAR: GrowthKind = "linear"
KINDS: tuple[GrowthKind, ...] = (LINEAR, "modulo")


class GrownTopic(msgspec.Struct, frozen=True, array_like=True):
    """A topic that has gained partitions since its producers began.

    :param history: its partition counts.
    :param kinds: the arithmetic that its producers may use, as counts and keys show; at least one.
    """

    history: History
    kinds: tuple[GrowthKind, ...]


def fitting_kinds(history: History) -> tuple[GrowthKind, ...]:
    """Return the kinds that allow a history's counts.

    >>> fitting_kinds((4, 8, 24)), fitting_kinds((4, 6, 8))
    (('linear', 'modulo'), ('linear',))
    """
    multiples = all(now % before == 0 for before, now in pairwise(history))
    return KINDS if multiples else (LINEAR,)


def kinds_agree(history: History) -> bool:
    """Return True if all kinds place every key alike, at every count, as they do where counts only double.

    >>> kinds_agree((4, 8, 32)), kinds_agree((4, 12)), kinds_agree((4,))
    (True, False, True)
    """
    return all(now % before == 0 and (now // before).bit_count() == 1 for before, now in pairwise(history))


def ancestors(partition: int, history: History, kinds: Collection[GrowthKind]) -> frozenset[int]:
    """Return the partitions in which the keys of a partition may have lain before it existed.

    >>> sorted(ancestors(14, (4, 24), ["modulo"])), sorted(ancestors(14, (4, 24), ["linear"]))
    ([2, 6], [2, 6])
    >>> sorted(ancestors(23, (4, 24), ["modulo"])), sorted(ancestors(23, (4, 24), ["linear"]))
    ([3, 7, 11], [3, 7])
    """
    found: set[int] = set()
    if LINEAR in kinds:
        at = partition
        while at >= history[0]:
            at = parent_of(at, history[0])
            found.add(at)
    if "modulo" in kinds:
        found |= {partition % count for count in _counts_passed(history)}
    return frozenset(found - {partition})


def processor_of(partition: int, history: History, kind: GrowthKind, processors: int) -> int:
    """Return the processor that reads a partition.

    :param processors: number of processors, at least the history's first count.

    >>> processor_of(14, (4, 8, 24), "modulo", 8), processor_of(14, (4, 24), "modulo", 8)
    (6, 2)
    """
    counts = history[:-1]
    while partition >= processors:
        if kind == LINEAR:
            partition = parent_of(partition, history[0])
        else:
            partition %= max(count for count in counts if count <= partition)
    return partition


def places(hashed: int, history: History, kind: GrowthKind) -> frozenset[int]:
    """Return the partitions in which a key's records may lie, written at any time since the beginning.

    :param hashed: the key's hash, from 0 on.

    >>> sorted(places(14, (4, 24), "modulo")), sorted(places(14, (4, 5), "linear"))
    ([2, 6, 14], [2])
    """
    if kind == LINEAR:
        now = place(hashed, history[0], history[-1])
        return ancestors(now, history, (LINEAR,)) | {now}
    return frozenset(hashed % count for count in _counts_passed(history))


def keys_stay(before: Sequence[int], now: Sequence[int]) -> bool:
    """Return True if growth leaves every key in its partition group, under Kafka's default partitioner.

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
    for numbered in (before, now):
        for partition, group in enumerate(numbered):
            groups[partition % common].add(group)
    return all(len(found) == 1 for found in groups)


@lru_cache(maxsize=1_000)
def _counts_passed(history: History) -> Sequence[int]:
    """Return every count that a topic whose counts are multiples of each other may have had."""
    between = {
        count
        for before, now in pairwise(history)
        for count in range(before, now + 1, before)
        if now % count == 0
    }
    return sorted(between | {*history})
