"""Lets users decide which source partitions one task reads together (KIP-28, "Partition Distribution")."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.hints.call_site import CallSite, call_site
from airflow_kstreams.streams.ports import TopicPartition


class PartitionGrouper(Protocol):
    """Groups the source partitions of a subtopology; one task reads a group, and its state is the group's.

    Begin asks it for the groups of each subtopology. Within a run the groups do not change; from run to run a
    subtopology with state must keep existing partitions in their groups and put new ones into existing
    groups. A group's id, its index in the list, is the partition of the changelogs.

    >>> class ByParity:
    ...     id = "by-parity"
    ...
    ...     def group(self, partitions_per_topic):
    ...         groups = [set(), set()]
    ...         for topic, count in partitions_per_topic.items():
    ...             for partition in range(count):
    ...                 groups[partition % 2].add(TopicPartition(topic, partition))
    ...         return groups
    >>> sorted(ByParity().group({"flights": 4})[1])
    [TopicPartition(topic='flights', partition=1), TopicPartition(topic='flights', partition=3)]
    """

    @property
    def id(self) -> str:
        """Stable name of the grouping; part of the topology hash."""
        ...

    def group(self, partitions_per_topic: Mapping[str, int]) -> Sequence[Collection[TopicPartition]]:
        """Return the groups, each partition in exactly one of them; equal arguments must give equal groups.

        :param partitions_per_topic: partition count of every source topic of one subtopology. A repartition
            topic goes by its name in the topology, without the application id.
        """
        ...


@dataclass(frozen=True, slots=True)
class EqualIds:
    """The default grouper: group ``n`` holds partition ``n`` of every topic.

    >>> [sorted(map(str, group)) for group in EqualIds().group({"left": 2, "right": 1})]
    [['left-0', 'right-0'], ['left-1']]
    """

    @property
    def id(self) -> str:
        """The name of the grouping."""
        return "equal-ids"

    def group(self, partitions_per_topic: Mapping[str, int]) -> list[set[TopicPartition]]:
        """Return as many groups as the largest topic has partitions."""
        return _modulo(partitions_per_topic, max(partitions_per_topic.values()))


@dataclass(frozen=True, slots=True)
class FixedGroups:
    """A grouper that makes at most ``count`` groups of any number of partitions: partition ``n`` joins group
    ``n % count``.

    So topics may gain partitions under a subtopology with state. A key stays in its group, with its state, as
    long as the topic's partition count is a multiple of ``count`` before and after; Kafka's default
    partitioner takes the key's hash modulo the partition count. Begin refuses other growth of a subtopology
    with state, unless ``growth.moves.keys=warn``.

    :param count: number of groups, at least 1. A subtopology whose topics have fewer partitions has fewer
        groups.
    :raises TopologyError: the count is no such number.

    >>> [sorted(map(str, group)) for group in FixedGroups(2).group({"flights": 4})]
    [['flights-0', 'flights-2'], ['flights-1', 'flights-3']]
    """

    count: int

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            raise TopologyError(
                f"FixedGroups at {call_site()} is given {self.count!r}, expected the number of groups",
                fix="give a whole number from 1 on",
            )

    @property
    def id(self) -> str:
        """The name of the grouping, with the count."""
        return f"fixed-groups-{self.count}"

    def group(self, partitions_per_topic: Mapping[str, int]) -> list[set[TopicPartition]]:
        """Return the groups."""
        return _modulo(partitions_per_topic, min(self.count, max(partitions_per_topic.values())))


def check_partition_grouper(grouper: object, site: CallSite) -> None:
    """Refuse an object that is no partition grouper.

    :param site: line that gave it to the builder.
    :raises TopologyError: the object is a class, cannot group, or has no id.
    """
    if isinstance(grouper, type):
        raise TopologyError(
            f"partition_grouper at {site} is given the class {grouper.__name__}, expected an instance",
            fix=f"pass {grouper.__name__}(...)",
        )
    if not callable(getattr(grouper, "group", None)):
        raise TopologyError(
            f"partition_grouper at {site} is given {grouper!r}, which has no method group",
            fix="pass an object with an id and a method group(partitions_per_topic), e.g. FixedGroups(4)",
        )
    found = getattr(grouper, "id", None)
    if not isinstance(found, str) or not found:
        raise TopologyError(
            f"partition grouper {type(grouper).__name__} at {site} has the id {found!r}, expected a text",
            fix="give it an id that names its way of grouping, e.g. a class attribute id = 'by-parity'",
        )


def _modulo(partitions_per_topic: Mapping[str, int], count: int) -> list[set[TopicPartition]]:
    groups: list[set[TopicPartition]] = [set() for _ in range(count)]
    for topic, partitions in partitions_per_topic.items():
        for partition in range(partitions):
            groups[partition % count].add(TopicPartition(topic, partition))
    return groups
