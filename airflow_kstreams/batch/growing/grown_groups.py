"""Keeps partition groups with their state when topics gain partitions, and says which partitions wait for
their ancestors (docs/internals/expansion.md).

Rule: a subtopology with state and equal-id groups keeps as many groups as it began with. A partition that
comes later joins the group of the ancestor that its keys came from, so that every key stays with its state,
however producers place keys that grow by linear hashing or by multiples.

Rule: the records of a new partition were produced after those that its ancestors held before it. So it waits
until the committed offset of every ancestor has passed a boundary: the ancestor's high watermark, asked for
after the end of the new partition was. Until then it is *blocked*: its start is its stop. Boundaries are set
when a run finds the partition, and again when one finds the first records in it, or in those that came with
it or later: producers may switch long after the topic has grown.

Crash argument: boundaries are written with the slice. If the slice was not written, the next begin asks for
boundaries anew, and they only move forward: the records below them must be read first, and to wait for more
of them delays, and loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from airflow_kstreams.batch.ledger.facts import Assignment, CountedTopic, GroupedPartitions
from airflow_kstreams.batch.protocol.slice.slice import partition_named
from airflow_kstreams.streams.errors import ConfigError, TopologyError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.partitioning.partition_groups import (
    Groups,
    equal_ids,
    first_few,
    group_of_partition,
)
from airflow_kstreams.streams.partitioning.processors import Processors
from airflow_kstreams.streams.partitioning.topic_growth import (
    KINDS,
    LINEAR,
    GrownTopic,
    GrowthKind,
    History,
    ancestors,
    fitting_kinds,
    processor_of,
)
from airflow_kstreams.streams.plan import SubtopologyPlan, TopologyPlan
from airflow_kstreams.streams.ports import TopicDescription, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestor:
    """A partition that another one waits for.

    :param partition: topic and partition number.
    :param position: offset up to which it is read; None if not known.
    :param boundary: offset up to which it must be read first.
    """

    partition: TopicPartition
    position: int | None
    boundary: int

    @property
    def ahead(self) -> int:
        """Number of offsets that are still to be read, at most."""
        return max(0, self.boundary - (self.position or 0))

    def __str__(self) -> str:
        """Return e.g. ``orders-0 (at 100 of 120)``."""
        return f"{self.partition} (at {self.position or 0} of {self.boundary})"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedPartition:
    """A partition that waits for its ancestors.

    :param partition: topic and partition number.
    :param subtopology: the id of the subtopology that reads the topic.
    :param group: number of its partition group, and of the task that reads it.
    :param ancestors: partitions that it waits for, or waited for at the last look.
    """

    partition: TopicPartition
    subtopology: int
    group: int
    ancestors: tuple[Ancestor, ...]

    @property
    def ahead(self) -> int:
        """Offsets of all ancestors that are still to be read, at most; 0: the next run reads it."""
        return sum(ancestor.ahead for ancestor in self.ancestors)

    @property
    def waits_for(self) -> tuple[Ancestor, ...]:
        """The ancestors that are not at their boundaries yet."""
        return tuple(ancestor for ancestor in self.ancestors if ancestor.ahead)


def blocked_partitions(
    grouped: Mapping[int, GroupedPartitions], position: Callable[[TopicPartition], int | None]
) -> list[BlockedPartition]:
    """Return the blocked partitions, sorted.

    :param grouped: subtopology id -> its groups, with boundaries.
    :param position: returns the offset up to which a partition is read; None if not known.
    """
    found: list[BlockedPartition] = []
    for sub, entry in sorted(grouped.items()):
        at = group_of_partition(entry.by_group) if entry.boundaries else {}
        for name, boundaries in entry.boundaries.items():
            tp = partition_named(name)
            parents = {TopicPartition(tp.topic, number): to for number, to in boundaries.items()}
            ancestors = tuple(
                Ancestor(partition=parent, position=position(parent), boundary=to)
                for parent, to in sorted(parents.items())
            )
            found.append(BlockedPartition(partition=tp, subtopology=sub, group=at[tp], ancestors=ancestors))
    return sorted(found, key=lambda each: each.partition)


def blocked_text(waits: Sequence[BlockedPartition]) -> str:
    """Return a text that names the first few partitions that wait, each with the ancestors it waits for."""
    named = [f"{each.partition} waits for {', '.join(map(str, each.waits_for))}" for each in waits]
    return first_few(named, "; ")


def blocked_warnings(
    waits: Sequence[BlockedPartition], stops: Mapping[TopicPartition, int]
) -> tuple[str, ...]:
    """Return a warning that names the partitions that a run leaves to a later one, if there are any.

    :param waits: blocked partitions, as the run's begin found them.
    :param stops: stop offsets of the input partitions; topics that the application writes itself are read
        whole.
    """
    if not waits:
        return ()
    reached = all(
        stops.get(ancestor.partition, ancestor.boundary) >= ancestor.boundary
        for each in waits
        for ancestor in each.waits_for
    )
    when = "the next run reads them" if reached else "this run stops before that, so they wait longer"
    return (
        "partitions that topics have gained are read after what their keys came from: "
        f"{blocked_text(waits)}: {when}",
    )


#: Subtopology id -> its groups as earlier runs left them, with state that is still there.
Bound = Mapping[int, GroupedPartitions]


def bound_groups(
    recorded: Assignment, plan: TopologyPlan, found: Mapping[str, TopicDescription]
) -> dict[int, GroupedPartitions]:
    """Return the recorded groups that existing state depends on.

    :param found: the broker's description of each recorded changelog that exists.
    """
    bound: dict[int, GroupedPartitions] = {}
    for sub in plan.subtopologies:
        there = {t: found[t].topic_id for t in sub.changelogs.values() if t in found}
        for entry in recorded.entries:
            if sub.id not in bound and entry.changelogs.items() & there.items():
                bound[sub.id] = entry
    return bound


def known_growth(
    recorded: Assignment,
    bound: Bound,
    given: Mapping[str, int],
    plan: TopologyPlan,
    found: Mapping[str, TopicDescription],
) -> dict[str, GrownTopic]:
    """Return the growth of every topic whose earlier partition counts are known: from the state that was made
    by them, else from ``given``, else from the counts of earlier runs.

    :param recorded: assignment with the partition counts that earlier runs have recorded.
    :param bound: groups that existing state depends on.
    :param given: topic -> its first partition count by the setting ``initial.partitions``.
    :param found: the broker's description of each source topic.
    :raises ConfigError: the setting names topics that are no inputs, or the partition grouper has no use for
        it.
    :raises TopologyError: the setting contradicts the recorded counts.
    """
    strange = sorted(given.keys() - {*plan.inputs})
    if strange:
        raise ConfigError(
            f"setting 'initial.partitions' names {strange[0]!r}, which is no input topic of application "
            f"{plan.application_id!r}",
            fix=f"name some of {', '.join(plan.inputs)}",
        )
    if given and plan.partition_grouper:
        raise ConfigError(
            f"setting 'initial.partitions' cannot be used with the partition grouper "
            f"{plan.partition_grouper!r}: it decides itself where new partitions go",
            fix="leave the setting out, or leave out partition_grouper",
        )
    if plan.partition_grouper:
        return {}
    known = {
        topic: entry.grown.get(topic, _ungrown(count))
        for _, entry in sorted(bound.items(), reverse=True)
        for topic, count in entry.partitions.items()
    }
    seen = {
        topic: one.growth
        for topic, one in recorded.topics.items()
        if topic in found and found[topic].topic_id == one.id
    }
    for topic, count in given.items():
        if topic in found and found[topic].partitions < count:
            raise ConfigError(
                f"setting 'initial.partitions' says that {topic} began with {counted(count, 'partition')}, "
                f"but it has {found[topic].partitions}, and a topic never loses any",
                fix="write the count that the topic had when its producers began",
            )
        if topic in known and known[topic].history[0] != count:
            raise TopologyError(
                f"setting 'initial.partitions' says that {topic} began with {counted(count, 'partition')}, "
                f"but application {plan.application_id!r} has state by {known[topic].history[0]}",
                fix=f"write {topic}={known[topic].history[0]} or leave it out; or start over with empty "
                f"state: {plan.start_over_command(recorded.topics)}",
            )
    said = {
        topic: _ungrown(count)
        for topic, count in given.items()
        if topic not in seen or seen[topic].history[0] != count
    }
    return {**seen, **said, **known}


def contradicted_counts(
    recorded: Assignment, bound: Bound, given: Mapping[str, int], found: Mapping[str, TopicDescription]
) -> tuple[str, ...]:
    """Warn of first counts that are given and that earlier runs, which left no state, have not counted.

    :param given: topic -> its first partition count by the setting ``initial.partitions``.
    :param found: the broker's description of each source topic.
    """
    in_state = {topic for entry in bound.values() for topic in entry.partitions}
    return tuple(
        f"setting 'initial.partitions' says that {topic} began with {counted(given[topic], 'partition')}, "
        f"and runs have counted {' -> '.join(map(str, seen.growth.history))}: state begins by "
        f"{given[topic]}, and where keys were placed by another count, records of one key meet two states, "
        "or their task fails"
        for topic, seen in recorded.topics.items()
        if topic in given.keys() - in_state
        and topic in found
        and found[topic].topic_id == seen.id
        and seen.growth.history[0] != given[topic]
    )


def with_counts(
    recorded: Assignment,
    plan: TopologyPlan,
    grouped: Iterable[GroupedPartitions],
    topic_ids: Mapping[str, str],
) -> Assignment:
    """Return the assignment with the counts of the topics that a run reads.

    :param grouped: partition groups of each subtopology, as the run finds them.
    :param topic_ids: id of every source topic.
    """
    topics = dict(recorded.topics)
    for entry in grouped:
        for topic, count in entry.partitions.items():
            if topic in plan.repartition_topics:
                continue
            before = topics.get(topic)
            # Groups without growth are those of a state that begins with today's count.
            goes_on = before is not None and before.id == topic_ids[topic]
            if before is not None and goes_on and (plan.partition_grouper or not entry.changelogs):
                growth = _grown_to(count, before.growth)
            else:
                growth = entry.grown.get(topic, _ungrown(count))
            topics[topic] = CountedTopic(topic_ids[topic], growth)
    return msgspec.structs.replace(recorded, topics=dict(sorted(topics.items())))


def grown_groups(
    plan: TopologyPlan,
    sub: SubtopologyPlan,
    counts: Mapping[str, int],
    known: Mapping[str, GrownTopic],
    bound: Bound,
    read: Collection[str] = (),
) -> GroupedPartitions:
    """Group the partitions of a subtopology by equal ids; partitions that came later join the groups of their
    ancestors.

    :param counts: partition count of every source topic.
    :param known: growth of each topic, as :func:`known_growth` returns it.
    :param read: the topics that runs have read; all of the plan's unless given.
    :raises TopologyError: a topic has lost partitions.
    """
    partitions = {topic: counts[topic] for topic in sub.sources}
    if not sub.changelogs:
        return GroupedPartitions(partitions=partitions)
    before = bound.get(sub.id)
    grown: dict[str, GrownTopic] = {}
    for topic, count in partitions.items():
        growth = _growth_before(topic, known.get(topic, _ungrown(count)), before)
        if count < growth.history[-1]:
            raise TopologyError(
                f"topic {topic} has {counted(count, 'partition')}, and had {growth.history[-1]} when "
                f"application {plan.application_id!r} last read it: the keys of the others have lost their "
                "place",
                fix=f"start over with empty state: {plan.start_over_command(read)}",
            )
        growth = _grown_to(count, growth)
        if len(growth.history) > 1:
            if not growth.kinds:
                raise mixed_kinds(plan, topic, growth.history, read)
            grown[topic] = growth
    if not grown:
        return GroupedPartitions(partitions=partitions)
    found = GroupedPartitions(
        partitions=partitions,
        grown=grown,
        boundaries={} if before is None else dict(before.boundaries),
        found_empty=() if before is None else before.found_empty,
        moved_from=() if before is None else before.moved_from,
    )
    return with_processors(found, None if before is None else before.processors)


def with_processors(entry: GroupedPartitions, processors: Processors | None) -> GroupedPartitions:
    """Return a subtopology's partitions grouped for a number of processors; for as many as there were
    partitions at first if ``processors`` is None.
    """
    groups = _groups(entry.partitions, entry.grown, processors)
    return msgspec.structs.replace(
        entry, groups=() if groups == equal_ids(entry.partitions) else groups, processors=processors
    )


def without_kinds(
    plan: TopologyPlan,
    grouped: Mapping[int, GroupedPartitions],
    ruled_out: Mapping[str, Collection[GrowthKind]],
    read: Collection[str] = (),
) -> dict[int, GroupedPartitions]:
    """Leave out the kinds of growth that keys have excluded.

    :param ruled_out: topic -> the kinds that its keys exclude.
    :param read: the topics that runs have read; all of the plan's unless given.
    :raises TopologyError: no kind is left for a topic.
    """
    found: dict[int, GroupedPartitions] = {}
    for sub, entry in grouped.items():
        grown: dict[str, GrownTopic] = {}
        for topic, growth in entry.grown.items():
            kinds = tuple(kind for kind in growth.kinds if kind not in ruled_out.get(topic, ()))
            if not kinds:
                raise mixed_kinds(plan, topic, growth.history, read)
            grown[topic] = GrownTopic(growth.history, kinds)
        found[sub] = msgspec.structs.replace(entry, grown=grown)
    return found


def mixed_kinds(
    plan: TopologyPlan, topic: str, history: History, read: Collection[str] = ()
) -> TopologyError:
    """Return the error of a topic that grew in no way that keeps its keys with their state.

    :param read: the topics that runs have read; all of the plan's unless given.
    """
    counts = " -> ".join(map(str, history))
    return TopologyError(
        f"topic {topic} grew over {counts} partitions, and its keys lie neither where linear hashing over "
        f"{history[0]} puts them nor where Kafka's default partitioner does: state of application "
        f"{plan.application_id!r} would be parted from its keys",
        fix="read it through repartition(n), whose partitions are the engine's own (a topic that grows to "
        "multiples of its count, or whose producers all use the LinearHashPartitioner, needs none), and "
        f"start over with empty state: {plan.start_over_command(read)}; if all that is read then was written "
        f"by today's count, set initial.partitions={topic}={history[-1]} instead of repartition",
    )


def levels(
    partitions: Iterable[TopicPartition], grouped: Iterable[GroupedPartitions]
) -> list[list[TopicPartition]]:
    """Return partitions in the order in which the ends of their logs must be asked for: later partitions
    before all of their ancestors. First partitions, and all of topics that have not grown, come last.
    """
    depth = _depths(grouped)
    by_depth: dict[int, list[TopicPartition]] = {}
    for tp in partitions:
        by_depth.setdefault(depth.get(tp, 0), []).append(tp)
    return [by_depth[number] for number in sorted(by_depth, reverse=True)]


def with_boundaries(
    grouped: Mapping[int, GroupedPartitions],
    bound: Bound,
    *,
    highs: Mapping[TopicPartition, int],
    position: Callable[[TopicPartition], int],
) -> dict[int, GroupedPartitions]:
    """Return the groups with the boundaries that are still ahead.

    :param bound: recorded groups; a partition that they do not have is new.
    :param highs: high watermarks, asked for in the order of :func:`levels`.
    :param position: returns the offset up to which a partition is read.
    """
    found: dict[int, GroupedPartitions] = {}
    for sub, entry in grouped.items():
        before = bound.get(sub)
        boundaries: dict[str, dict[int, int]] = {}
        empty_before, empty = {*entry.found_empty}, list[str]()
        for topic, growth in entry.grown.items():
            known = growth.history[0] if before is None else before.partitions.get(topic, growth.history[0])
            last_before = -1 if before is None or topic not in before.grown else last_found(before, topic)
            held = (at for at in range(growth.history[-1]) if highs[TopicPartition(topic, at)])
            last = max(held, default=-1)
            for number in range(growth.history[0], growth.history[-1]):
                tp = TopicPartition(topic, number)
                new, found_empty = number >= known, str(tp) in empty_before
                if (new or found_empty) and not highs[tp]:
                    empty.append(str(tp))
                sign = in_use(growth, number, last) and not in_use(growth, number, last_before)
                if new or (found_empty and (highs[tp] or sign)):
                    set_at = {
                        parent: highs[TopicPartition(topic, parent)]
                        for parent in ancestors(number, growth.history, growth.kinds)
                    }
                else:
                    set_at = entry.boundaries.get(str(tp), {})
                ahead = {
                    parent: offset
                    for parent, offset in sorted(set_at.items())
                    if position(TopicPartition(topic, parent)) < offset
                }
                if ahead:
                    boundaries[str(tp)] = ahead
        found[sub] = msgspec.structs.replace(entry, boundaries=boundaries, found_empty=tuple(empty))
    return found


def in_use(growth: GrownTopic, number: int, last: int) -> bool:
    """Whether producers know a partition that a topic has gained: a record has come to it, to one that was
    gained with it, or to a later one.

    :param number: number of the partition.
    :param last: the last partition of the topic that holds a record; -1 if none does.
    """
    return last >= max(count for count in growth.history if count <= number)


def last_found(entry: GroupedPartitions, topic: str) -> int:
    """Return the last partition of a grown topic in which a run has found a record; -1 if there is none.

    :param entry: partition groups that the run has recorded.
    """
    empty = {*entry.found_empty}
    partitions = range(entry.grown[topic].history[-1])
    return max((at for at in partitions if str(TopicPartition(topic, at)) not in empty), default=-1)


def grown_topics(grouped: Iterable[GroupedPartitions]) -> set[str]:
    """Return the topics that have grown and are read into state."""
    return {topic for entry in grouped for topic in entry.grown}


def blocked(grouped: Iterable[GroupedPartitions]) -> set[TopicPartition]:
    """Return the blocked partitions: those that wait until their ancestors are read."""
    return {partition_named(name) for entry in grouped for name in entry.boundaries}


def placements(plan: TopologyPlan, grouped: Mapping[int, GroupedPartitions]) -> dict[str, tuple[int, int]]:
    """Return the counts by which the topology's own writers place keys in topics that it reads and that have
    grown, as ``RunPlan`` has them: nothing is written to a blocked partition.
    """
    found: dict[str, tuple[int, int]] = {}
    for entry in grouped.values():
        behind = blocked([entry])
        for topic, growth in entry.grown.items():
            if topic in plan.intermediates and LINEAR in growth.kinds:
                numbers = [tp.partition for tp in behind if tp.topic == topic]
                found[topic] = (growth.history[0], min([*numbers, growth.history[-1]]))
    return found


def _growth_before(topic: str, known: GrownTopic, before: GroupedPartitions | None) -> GrownTopic:
    if before is not None and topic in before.grown:
        return before.grown[topic]
    if before is not None and topic in before.partitions:
        return _ungrown(before.partitions[topic])
    return known


def _ungrown(count: int) -> GrownTopic:
    return GrownTopic((count,), KINDS)


def _grown_to(count: int, growth: GrownTopic) -> GrownTopic:
    """Return a topic's growth up to today's count; no kind may be left."""
    if growth.history[-1] == count:
        return growth
    history = (*growth.history, count)
    return GrownTopic(history, tuple(kind for kind in fitting_kinds(history) if kind in growth.kinds))


def _groups(
    partitions: Mapping[str, int], grown: Mapping[str, GrownTopic], processors: Processors | None
) -> Groups:
    histories = {
        topic: grown[topic].history if topic in grown else (count,) for topic, count in partitions.items()
    }
    count = max(h[0] for h in histories.values()) if processors is None else processors.count
    groups: list[dict[str, tuple[int, ...]]] = [{} for _ in range(count)]
    for topic, history in sorted(histories.items()):
        # With as many processors as there were partitions, every kind of growth gives the same.
        kind = fitting_kinds(history)[0] if processors is None else processors.kind
        for number in range(history[-1]):
            group = groups[processor_of(number, history, kind, history[0] if processors is None else count)]
            group[topic] = (*group.get(topic, ()), number)
    return tuple(groups)


def _depths(grouped: Iterable[GroupedPartitions]) -> dict[TopicPartition, int]:
    """Return the number of generations of ancestors that each partition has, at most; first ones are left
    out.
    """
    depth: dict[TopicPartition, int] = {}
    for entry in grouped:
        for topic, growth in entry.grown.items():
            for number in range(growth.history[0], growth.history[-1]):
                older = ancestors(number, growth.history, growth.kinds)
                above = max((depth.get(TopicPartition(topic, parent), 0) for parent in older), default=0)
                tp = TopicPartition(topic, number)
                depth[tp] = max(depth.get(tp, 0), above + 1)
    return depth
