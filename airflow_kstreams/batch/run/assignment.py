"""Puts each partition into a partition group, and checks that the groups fit the state that earlier runs left
(KIP-28, "Partition Distribution").

Rule: a group's state lies in the changelog partition of the group's number. So while a changelog is the one
that was recorded, (a) partitions stay in their groups and (b) new partitions join existing groups, whose
number is the changelog's partition count. A subtopology without changelogs leaves nothing in a group from one
run to the next: its partitions may be grouped anew by every run. What is recorded of topics that are not read
any more binds no run.

Invariant: a changelog that may hold state has its groups in the ledger. Begin writes them in the transaction
of the completed marker, and only when the slice has records; no task starts before that marker is visible.
They bind to the changelog's topic id, so that resetting an application, which deletes its changelogs, also
ends what its record asks for. They are kept when the topology drops a store: what it left does not fit any
more once records were processed without it, so that a store that comes back must begin empty. The counts of
source topics bind to the topics' own ids, and outlive all state.

Crash argument: before begin's commit nothing is recorded and no task has run; at most empty internal topics
were created. After it, slice and record are both there. An unfinished slice carries its own groups: the
coordinator that resumes it takes those, and asks no grouper.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from airflow_kstreams.batch.growing.grown_groups import Bound, grown_groups
from airflow_kstreams.batch.ledger.facts import Assignment, GroupedPartitions
from airflow_kstreams.batch.run.state_left import give_up
from airflow_kstreams.streams.errors import ConfigError, TopologyError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.partitioning.partition_groups import (
    Groups,
    equal_ids,
    group_of_partition,
    named,
)
from airflow_kstreams.streams.partitioning.topic_growth import GrownTopic, keys_stay
from airflow_kstreams.streams.plan import GivenWindows, MadeOf, SubtopologyPlan, TopologyPlan
from airflow_kstreams.streams.ports import TopicDescription, TopicPartition
from airflow_kstreams.streams.printable import package_log

log = package_log(__name__)

#: Asks the topology, wherever it was built, for the groups of every subtopology: partition count per source
#: topic -> groups by subtopology id. See ``Topology.partition_groups``.
AskGroups = Callable[[Mapping[str, int]], Mapping[int, Groups]]


def group_sources(
    plan: TopologyPlan,
    counts: Mapping[str, int],
    ask: AskGroups | None,
    *,
    known: Mapping[str, GrownTopic],
    bound: Bound,
    read: Collection[str] = (),
) -> dict[int, GroupedPartitions]:
    """Group the source partitions of every subtopology.

    :param counts: partition count of every source topic.
    :param ask: calls the partition grouper of the user; needed only when the plan has one.
    :param known: topic -> its earlier partition counts, where they are known.
    :param bound: groups that existing state depends on.
    :param read: the topics that runs have read; all of the plan's unless given.
    :return: subtopology id -> its groups, with changelogs not filled in yet.
    :raises ConfigError: the plan's groups cannot be asked for.
    :raises TopologyError: the user's grouper fails.
    """
    if not plan.partition_grouper:
        return {sub.id: grown_groups(plan, sub, counts, known, bound, read) for sub in plan.subtopologies}
    if ask is None:
        raise ConfigError(
            f"application {plan.application_id!r} has the partition grouper {plan.partition_grouper!r}, "
            "and begin was called without a way to ask it",
            fix="pass groups=partial(topology.partition_groups, application_id) to begin",
        )
    asked = ask({topic: counts[topic] for topic in plan.sources})
    found: dict[int, GroupedPartitions] = {}
    for sub in plan.subtopologies:
        partitions = {topic: counts[topic] for topic in sub.sources}
        groups = asked[sub.id]
        found[sub.id] = GroupedPartitions(
            partitions=partitions, groups=() if groups == equal_ids(partitions) else groups
        )
    return found


def with_changelogs(
    plan: TopologyPlan, grouped: Mapping[int, GroupedPartitions], found: Mapping[str, TopicDescription]
) -> dict[int, GroupedPartitions]:
    """Fill in the topic ids of the changelogs that exist."""
    return {
        sub.id: msgspec.structs.replace(
            grouped[sub.id],
            changelogs={
                topic: found[topic].topic_id for topic in sorted(sub.changelogs.values()) if topic in found
            },
            state_kinds=dict(sorted(sub.state_kinds.items())),
            given_windows=dict(sorted(sub.given_windows.items())),
            store_serdes=dict(sorted(sub.store_serdes.items())),
            made_of=dict(sorted(sub.made_of.items())),
        )
        for sub in plan.subtopologies
    }


def refuse_regrouping(
    recorded: Assignment,
    plan: TopologyPlan,
    grouped: Mapping[int, GroupedPartitions],
    *,
    keys_may_move: bool,
) -> None:
    """Compare the groups of a new slice, and the meaning of its stores' entries, with the state that exists.

    :param grouped: subtopology id -> its groups, with the changelogs that exist.
    :param keys_may_move: whether growth that moves keys leads to a warning instead of an error.
    :raises TopologyError: a partition or the keys of a grown topic moved, a partition would open a new group,
        or a store is of another kind or has other serdes; the text gives the way out.
    """
    for sub in plan.subtopologies:
        now = grouped[sub.id]
        for before in recorded.entries:
            if before.changelogs.items() & now.changelogs.items():
                _refuse_other_state(recorded, plan, before, now)
                _refuse_untold(recorded, plan, sub, before, now)
                _refuse_moved(recorded, plan, sub, before, now)
                _refuse_other_number(recorded, plan, sub, before, now)
                if plan.partition_grouper:
                    _refuse_moved_keys(recorded, plan, sub, before, now, warn=keys_may_move)


def _refuse_other_state(
    recorded: Assignment, plan: TopologyPlan, before: GroupedPartitions, now: GroupedPartitions
) -> None:
    store_of = ProtocolTopics(plan.application_id).store_of
    for topic, _ in sorted(before.changelogs.items() & now.changelogs.items()):
        store = store_of(topic)
        for old, new, made, read in (
            (before.state_kinds.get(topic), now.state_kinds.get(topic), "made by", "as"),
            (before.store_serdes.get(topic), now.store_serdes.get(topic), "written by the serdes", "by"),
            (before.made_of.get(store), now.made_of.get(store), "made as", "as"),
            (before.given_windows.get(topic), now.given_windows.get(topic), "made for", "for"),
        ):
            if isinstance(old, GivenWindows) and isinstance(new, GivenWindows) and old.goes_on_as(new):
                continue
            if isinstance(old, MadeOf) and isinstance(new, MadeOf) and new.goes_on_with(old):
                continue
            if old is not None and new is not None and old != new:
                raise TopologyError(
                    f"application {plan.application_id!r} has state in {topic} that was {made} {old}, and "
                    f"its topology would read it {read} {new}",
                    fix="go back to what made it, or give the state up: " + give_up(recorded, plan, topic),
                )


def _refuse_untold(
    recorded: Assignment,
    plan: TopologyPlan,
    sub: SubtopologyPlan,
    before: GroupedPartitions,
    now: GroupedPartitions,
) -> None:
    """Refuse state that some entries have moved away from, where these can no longer be told from
    the others.
    """
    for topic in before.moved_from:
        keys = sub.entry_keys.get(topic)
        same = before.changelogs.get(topic) == now.changelogs.get(topic, "")
        if same and keys is not None and keys.unfit:
            store = ProtocolTopics(plan.application_id).store_of(topic)
            raise TopologyError(
                f"store {store!r} of application {plan.application_id!r} has entries whose keys have moved "
                f"to added processors, and now {keys.unfit}: those could not be told from the others",
                fix="go back to what made it, or give the state up: " + give_up(recorded, plan, topic),
            )


def next_assignment(
    recorded: Assignment, grouped: Mapping[int, GroupedPartitions], *, run_id: str
) -> Assignment:
    """Return the assignment to record for a new slice: the recorded one, unless the groups differ.

    :param grouped: subtopology id -> its groups, with every changelog.
    """
    current = {str(sub): entry for sub, entry in grouped.items()}
    known = {changelog for entry in current.values() for changelog in entry.changelogs}
    former: list[GroupedPartitions] = []
    for before in recorded.entries:
        dropped = {topic: topic_id for topic, topic_id in before.changelogs.items() if topic not in known}
        if dropped:
            former.append(msgspec.structs.replace(before, changelogs=dropped))
    if (recorded.subtopologies, recorded.former) == (current, tuple(former)):
        return recorded
    return msgspec.structs.replace(
        recorded,
        version=recorded.version + 1,
        run_id=run_id,
        subtopologies=current,
        former=tuple(former),
    )


def _refuse_moved(
    recorded: Assignment,
    plan: TopologyPlan,
    sub: SubtopologyPlan,
    before: GroupedPartitions,
    now: GroupedPartitions,
) -> None:
    at = group_of_partition(now.by_group)
    moved = {
        partition: (group, at[partition])
        for partition, group in group_of_partition(before.by_group).items()
        if at.get(partition, group) != group
    }
    if not moved:
        return
    first = min(moved)
    was, would_be = moved[first]
    raise TopologyError(
        f"subtopology {sub.id} of application {plan.application_id!r} keeps state per partition group, and "
        f"{len(moved)} of its partitions would change their group and leave their state behind: "
        f"{named(moved)} ({first} from group {was} to group {would_be})",
        fix=f"group existing partitions as run {recorded.run_id!r} did, groups in the same order, or start "
        f"over with empty state: {plan.start_over_command(recorded.topics)}",
    )


def _refuse_other_number(
    recorded: Assignment,
    plan: TopologyPlan,
    sub: SubtopologyPlan,
    before: GroupedPartitions,
    now: GroupedPartitions,
) -> None:
    old, new = len(before.by_group), len(now.by_group)
    if old == new:
        return
    opening = {
        partition for partition, group in group_of_partition(now.by_group).items() if group >= old
    } or set(group_of_partition(now.by_group))
    if now.groups:
        join = f"let the partition grouper put new partitions into the {counted(old, 'existing group')}"
    else:
        join = (
            f"let new partitions join the existing groups, partition_grouper=FixedGroups({old}); a key keeps "
            f"its group, and its state, if the topic's partition count is a multiple of {old}"
        )
    raise TopologyError(
        f"subtopology {sub.id} of application {plan.application_id!r} keeps state in "
        f"{counted(old, 'partition group')}, but {named(opening)} would make it {new}: their number was "
        "fixed by its first run",
        fix=f"{join}; or {_through_repartition(recorded, plan)}",
    )


def _through_repartition(recorded: Assignment, plan: TopologyPlan) -> str:
    """Return the advice by which all records of a key, which lie in several groups, come to one task."""
    start_over = plan.start_over_command(recorded.topics)
    return f"read it through repartition(n), and start over with empty state: {start_over}"


def _refuse_moved_keys(
    recorded: Assignment,
    plan: TopologyPlan,
    sub: SubtopologyPlan,
    before: GroupedPartitions,
    now: GroupedPartitions,
    *,
    warn: bool,
) -> None:
    """Refuse growth that is legal by partitions, but parts keys from their state unless producers place them
    by hand.
    """
    was, at = group_of_partition(before.by_group), group_of_partition(now.by_group)
    for topic, count in now.partitions.items():
        old_count = before.partitions.get(topic, count)
        if old_count >= count:
            continue
        old = [was[TopicPartition(topic, number)] for number in range(old_count)]
        new = [at[TopicPartition(topic, number)] for number in range(count)]
        if keys_stay(old, new):
            continue
        cause = (
            f"topic {topic} grew from {old_count} to {counted(count, 'partition')}: under Kafka's default "
            f"partitioner keys move to other partition groups of subtopology {sub.id} and leave their state "
            "behind"
        )
        if not warn:
            raise TopologyError(
                cause,
                fix=f"let the topic grow on to a multiple of {counted(old_count, 'partition')} before "
                f"anything is written to the new ones; or {_through_repartition(recorded, plan)}; only if "
                "its producers place keys in another way, so that each stays in its group, set "
                "growth.moves.keys=warn",
            )
        log.warning("%s, unless producers place them in another way", cause)
