"""Finds the processor of a key, once a subtopology has more processors than its topics had partitions at
first (docs/internals/expansion.md).

With ``P`` processors, a processor's number is the partition of its keys in a topic of ``P`` partitions.
Linear hashing needs nothing else. Under ``modulo`` the number depends on the counts that the topics have had,
up to the first one that is at least ``P``: later ones change nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from airflow_kstreams.streams.partitioning.linear_hashing import place
from airflow_kstreams.streams.partitioning.topic_growth import (
    KINDS,
    LINEAR,
    GrownTopic,
    GrowthKind,
    History,
    kinds_agree,
    processor_of,
)
from airflow_kstreams.streams.plan import PartitionCount


class Processors(msgspec.Struct, frozen=True, array_like=True):
    """The processors of a subtopology.

    :param count: number of processors.
    :param history: partition counts of the topics, up to the first one that is at least ``count``.
    :param kind: arithmetic by which the topics have grown.

    >>> grown = Processors(6, (4, 6), "linear")
    >>> grown.of_partition(5), grown.of_partition(7), grown.source_of(5, 4)
    (5, 3, 1)
    """

    count: PartitionCount
    history: History
    kind: GrowthKind

    def of_hash(self, hashed: int) -> int:
        """Return the processor of a key.

        :param hashed: the key's hash, from 0 on.
        """
        last = self.history[-1]
        at = place(hashed, self.history[0], last) if self.kind == LINEAR else hashed % last
        return self.of_partition(at)

    def of_partition(self, partition: int) -> int:
        """Return the processor that reads a partition below the last count of the history."""
        return processor_of(partition, self.history, self.kind, self.count)

    def source_of(self, processor: int, before: int) -> int:
        """Return the processor from which a new one takes its keys.

        :param before: number of processors before.
        """
        return processor_of(processor, self.history, self.kind, before)

    def fewer(self, count: int) -> Processors:
        """Return the processors of an earlier time, when they were fewer."""
        return Processors(count, self.history, self.kind)


def common_processors(grown: Mapping[str, GrownTopic], count: int) -> Processors | None:
    """Return the processors of a subtopology that is to have ``count`` of them.

    :param grown: its topics, each of which has grown to at least ``count`` partitions.
    :return: None while keys do not show the kind by which a topic grows, and the kinds differ; or where
        topics that have grown in different ways would need different processors.

    >>> common_processors({"a": GrownTopic((4, 8), ("linear", "modulo"))}, 8)
    Processors(count=8, history=(4, 8), kind='linear')
    >>> common_processors({"a": GrownTopic((4, 24), ("linear", "modulo"))}, 8) is None
    True
    """
    histories = {topic: _up_to(growth.history, count) for topic, growth in grown.items()}
    if len({history[0] for history in histories.values()}) != 1:
        return None
    possible = [_kinds(growth.kinds, histories[topic]) for topic, growth in grown.items()]
    for kind in KINDS:
        if not all(kind in kinds for kinds in possible):
            continue
        # Linear hashing asks for the first count only.
        if kind == LINEAR:
            return Processors(count, next(iter(histories.values())), kind)
        if len({*histories.values()}) == 1:
            return Processors(count, next(iter(histories.values())), kind)
    return None


def _up_to(history: History, count: int) -> History:
    """Return the counts up to the first one that is no less than the number of processors."""
    reached = next(at for at, partitions in enumerate(history) if partitions >= count)
    return history[: reached + 1]


def _kinds(kinds: Collection[GrowthKind], history: History) -> Collection[GrowthKind]:
    """Return the kinds that give the same processors: all, if they agree; none, if keys must still show the
    kind.
    """
    if kinds_agree(history):
        return KINDS
    return kinds if len(kinds) == 1 else ()
