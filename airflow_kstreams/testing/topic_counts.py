"""Counts the partitions of each topic of a topology under test, and groups them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches

from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.partitioning.partition_counts import partition_counts
from airflow_kstreams.streams.partitioning.partition_groups import Groups
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.topology.topology import Topology


def topic_counts(
    topology: Topology, plan: TopologyPlan, given: Mapping[str, int]
) -> tuple[dict[str, int], dict[int, Groups]]:
    """Return the partition count of every topic, and the partition groups per subtopology id.

    A topic has one partition unless given more; a repartition topic has as many as a run would give it.

    :param given: partition counts that the user chose; real names.
    :raises ConfigError: the topology has no such topic, or a count is no positive number.
    :raises TopologyError: co-partitioned topics have unequal counts, or the partition groups are not valid.
    """
    chosen = {*plan.sources, *plan.outputs, *plan.globals}
    for topic, count in given.items():
        if topic in plan.changelogs:
            raise ConfigError(
                f"partitions= names the changelog {topic!r}, which has a partition per task",
                fix="give the number of partitions of the source topics instead",
            )
        if topic not in chosen:
            raise ConfigError(
                f"partitions= names {topic!r}, which is no topic of the topology{hint(topic, chosen)}",
                fix=f"name topics of the topology: {', '.join(sorted(chosen))}",
            )
        if not isinstance(count, int) or count < 1:
            raise ConfigError(
                f"partitions= gives topic {topic!r} {count!r} partitions", fix="give a whole number from 1 on"
            )
    found = {topic: 1 for topic in chosen if topic not in plan.repartition_topics} | dict(given)
    counts = found | partition_counts(plan, found)
    groups = topology.partition_groups(plan.application_id, counts)
    return counts | {topic: len(groups[sub]) for topic, sub in plan.changelogs.items()}, groups


def hint(name: str, known: Collection[str]) -> str:
    """Return a hint at the known name nearest to a misspelt one, empty if none is near."""
    close = get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
