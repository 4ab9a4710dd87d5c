"""How many partitions each source topic of an application has, and whether topics that meet fit each other.

Rule: a topic that exists has the partitions it has. A repartition topic that is yet to be created takes the
count it was given, else that of what it is joined with, else that of the largest source of the subtopology
that writes it.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.plan import SubtopologyPlan, TopologyPlan
from airflow_kstreams.streams.reset_command import start_over_command


def partition_counts(plan: TopologyPlan, found: Mapping[str, int]) -> dict[str, int]:
    """Return the partition count of every source topic, also of repartition topics that are yet to be
    created.

    :param plan: of the application; topics by their real names.
    :param found: partition count of every topic that exists, among them every source that is no repartition
        topic.
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
                f"repartition topic {topic} has {counts[topic]} partitions, the topology asks for {fixed}",
                fix="ask for the old count again, or start over with empty state: "
                f"{start_over_command(plan.application_id, plan.inputs)}",
            )
    # Writers stand before readers, so each writer's own sources are known when it is reached.
    for sub in plan.subtopologies:
        _settle_copartitioned(sub, counts, open_counts)
        widest = max(counts[topic] for topic in sub.sources)
        for topic in open_counts.intersection(sub.sinks):
            counts[topic] = max(counts.get(topic, 0), widest)
    for sub in plan.subtopologies:
        _check_copartitioning(sub, counts)
    return counts


def _settle_copartitioned(sub: SubtopologyPlan, counts: dict[str, int], open_counts: set[str]) -> None:
    """Give repartition topics the partition count of what they are joined with."""
    for group in sub.copartitioned:
        free = open_counts.intersection(group)
        fixed = {counts[topic] for topic in group if topic not in free}
        wanted = fixed or {max(counts[topic] for topic in free)} if free else set()
        if len(wanted) == 1:
            counts.update(dict.fromkeys(free, next(iter(wanted))))


def _check_copartitioning(sub: SubtopologyPlan, counts: Mapping[str, int]) -> None:
    for group in sub.copartitioned:
        if len({counts[topic] for topic in group}) > 1:
            listed = " and ".join(f"{topic!r} has {counts[topic]}" for topic in group)
            raise TopologyError(
                f"subtopology {sub.id} joins topics that need equal partition counts, but {listed}",
                fix=(
                    "create the topics with equal partition counts, or give each stream the same number by "
                    "repartition(partitions)"
                ),
            )
