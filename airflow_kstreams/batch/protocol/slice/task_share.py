"""Builds what a driver ships to a task: the task's share of the slice, and what all tasks have in common.

Neither grows with the number of tasks. So a task need not read the metadata topic, which does. A slice
is the same type everywhere: the one that a task knows holds its own partitions only.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from airflow_kstreams.batch.protocol.slice.metadata import Folded
from airflow_kstreams.batch.protocol.slice.slice import FrozenPartition, Slice
from airflow_kstreams.batch.protocol.slice.stops import (
    end_epochs_of,
    has_notified,
    slice_starts,
    stops_of,
    task_partitions,
)
from airflow_kstreams.streams.errors import UpstreamNotDoneError
from airflow_kstreams.streams.ports import TopicPartition


class Span(msgspec.Struct, frozen=True, array_like=True):
    """One partition of a share.

    :param source: place of its topic among the subtopology's source topics, counted from 0.
    :param partition: its number.
    :param start_offset: where the slice begins in it.
    :param stop_offset: where it ends, of an input as of an intermediate topic.
    :param end_epoch: as ``FrozenPartition`` has it.
    :param look_to: as ``RunPlan.blocked`` has it of a blocked partition; -1 of any other.
    """

    source: int
    partition: int
    start_offset: int
    stop_offset: int
    end_epoch: int = -1
    look_to: int = -1


class TaskShare(msgspec.Struct, frozen=True, array_like=True):
    """One task's share of a slice, as its driver saw it when it launched the task.

    :param subtopology: of the task.
    :param group: its partition group.
    :param spans: its partitions; none for a task of a continuous run, which reads without end.
    :param notify: whether its done notification is missing.
    :param tables: topics of the global tables whose records without key it counts.
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
    epochs = end_epochs_of(folded, slice_)
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
    """Return which groups of a subtopology count the records without key of which global tables.

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
    """Return what all tasks of a slice have in common: all but what there is for each partition, task or
    person.
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
    """Return the leader epoch at each log's end when its stop was frozen, of those of which it is known."""
    found = {tp: span.end_epoch for tp, span in _partitions(common, share).items()}
    return {tp: epoch for tp, epoch in found.items() if epoch >= 0}


def looked_at(common: Slice, share: TaskShare) -> dict[TopicPartition, tuple[int, int]]:
    """Return (start offset, end of what may be looked at) of each blocked partition of a share."""
    return {
        tp: (span.start_offset, span.look_to)
        for tp, span in _partitions(common, share).items()
        if span.look_to >= 0
    }


def _partitions(common: Slice, share: TaskShare) -> dict[TopicPartition, Span]:
    sources = common.plan.topology.subtopology(share.subtopology).sources
    return {TopicPartition(sources[span.source], span.partition): span for span in share.spans}
