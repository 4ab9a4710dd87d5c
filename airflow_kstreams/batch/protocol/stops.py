"""Where the readers of intermediate topics stop (KIP-95, "Handling Intermediate Topics").

An intermediate topic has no stop when a run begins. Each task that writes it reports, in its last
transaction, one done notification per input partition and intermediate partition. Once every input partition
of every writing subtopology has reported for an intermediate partition, the largest reported offset is its
stop: all that was written for this slice lies below it.
"""

from __future__ import annotations

from collections.abc import Collection

from airflow_kstreams.batch.protocol.metadata import Folded
from airflow_kstreams.batch.protocol.model import Slice, partition_named
from airflow_kstreams.streams.errors import UpstreamNotDoneError
from airflow_kstreams.streams.partitioning.partition_groups import partitions_in
from airflow_kstreams.streams.ports import ReaderPort, TopicPartition

_NAMED = 5

#: An input partition and an intermediate partition that its task writes.
Notification = tuple[TopicPartition, TopicPartition]


def partitions_of(slice_: Slice, topic: str) -> list[TopicPartition]:
    """Return every partition of a source topic, as frozen by begin."""
    return [TopicPartition(topic, number) for number in range(slice_.plan.partitions[topic])]


def slice_starts(slice_: Slice) -> dict[TopicPartition, int]:
    """Return where the slice starts in every source partition, as begin committed it."""
    starts = {part.topic_partition: part.start_offset for part in slice_.inputs}
    return starts | {partition_named(name): at for name, at in slice_.plan.intermediate_starts.items()}


def task_partitions(slice_: Slice, subtopology_id: int, group: int) -> list[TopicPartition]:
    """Return the source partitions of a task: those of its group, sorted."""
    groups = slice_.plan.groups.get(str(subtopology_id))
    if groups is not None:
        return partitions_in(groups[group])
    return [
        TopicPartition(topic, group)
        for topic in slice_.plan.topology.subtopology(subtopology_id).sources
        if group < slice_.plan.partitions[topic]
    ]


def notifications_for(slice_: Slice, subtopology_id: int, group: int) -> list[Notification]:
    """Return what a task notifies with its last commit."""
    topology = slice_.plan.topology
    read = set(topology.intermediates)
    written = [topic for topic in topology.subtopology(subtopology_id).sinks if topic in read]
    return [
        (source, intermediate)
        for source in task_partitions(slice_, subtopology_id, group)
        for topic in written
        for intermediate in partitions_of(slice_, topic)
    ]


def intermediate_stops(folded: Folded, slice_: Slice, topic: str) -> dict[int, int]:
    """Return the stop offset of each partition of an intermediate topic.

    :raises UpstreamNotDoneError: an upstream task has not reported yet; the first missing reports are named.
    """
    stops: dict[int, int] = {}
    missing: list[str] = []
    sources = [
        source
        for writer in slice_.plan.topology.writers_of(topic)
        for source_topic in writer.sources
        for source in partitions_of(slice_, source_topic)
    ]
    for partition in partitions_of(slice_, topic):
        for source in sources:
            offset = folded.notifications.get((source, partition))
            if offset is None:
                missing.append(f"{source} for {partition}")
            else:
                stops[partition.partition] = max(stops.get(partition.partition, 0), offset)
    if missing:
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        raise UpstreamNotDoneError(
            f"intermediate topic {topic} of run {slice_.run_id!r} has no stop offset yet: no done "
            f"notification of {', '.join(missing[:_NAMED])}{more}",
            fix="run the subtopology that writes it again; tasks at their stop only notify",
            run_id=slice_.run_id,
        )
    return stops


def stops_of(folded: Folded, slice_: Slice, topics: Collection[str]) -> dict[TopicPartition, int]:
    """Return the stop offset of every partition of some source topics, inputs and intermediates.

    :raises UpstreamNotDoneError: an intermediate topic among them has none yet.
    """
    stops = {part.topic_partition: part.stop_offset for part in slice_.inputs if part.topic in topics}
    for topic in slice_.plan.topology.intermediates:
        if topic in topics:
            found = intermediate_stops(folded, slice_, topic)
            stops |= {TopicPartition(topic, number): stop for number, stop in found.items()}
    return stops


def all_stops(folded: Folded, slice_: Slice) -> dict[TopicPartition, int]:
    """Return the stop offset of every source partition, inputs and intermediates.

    :raises UpstreamNotDoneError: an intermediate topic has none yet.
    """
    return stops_of(folded, slice_, slice_.plan.topology.sources)


def unfinished_groups(slice_: Slice, subtopology_id: int, *, folded: Folded, reader: ReaderPort) -> list[int]:
    """Return the groups of a subtopology whose tasks are not at their stop, or have not notified.

    :param reader: of the application's group.
    :raises UpstreamNotDoneError: a subtopology before this one is not done.
    """
    stops = stops_of(folded, slice_, slice_.plan.topology.subtopology(subtopology_id).sources)
    groups = range(slice_.plan.tasks[str(subtopology_id)])
    partitions = {group: task_partitions(slice_, subtopology_id, group) for group in groups}
    committed = reader.committed([tp for group in groups for tp in partitions[group]])
    return [
        group
        for group in groups
        if not (
            all(tp in committed and committed[tp].offset >= stops[tp] for tp in partitions[group])
            and all(pair in folded.notifications for pair in notifications_for(slice_, subtopology_id, group))
        )
    ]
