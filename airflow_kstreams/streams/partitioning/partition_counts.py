"""Counts the partitions of each source topic of an application, and checks that joined topics fit each other.

Rule: an existing topic keeps its count. A repartition topic that is yet to be created takes the count given
for it, else that of the topics it is joined with, else that of the largest source of the subtopology that
writes it.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.naming.commands import start_over_command
from airflow_kstreams.streams.plan import SubtopologyPlan, TopologyPlan


def partition_counts(
    plan: TopologyPlan, found: Mapping[str, int], *, first: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Return the partition count of every source topic, also of repartition topics that are yet to be
    created.

    :param plan: the application's; topics by their real names.
    :param found: partition count of every topic that exists, among them every source that is no repartition
        topic.
    :param first: partition count with which a topic began, where it is known; else the topic began with
        today's.
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
