"""Says whether a subtopology can have more processors, and what that needs, to begin and to the command."""

from __future__ import annotations

from airflow_kstreams.batch.growing.grown_groups import with_processors
from airflow_kstreams.batch.ledger.facts import GroupedPartitions
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.naming.topic_names import RETRY_ENDING, ProtocolTopics
from airflow_kstreams.streams.partitioning.partition_groups import partitions_in
from airflow_kstreams.streams.partitioning.processors import Processors, common_processors
from airflow_kstreams.streams.plan import SubtopologyPlan, TopologyPlan
from airflow_kstreams.streams.ports import AdminPort, TopicPartition


def expanded(plan: TopologyPlan, sub: SubtopologyPlan, entry: GroupedPartitions, count: int) -> Processors:
    """Return the processors of a subtopology that is to have so many.

    :param entry: its groups, with the kinds of growth that its topics' keys leave.
    :raises TopologyError: it cannot have so many; with the way out.
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
            fix="leave the number of processors to the grouper",
        )
    if count <= now:
        raise TopologyError(
            f"{what} has {now} processors: {count} are no more, and it never has fewer than it had",
            fix=f"give a number from {now + 1} on",
        )
    small = {topic: number for topic, number in sorted(entry.partitions.items()) if number < count}
    if small:
        listed = ", ".join(f"{topic} has {number}" for topic, number in small.items())
        raise TopologyError(
            f"{what} cannot have {count} processors: each reads a partition of its own of every topic, and "
            f"{listed}",
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
            f"{what} cannot have {count} processors yet: which keys move depends on how its topics grow, and "
            f"that is not the same for all of them, or no key that was read has told it ({grown})",
            fix="let runs read records of the new partitions; or grow topics that are read together alike",
        )
    return found


def refuse_unfit(plan: TopologyPlan, sub: SubtopologyPlan) -> None:
    """Refuse stores whose entries cannot follow their keys.

    :raises TopologyError: there is one; it is named, with the reason.
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
