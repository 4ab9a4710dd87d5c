"""Counts and groups the partitions of a topology under test, and writes its topics in memory in transactions,
as a task does: all of a commit or nothing of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches

from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.partitioning.linear_hashing import partition_of_key
from airflow_kstreams.streams.partitioning.partition_groups import Groups
from airflow_kstreams.streams.partitioning.topic_growth import partition_counts
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import Headers, TopicPartition
from airflow_kstreams.streams.topology.topology import Topology
from airflow_kstreams.testing.in_memory_kafka.log import Content, LogRecord


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


class InMemoryTopics:
    """Gives records their partition and offset, but does not keep them.

    :param partitions: partition count of every topic of the topology, real names; other topics have one.
    """

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self.partitions = dict(partitions)
        self._ends = {
            TopicPartition(topic, partition): 0
            for topic, count in partitions.items()
            for partition in range(count)
        }
        self._keyless = dict.fromkeys(partitions, 0)
        self._open: list[tuple[TopicPartition, Content]] = []

    def append(self, at: TopicPartition, content: Content) -> LogRecord:
        """Write a record at the end of its partition, in no transaction, and return it."""
        offset = self._ends.get(at, 0)
        self._ends[at] = offset + 1
        return LogRecord(at, offset, content, epoch=None)

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        timestamp_ms: int,
        headers: Headers | None,
    ) -> None:
        """Write a record in the open transaction, see ``WriterPort``."""
        if partition < 0:
            partition = self.partition_for(topic, key)
        self._open.append((TopicPartition(topic, partition), (key, value, timestamp_ms, headers)))

    def partition_for(self, topic: str, key: bytes | None) -> int:
        """Return the partition of a serialized key, by Java's default partitioner; records without key are
        spread in turn.
        """
        count = self.partitions.get(topic, 1)
        if key is not None:
            return partition_of_key(key, count, count)
        turn = self._keyless.get(topic, 0)
        self._keyless[topic] = turn + 1
        return turn % count

    def commit(self) -> list[LogRecord]:
        """Commit, and return the records of the transaction in the order they were written, with offsets."""
        written, self._open = self._open, []
        return [self.append(at, content) for at, content in written]
