"""Lets users decide which source partitions one task reads together (KIP-28, "Partition Distribution"): asks
a partition grouper for its groups, checks them, and keeps them as plain data.

Rule: every source partition of a subtopology is in exactly one group, no group is empty, and topics that are
joined have the same partition numbers in each group (KIP-28: "their represented partition lists have to match
each other"). A grouper is asked twice and must give equal answers: one that shuffles would otherwise be
refused at some later run, when state is bound to its groups.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from airflow_kstreams.streams.errors import KStreamsError, TopologyError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.hints.function_checks import CallSite, call_site
from airflow_kstreams.streams.ports import TopicDescription, TopicPartition


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


#: The groups of one subtopology by group id: topic -> its partition numbers in the group, both sorted. Plain
#: data that crosses processes as JSON.
Groups = tuple[dict[str, tuple[int, ...]], ...]

#: Of many partitions, or texts, a message names so many.
NAMED = 5


def equal_ids(counts: Mapping[str, int]) -> Groups:
    """Return the groups of the default grouper.

    :param counts: partition count per topic.

    >>> equal_ids({"left": 2, "right": 1})
    ({'left': (0,), 'right': (0,)}, {'left': (1,)})
    """
    return _plain(EqualIds().group(counts))


def partitions_in(group: Mapping[str, Iterable[int]]) -> list[TopicPartition]:
    """Return the partitions of a group, sorted."""
    return [TopicPartition(topic, number) for topic, numbers in group.items() for number in numbers]


def group_of_partition(groups: Groups) -> dict[TopicPartition, int]:
    """Return the group id of every partition."""
    return {partition: number for number, group in enumerate(groups) for partition in partitions_in(group)}


def first_few(texts: Sequence[str], separator: str = ", ") -> str:
    """Return texts as one for messages, the first few and the number of the others."""
    more = f" and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    return f"{separator.join(texts[:NAMED])}{more}"


def named(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as text for messages, the first few by name."""
    return first_few([str(partition) for partition in sorted(partitions)])


def all_partitions(counts: Mapping[str, int]) -> list[TopicPartition]:
    """Return every partition of topics, given the partition count of each."""
    return [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]


def described_partitions(
    found: Mapping[str, TopicDescription], topics: Iterable[str]
) -> list[TopicPartition]:
    """Return every partition of those topics of ``topics`` that exist.

    :param found: the topics that exist.
    """
    return all_partitions({topic: found[topic].partitions for topic in topics if topic in found})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupingRequest:
    """One subtopology to group.

    :param subtopology: id of the subtopology.
    :param counts: partition count of each source topic, by its name in the topology.
    :param copartitioned: sets of topics that are joined.
    """

    subtopology: int
    counts: Mapping[str, int]
    copartitioned: Sequence[Collection[str]] = ()


def grouped(grouper: PartitionGrouper, site: CallSite | None, request: GroupingRequest) -> Groups:
    """Ask a grouper for the groups of one subtopology and check them.

    :param site: line that gave the grouper to the builder.
    :raises TopologyError: the grouper fails, or its groups break the rule; the partitions are named.
    """
    where = f"partition grouper {grouper.id!r}{f' ({site})' if site else ''}"
    of = f"subtopology {request.subtopology} with {_counted(request.counts)}"
    pairs = _ask(grouper, request.counts, where=where, of=of)
    _check_cover(pairs, request.counts, where=where, of=of)
    groups = _plain(pairs)
    if _plain(_ask(grouper, request.counts, where=where, of=of)) != groups:
        raise TopologyError(
            f"{where} gave two different answers for {of}",
            fix="let the groups depend on the topics and their partition counts only, list them in one order",
        )
    _check_joined(groups, request, where=where)
    return groups


def _ask(
    grouper: PartitionGrouper, counts: Mapping[str, int], *, where: str, of: str
) -> list[list[TopicPartition]]:
    try:
        answer = grouper.group(dict(counts))
    except KStreamsError:
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(str(error).split())
        raise TopologyError(
            f"{where} fails for {of}: {type(error).__name__}: {text} at {frame.filename}:{frame.lineno}",
            fix="correct that line",
        ) from error
    if isinstance(answer, Sequence) and all(_is_group(group) for group in answer):
        return [[TopicPartition(*pair) for pair in group] for group in answer]
    raise TopologyError(
        f"{where} returned {_shortened(repr(answer))} for {of}, expected a list of sets of TopicPartition",
        fix="return [{TopicPartition(topic, partition), ...}, ...], one set for each group",
    )


def _is_group(group: object) -> bool:
    return isinstance(group, Collection) and all(
        isinstance(pair, tuple)
        and len(pair) == len(TopicPartition._fields)
        and isinstance(pair[0], str)
        and isinstance(pair[1], int)
        and not isinstance(pair[1], bool)
        for pair in group
    )


def _check_cover(
    groups: Sequence[Sequence[TopicPartition]], counts: Mapping[str, int], *, where: str, of: str
) -> None:
    """Refuse groups that do not hold every partition exactly once."""
    known = {TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)}
    times = Counter(partition for group in groups for partition in group)
    seen, twice = set(times), {partition for partition, count in times.items() if count > 1}
    for wrong, what, fix in (
        (seen - known, "groups partitions that do not exist", "group the partitions it is asked for only"),
        (known - seen, "leaves partitions out", "put every partition into a group"),
        (twice, "names partitions twice", "put each partition into one group, once"),
    ):
        if wrong:
            raise TopologyError(f"{where} {what} for {of}: {named(wrong)}", fix=fix)
    empty = [number for number, group in enumerate(groups) if not group]
    if empty:
        raise TopologyError(
            f"{where} leaves group {empty[0]} of {len(groups)} empty for {of}",
            fix="leave empty groups out of the list",
        )


def _check_joined(groups: Groups, request: GroupingRequest, *, where: str) -> None:
    """Refuse groups in which joined topics have different partition numbers."""
    for joined in request.copartitioned:
        first, *others = sorted(joined)
        for number, group in enumerate(groups):
            for other in others:
                if group.get(first, ()) != group.get(other, ()):
                    raise TopologyError(
                        f"{where} splits topics that subtopology {request.subtopology} joins: group {number} "
                        f"holds partitions {_numbers(group, first)} and {_numbers(group, other)}",
                        fix="put equal partition numbers of joined topics, or of topics that share state, "
                        "into one group",
                    )


def _plain(groups: Iterable[Collection[TopicPartition]]) -> Groups:
    plain: list[dict[str, tuple[int, ...]]] = []
    for group in groups:
        topics = sorted({topic for topic, _ in group})
        plain.append(
            {topic: tuple(sorted({number for name, number in group if name == topic})) for topic in topics}
        )
    return tuple(plain)


def _numbers(group: Mapping[str, Sequence[int]], topic: str) -> str:
    return f"{', '.join(map(str, group.get(topic, ()))) or 'none'} of {topic!r}"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counted(count, 'partition')} of {topic!r}" for topic, count in sorted(counts.items()))


def _shortened(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."
