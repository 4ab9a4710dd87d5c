"""Freezes the stops of the readers of intermediate topics (KIP-95, "Handling Intermediate Topics"), and gives
each task its share of the slice.

An intermediate topic has no stop when a run begins. Rule, in this order:

1. Each task of a subtopology that writes one notifies in its last transaction: all that it writes for this
   slice is in the log.
2. When all tasks that write a topic have notified, the coordinator takes the high watermark of each of its
   partitions and freezes it as that partition's stop, all in one transaction.
3. Only then the reading subtopology is launched.

Invariant: all that was written for the slice lies below the stops, and stops that are frozen for a run never
move. A notification becomes visible together with the outputs of its transaction, and the broker has
acknowledged those before (acks=all), which it does once the high watermark has passed them; it never answers
with an older one (KIP-207). So a high watermark asked for after all notifications were seen lies at or past
everything. It also covers what earlier attempts committed, and what other programs wrote: that is processed,
too.

Crash argument: a coordinator that dies before that transaction leaves no stop, and the next one asks for high
watermarks anew, which no reader has used yet. After it, the next coordinator finds the stops.

KIP-95 itself has each task report the high watermark once per input partition and intermediate partition;
the largest report is the stop, once every input partition has reported.

A driver ships to a task its share of the slice, and what all tasks have in common. Neither grows with the
number of tasks, so a task need not read the metadata topic, which does. A slice is the same type everywhere:
the one that a task knows holds its own partitions only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.protocol.offsets.parked import owes_last_commit
from airflow_kstreams.batch.protocol.slice.metadata import Folded
from airflow_kstreams.batch.protocol.slice.slice import FrozenPartition, Slice, partition_named
from airflow_kstreams.streams.errors import UpstreamNotDoneError
from airflow_kstreams.streams.partitioning.partition_groups import first_few, partitions_in
from airflow_kstreams.streams.ports import ReaderPort, TopicPartition


def partitions_of(slice_: Slice, topics: Iterable[str] | None = None) -> list[TopicPartition]:
    """Return every partition of source topics, as frozen by begin.

    :param topics: names of the topics; all that the tasks read unless given.
    """
    topics = slice_.plan.topology.sources if topics is None else topics
    return [
        TopicPartition(topic, number) for topic in topics for number in range(slice_.plan.partitions[topic])
    ]


def slice_starts(slice_: Slice) -> dict[TopicPartition, int]:
    """Return the offset at which the slice starts in every source partition, as begin committed it."""
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


def has_notified(folded: Folded, slice_: Slice, subtopology_id: int, group: int) -> bool:
    """Whether a task has written its done notification, or need not write one."""
    writes = slice_.plan.topology.intermediates_of(subtopology_id)
    return not writes or (subtopology_id, group) in folded.done


def missing_notifications(folded: Folded, slice_: Slice, topic: str) -> list[str]:
    """Return the tasks that write an intermediate topic and have not notified, ``<subtopology>_<group>``."""
    return [
        f"{writer.id}_{group}"
        for writer in slice_.plan.topology.writers_of(topic)
        for group in range(slice_.plan.tasks[str(writer.id)])
        if not has_notified(folded, slice_, writer.id, group)
    ]


def refuse_unnotified(folded: Folded, slice_: Slice, topics: Collection[str]) -> None:
    """Refuse to go on to the readers of intermediate topics before all tasks that write them are done.

    :raises UpstreamNotDoneError: the first missing notifications are named.
    """
    for topic in topics:
        missing = missing_notifications(folded, slice_, topic)
        if missing:
            raise UpstreamNotDoneError(
                f"run {slice_.run_id!r} is not finished: intermediate topic {topic} has no stop offset yet, "
                f"there is no done notification of task {first_few(missing)}",
                fix="run the subtopology that writes it again; tasks at their stop only notify",
                run_id=slice_.run_id,
            )


def intermediate_stops(folded: Folded, slice_: Slice, topic: str) -> dict[int, int] | None:
    """Return the stop offset of each partition of an intermediate topic; None if they are not frozen."""
    partitions, frozen = partitions_of(slice_, [topic]), folded.intermediate_stops
    return {tp.partition: frozen[tp] for tp in partitions} if all(tp in frozen for tp in partitions) else None


def to_freeze(folded: Folded, slice_: Slice, subtopology_id: int) -> list[TopicPartition]:
    """Return the partitions that a subtopology reads and that need a stop offset yet.

    :raises UpstreamNotDoneError: it is too early to freeze one.
    """
    topology = slice_.plan.topology
    between = set(topology.intermediates)
    open_ = [
        topic
        for topic in topology.subtopology(subtopology_id).sources
        if topic in between and intermediate_stops(folded, slice_, topic) is None
    ]
    refuse_unnotified(folded, slice_, open_)
    return [tp for tp in partitions_of(slice_, open_) if tp not in folded.intermediate_stops]


def frozen_at(
    slice_: Slice, ends: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]
) -> list[FrozenPartition]:
    """Return the stops of intermediate partitions.

    :param ends: high watermark of each partition, asked for after all notifications were seen.
    :param epochs: leader epoch at the end of each log, asked for after that.
    """
    starts, blocked = slice_starts(slice_), slice_.plan.blocked
    return [
        FrozenPartition(
            topic=tp.topic,
            partition=tp.partition,
            start_offset=starts.get(tp, 0),
            stop_offset=starts.get(tp, 0) if str(tp) in blocked else end,
            end_epoch=epochs.get(tp, -1),
        )
        for tp, end in sorted(ends.items())
    ]


def stops_of(folded: Folded, slice_: Slice, topics: Collection[str]) -> dict[TopicPartition, int]:
    """Return the stop offset of every partition of some source topics, inputs and intermediates.

    :raises UpstreamNotDoneError: an intermediate topic among them has none yet.
    """
    stops = {part.topic_partition: part.stop_offset for part in slice_.inputs if part.topic in topics}
    for topic in slice_.plan.topology.intermediates:
        if topic in topics:
            found = intermediate_stops(folded, slice_, topic)
            if found is None:
                refuse_unnotified(folded, slice_, [topic])
                raise _not_frozen(slice_, topic)
            stops |= {TopicPartition(topic, number): stop for number, stop in found.items()}
    return stops


def all_stops(folded: Folded, slice_: Slice) -> dict[TopicPartition, int]:
    """Return the stop offset of every source partition, inputs and intermediates.

    :raises UpstreamNotDoneError: an intermediate topic has none yet.
    """
    return stops_of(folded, slice_, slice_.plan.topology.sources)


def unfinished_groups(slice_: Slice, subtopology_id: int, *, folded: Folded, reader: ReaderPort) -> list[int]:
    """Return the groups of a subtopology whose tasks are not at their stop, have not notified, or owe their
    last commit.

    :param reader: reader of the application's group.
    :raises UpstreamNotDoneError: a subtopology before this one is not done.
    """
    groups = range(slice_.plan.tasks[str(subtopology_id)])
    if to_freeze(folded, slice_, subtopology_id):
        return list(groups)  # no task has been launched before its stops were frozen
    sub = slice_.plan.topology.subtopology(subtopology_id)
    stops = stops_of(folded, slice_, sub.sources)
    partitions = {group: task_partitions(slice_, subtopology_id, group) for group in groups}
    committed = reader.committed([tp for group in groups for tp in partitions[group]])
    return [
        group
        for group in groups
        if not (
            all(tp in committed and committed[tp].offset >= stops[tp] for tp in partitions[group])
            and has_notified(folded, slice_, subtopology_id, group)
            and not owes_last_commit(
                slice_.run_id,
                [OffsetMetadata.decode(committed[tp].metadata) for tp in partitions[group]],
                sub,
                moment_ms=slice_.plan.moment_of(subtopology_id),
            )
        )
    ]


def _not_frozen(slice_: Slice, topic: str) -> UpstreamNotDoneError:
    return UpstreamNotDoneError(
        f"run {slice_.run_id!r} is not finished: the tasks that write intermediate topic {topic} are done, "
        "but no stop offset is frozen for it yet",
        fix="run the subtopology that reads it",
        run_id=slice_.run_id,
    )


class Span(msgspec.Struct, frozen=True, array_like=True):
    """One partition of a share.

    :param source: place of the partition's topic among the subtopology's source topics, counted from 0.
    :param partition: number of the partition.
    :param start_offset: offset at which the slice begins in the partition.
    :param stop_offset: offset at which the slice ends in it, for inputs as for intermediate topics.
    :param end_epoch: leader epoch at the log's end when the stop was frozen, see ``FrozenPartition``.
    :param look_to: end of the offsets that may be looked at in a blocked partition, see ``RunPlan.blocked``;
        -1 for any other.
    """

    source: int
    partition: int
    start_offset: int
    stop_offset: int
    end_epoch: int = -1
    look_to: int = -1


class TaskShare(msgspec.Struct, frozen=True, array_like=True):
    """One task's share of a slice, as its driver saw it when it launched the task.

    :param subtopology: id of the task's subtopology.
    :param group: partition group of the task.
    :param spans: the partitions of the task, with their offsets; none for a task of a continuous run, which
        reads without end.
    :param notify: whether its done notification is missing.
    :param tables: topics of the global tables whose records without key the task counts.
    """

    subtopology: int
    group: int
    spans: tuple[Span, ...] = ()
    notify: bool = False
    tables: tuple[str, ...] = ()


def shares_of(
    slice_: Slice,
    subtopology_id: int,
    groups: Iterable[int],
    *,
    folded: Folded,
) -> list[TaskShare]:
    """Return the shares of some tasks of a subtopology.

    :raises UpstreamNotDoneError: an intermediate topic that it reads has no stops yet.
    """
    sources = slice_.plan.topology.subtopology(subtopology_id).sources
    stops, starts = stops_of(folded, slice_, sources), slice_starts(slice_)
    # Leader epoch at the end of each log when its stop was frozen, -1 when not known.
    epochs = {part.topic_partition: part.end_epoch for part in slice_.inputs} | dict(
        folded.intermediate_epochs
    )
    number = {topic: at for at, topic in enumerate(sources)}
    counted = _counted_tables(slice_, subtopology_id, folded=folded)
    return [
        TaskShare(
            subtopology_id,
            group,
            tuple(
                Span(
                    number[tp.topic],
                    tp.partition,
                    starts.get(tp, 0),
                    stops[tp],
                    epochs.get(tp, -1),
                    slice_.plan.blocked.get(str(tp), -1),
                )
                for tp in sorted(task_partitions(slice_, subtopology_id, group))
            ),
            not has_notified(folded, slice_, subtopology_id, group),
            counted.get(group, ()),
        )
        for group in groups
    ]


def _counted_tables(slice_: Slice, subtopology_id: int, *, folded: Folded) -> dict[int, tuple[str, ...]]:
    """Return by group of a subtopology the global tables whose records without key its task counts.

    One task of a run counts them, however often tasks are launched: the first with records to read in the
    first subtopology that has such tasks among those that use the table. A task whose stops are not known yet
    counts as one with records: if it turns out to have none, no task counts them. If no task has records, the
    first group of the first subtopology does.
    """
    users = slice_.plan.topology.subtopologies
    counted: dict[int, list[str]] = {}
    for topic in slice_.plan.topology.subtopology(subtopology_id).globals:
        busy = {sub.id: _with_records(slice_, sub.id, folded=folded) for sub in users if topic in sub.globals}
        first = next((sub for sub, groups in busy.items() if groups is None or groups), min(busy))
        groups = busy[subtopology_id]
        if first == subtopology_id and groups is not None:
            counted.setdefault(groups[0] if groups else 0, []).append(topic)
    return {group: tuple(topics) for group, topics in counted.items()}


def _with_records(slice_: Slice, subtopology_id: int, *, folded: Folded) -> list[int] | None:
    """Return the groups of a subtopology that have records to read; None if that is not known yet."""
    try:
        stops = stops_of(folded, slice_, slice_.plan.topology.subtopology(subtopology_id).sources)
    except UpstreamNotDoneError:
        return None
    starts = slice_starts(slice_)
    return [
        group
        for group in range(slice_.plan.tasks[str(subtopology_id)])
        if any(stops[tp] > starts.get(tp, 0) for tp in task_partitions(slice_, subtopology_id, group))
    ]


def without_partitions(slice_: Slice) -> Slice:
    """Return the part of a slice that is common to all tasks: without the fields that grow with partitions or
    tasks, and without the warnings.
    """
    plan = msgspec.structs.replace(slice_.plan, groups={}, intermediate_starts={}, warnings=(), blocked={})
    return msgspec.structs.replace(slice_, plan=plan, inputs=())


def slice_of(common: Slice, share: TaskShare) -> Slice:
    """Return the slice as one task knows it: with its own partitions."""
    read = set(common.plan.topology.inputs)
    inputs: list[FrozenPartition] = []
    begun: dict[str, int] = {}
    for tp, span in _partitions(common, share).items():
        if tp.topic in read:
            inputs.append(
                FrozenPartition(
                    topic=tp.topic,
                    partition=tp.partition,
                    start_offset=span.start_offset,
                    stop_offset=span.stop_offset,
                    end_epoch=span.end_epoch,
                )
            )
        else:
            begun[str(tp)] = span.start_offset
    plan = msgspec.structs.replace(common.plan, intermediate_starts=begun)
    return msgspec.structs.replace(common, plan=plan, inputs=tuple(inputs))


def spans_of(common: Slice, share: TaskShare) -> dict[TopicPartition, tuple[int, int]]:
    """Return (start offset, stop offset) of each partition of a share."""
    return {tp: (span.start_offset, span.stop_offset) for tp, span in _partitions(common, share).items()}


def end_epochs(common: Slice, share: TaskShare) -> dict[TopicPartition, int]:
    """Return the leader epoch at each log's end when its stop was frozen, where it is known."""
    found = {tp: span.end_epoch for tp, span in _partitions(common, share).items()}
    return {tp: epoch for tp, epoch in found.items() if epoch >= 0}


def looked_at(common: Slice, share: TaskShare) -> dict[TopicPartition, tuple[int, int]]:
    """Return (start offset, end of the offsets that may be looked at) of each blocked partition of
    a share.
    """
    return {
        tp: (span.start_offset, span.look_to)
        for tp, span in _partitions(common, share).items()
        if span.look_to >= 0
    }


def _partitions(common: Slice, share: TaskShare) -> dict[TopicPartition, Span]:
    sources = common.plan.topology.subtopology(share.subtopology).sources
    return {TopicPartition(sources[span.source], span.partition): span for span in share.spans}
