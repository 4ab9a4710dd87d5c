"""Defines an expansion of processors as Kafka holds it, and tells begin and the command whether a subtopology
can have more processors, and what that needs.

A subtopology with state gets more processors ("partition and processor expansion"). Each new one takes its
keys from exactly one that is there, its *source*, and their state lies in the source's changelog partitions.
A *catch-up* copies it, source by source, into the changelog partitions of the new ones while runs go on as
before. When it has almost caught up, a begin *takes over*: it copies the rest, and from that run on the new
processors read their partitions.

Rule: what has been copied, and how far, is one transaction. For each changelog and source the committed
offset of the group ``<app>-catchup`` is where the copy goes on (T2), with an :class:`Expansion` as its
metadata. The request is nothing else: the first of these offsets begins an expansion. T1, which it has to
reach, is the end of the source's changelog partition.

Invariant: an expansion counts while its subtopology has as many processors as when it began, and its
changelogs are the topics that they were. What was written for processors that never came is cleared before
anything else is written there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from airflow_kstreams.batch.growing.grown_groups import with_processors
from airflow_kstreams.batch.ledger.facts import GroupedPartitions
from airflow_kstreams.batch.protocol.checked_reading import UnreadableError, read_json
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.naming.topic_names import RETRY_ENDING, ProtocolTopics
from airflow_kstreams.streams.partitioning.partition_groups import partitions_in
from airflow_kstreams.streams.partitioning.processors import Processors, common_processors
from airflow_kstreams.streams.plan import PartitionCount, SubtopologyPlan, TopologyPlan
from airflow_kstreams.streams.ports import AdminPort, CommittedOffset, TopicPartition


class Expansion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The metadata of an offset that the catch-up commits.

    :param before: number of processors that the subtopology has now.
    :param after: the processors that it is to have.
    :param topic_id: id of the changelog topic whose offset this is.
    :param stepped_ms: time at which the offset was committed, epoch milliseconds.
    :param copied: number of entries written since the copy began, deletions among them.
    :param copied_bytes: size of these entries.
    :param begun_ms: time at which the copy began, epoch milliseconds.
    :param rate: records per second at which the source's changelogs were read last; 0 if not known.
    """

    before: PartitionCount
    after: Processors
    topic_id: str
    stepped_ms: int
    copied: int = 0
    copied_bytes: int = 0
    begun_ms: int = 0
    rate: float = 0.0

    @property
    def added(self) -> range:
        """The new processors."""
        return range(self.before, self.after.count)

    @property
    def sources(self) -> dict[int, list[int]]:
        """Source -> the new processors that take keys from it."""
        return sources_of(self.after, self.before)

    def encode(self) -> str:
        """Return the text for the metadata of the offset."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, text: str) -> Expansion | None:
        """Read the metadata of an offset; None if it names no expansion, as after an aborted one."""
        try:
            return read_json(text, cls) if text else None
        except UnreadableError:
            return None


def sources_of(after: Processors, before: int) -> dict[int, list[int]]:
    """Return the processors that new ones take keys from: source -> the new ones.

    :param before: number of processors before the expansion.
    """
    found: dict[int, list[int]] = {}
    for processor in range(before, after.count):
        found.setdefault(after.source_of(processor, before), []).append(processor)
    return found


def positions_of(sub: SubtopologyPlan, sources: Iterable[int]) -> list[TopicPartition]:
    """Return the changelog partitions for which the catch-up commits offsets."""
    changelogs = sorted(sub.changelogs.values())
    return [TopicPartition(topic, source) for source in sources for topic in changelogs]


def live(offset: CommittedOffset | None, entry: GroupedPartitions, changelog: str) -> Expansion | None:
    """Return the expansion in the metadata of a catch-up's offset; None if it does not count any more.

    :param entry: recorded partition groups of the subtopology.
    """
    found = None if offset is None else Expansion.decode(offset.metadata)
    if found is None or found.before != len(entry.by_group):
        return None
    return found if found.topic_id == entry.changelogs.get(changelog) else None


def under_way(
    committed: Mapping[TopicPartition, CommittedOffset], entry: GroupedPartitions
) -> Expansion | None:
    """Return the expansion of a subtopology that is under way, None if there is none.

    :param committed: committed offsets of the catch-up's consumer group.
    """
    found = (live(offset, entry, tp.topic) for tp, offset in sorted(committed.items()))
    return next((expansion for expansion in found if expansion is not None), None)


def first_sources(entry: GroupedPartitions) -> set[int]:
    """Return the processors that the first new processor may take keys from: the ones that its partition
    falls to now. Every expansion of the subtopology has one of them among its sources.
    """
    groups = entry.by_group
    return {
        number
        for number, group in enumerate(groups)
        if any(len(groups) in partitions for partitions in group.values())
    }


def expanded(plan: TopologyPlan, sub: SubtopologyPlan, entry: GroupedPartitions, count: int) -> Processors:
    """Return the processors of a subtopology that is to have ``count`` of them.

    :param entry: partition groups of the subtopology, with the kinds of growth that its topics' keys leave.
    :raises TopologyError: it cannot have that many; the text gives the way out.
    """
    now = len(entry.by_group)
    what = f"subtopology {sub.id} of application {plan.application_id!r}"
    if not sub.changelogs:
        raise TopologyError(
            f"{what} keeps no state: it has a task for each partition of its topics as it is",
            fix="give its topics more partitions: airflow-kstreams expand partitions",
        )
    if plan.partition_grouper:
        raise TopologyError(
            f"{what} has the partition grouper {plan.partition_grouper!r}, which decides itself where "
            "partitions and their keys go",
        )
    if count <= now:
        raise TopologyError(
            f"{what} has {counted(now, 'processor')}: {count} are no more, and it never has fewer than it "
            "had",
            fix=f"give a number from {now + 1} on",
        )
    small = {topic: number for topic, number in sorted(entry.partitions.items()) if number < count}
    if small:
        listed = ", ".join(f"{topic} has {number}" for topic, number in small.items())
        raise TopologyError(
            f"{what} cannot have {counted(count, 'processor')}: each reads a partition of its own of every "
            f"topic, and {listed}",
            fix="give the topics more partitions first, airflow-kstreams expand partitions, and let a run "
            "read them",
        )
    found = common_processors(entry.grown, count)
    if found is None:
        grown = "; ".join(
            f"{topic}: {' -> '.join(map(str, growth.history))}, {' or '.join(growth.kinds)}"
            for topic, growth in sorted(entry.grown.items())
        )
        raise TopologyError(
            f"{what} cannot have {counted(count, 'processor')} yet: which keys move depends on how its "
            f"topics grow, and they grow in different ways, or no key that was read shows how ({grown})",
            fix="let runs read records of the new partitions; or grow topics that are read together alike",
        )
    return found


def refuse_unfit(plan: TopologyPlan, sub: SubtopologyPlan) -> None:
    """Refuse stores whose entries cannot follow their keys.

    :raises TopologyError: a store is unfit; the text names it, with the reason.
    """
    for topic in sorted(sub.changelogs.values()):
        keys = sub.entry_keys.get(topic)
        unfit = "no run of this version has planned it yet" if keys is None else keys.unfit
        if unfit:
            kept = (
                topic if topic.endswith(RETRY_ENDING) else ProtocolTopics(plan.application_id).store_of(topic)
            )
            raise TopologyError(
                f"store {kept!r} of application {plan.application_id!r} cannot follow its keys to more "
                f"processors: {unfit}",
                fix="keep state by the records' own keys, in string, bytes, int32, int64 or double, or read "
                "them through repartition(n); or leave the number of processors as it is"
                if keys is not None
                else "let one run finish, then try again",
            )


def read_by(entry: GroupedPartitions, after: Processors) -> list[TopicPartition]:
    """Return S1: the partitions that the new processors will read."""
    groups = with_processors(entry, after).by_group
    return [tp for group in groups[len(entry.by_group) :] for tp in partitions_in(group)]


def add_partitions(admin: AdminPort, sub: SubtopologyPlan, processors: int) -> None:
    """Give the changelogs of a subtopology a partition for each processor. More are left as they are."""
    found = admin.describe_topics([*sub.changelogs.values()])
    for topic, described in sorted(found.items()):
        if described.partitions < processors:
            admin.create_partitions(topic, processors)
