"""Checks right before a commit that it keeps what a run promises, whatever the engine has computed.

Rule: a check compares what is about to be committed with a fact that another part keeps: the records under
way, the stops that begin froze, the count that a store keeps, the end of a log as the broker tells it. When a
check fails it raises :class:`~airflow_kstreams.streams.errors.InvariantError`: the transaction is aborted, no
part of the engine tries again. ``docs/internals/invariants.md`` lists the checks.

Cost: a few comparisons for each partition, store and record under way, once per commit, and no request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airflow_kstreams.batch.protocol.slice.metadata import Folded
from airflow_kstreams.batch.protocol.slice.slice import Slice, partition_named
from airflow_kstreams.batch.protocol.slice.stops import all_stops, slice_starts
from airflow_kstreams.streams.errors import InvariantError
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.streams.records.record_queue import UNBOUNDED
from airflow_kstreams.streams.runtime.stream_task import StreamTask
from airflow_kstreams.streams.state.stores.state_store import LoggedChanges


class TaskInvariants:
    """Checks the commits of one attempt of a task.

    :param slice_: the slice that the task belongs to.
    :param bounds: partition -> (position to resume at, stop offset), as the driver shipped them.
    :param changelog_ends: changelog partition -> its end when the stores were restored.
    :raises InvariantError: the stops that the driver shipped are not those of the slice.
    """

    def __init__(
        self,
        slice_: Slice,
        bounds: Mapping[TopicPartition, tuple[int, int]],
        *,
        task_id: str,
        changelog_ends: Mapping[TopicPartition, int],
    ) -> None:
        self._where = f"task {task_id} of run {slice_.run_id!r}"
        self._bounds = bounds
        self._stops = {partition: stop for partition, (_, stop) in bounds.items()}
        self._bounded = all(stop != UNBOUNDED for stop in self._stops.values())
        self._committed = {partition: start for partition, (start, _) in bounds.items()}
        self._ends = changelog_ends
        #: Records written to each changelog partition since its end was read.
        self._logged: dict[TopicPartition, int] = {}
        self._frozen = {part.topic_partition: part.stop_offset for part in slice_.inputs}
        self._stops_are_frozen(self._stops)

    def check(
        self, task: StreamTask, offsets: Mapping[TopicPartition, CommittedOffset], *, last: bool
    ) -> None:
        """Check the offsets that are about to be committed.

        :param last: whether this is the commit by which the task is done.
        :raises InvariantError: an invariant of the offsets does not hold.
        """
        if self._bounded and (stops := task.group.stops()) != self._stops:
            self._stops_are_frozen(stops)
        for partition, (offset, _) in offsets.items():
            if partition not in self._bounds:
                raise self._broken("nothing is committed outside the slice", f"{partition} is no part of it")
            start, stop = self._bounds[partition]
            if not start <= offset <= max(start, stop):
                raise self._broken(
                    "nothing is committed outside the slice",
                    f"offset {offset} of {partition} does not lie in [{start}, {stop}]",
                )
            if offset < self._committed[partition]:
                raise self._broken(
                    "offsets do not go back within an attempt",
                    f"offset {offset} of {partition} would follow {self._committed[partition]}",
                )
            if last and offset < stop != UNBOUNDED:
                raise self._broken(
                    "the last commit stands at the stop offsets",
                    f"offset {offset} of {partition} lies before its stop {stop}",
                )
        for partition, behind in task.execution.unreleased():
            if partition in offsets and offsets[partition].offset >= behind:
                raise self._broken(
                    "the commit does not pass an unfinished call",
                    f"offset {offsets[partition].offset} of {partition} covers a record under way, which "
                    f"ends at {behind}",
                )

    def logged(self, changes: LoggedChanges, partition: TopicPartition, written: int) -> None:
        """Check that all changes of a store were written to its changelog.

        :param changes: the changes of the store, with the number that the store counted.
        :param written: number of records that were written.
        :raises InvariantError: the two numbers differ.
        """
        if not changes.least <= written <= changes.most:
            raise self._broken(
                "every change of a logged store has its changelog entry",
                f"the store of {partition} counted {changes.most} changes, and {written} were written",
            )
        if written:
            self._logged[partition] = written

    def delivered(self, ends: Mapping[TopicPartition, int]) -> None:
        """Check that the changelogs have grown by the records written to them. Transaction markers take
        offsets, too, so a log may have grown by more.

        :param ends: changelog partition -> its end now, before the transaction's marker.
        :raises InvariantError: a changelog is shorter.
        """
        for partition, written in self._logged.items():
            before, end = self._ends.get(partition), ends.get(partition)
            if before is None or end is None or end < before + written:
                raise self._broken(
                    "every change of a logged store has its changelog entry",
                    f"{written} changes were written to {partition} behind {before}, and it ends at {end}",
                )
        self._ends, self._logged = ends, {}

    def committed(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Remember the offsets that were committed."""
        for partition, (offset, _) in offsets.items():
            self._committed[partition] = offset

    def _stops_are_frozen(self, stops: Mapping[TopicPartition, int]) -> None:
        for partition, stop in stops.items():
            frozen = self._frozen.get(partition, self._stops[partition])
            if stop not in (frozen, UNBOUNDED) or stop != self._stops[partition]:
                raise self._broken(
                    "stop offsets are those frozen",
                    f"the task reads {partition} to {stop}, and {frozen} was frozen",
                )

    def _broken(self, invariant: str, found: str) -> InvariantError:
        return InvariantError(invariant, found, where=self._where)


def check_begin(slice_: Slice, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
    """Check the offsets that a begin is about to commit: the start of each partition of the slice, or its
    stop if the slice is empty.

    :raises InvariantError: another offset would be committed.
    """
    where = f"begin of run {slice_.run_id!r}"
    starts = {partition_named(name): at for name, at in slice_.plan.intermediate_starts.items()}
    for part in slice_.inputs:
        if not 0 <= part.start_offset <= part.stop_offset:
            raise InvariantError(
                "a slice does not stop before it starts",
                f"{part.topic_partition} is frozen as [{part.start_offset}, {part.stop_offset})",
                where=where,
            )
        starts[part.topic_partition] = part.stop_offset if slice_.plan.empty else part.start_offset
    _same_partitions(starts, offsets, where)
    for partition, start in starts.items():
        if offsets[partition].offset != start:
            raise InvariantError(
                "a slice starts where begin commits",
                f"{partition} starts at {start}, and {offsets[partition].offset} would be committed",
                where=where,
            )


def check_finish(slice_: Slice, folded: Folded, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
    """Check the offsets that a finish is about to commit: the stop of each partition of the slice.

    An operator may have set an offset behind the stop, and an intermediate topic ends behind markers. An
    empty run read no intermediate topic, so that its offset stays where another program has set it.

    :param folded: the content of the metadata topic, with the frozen stops of intermediate topics.
    :raises InvariantError: another offset would be committed.
    """
    where = f"finish of run {slice_.run_id!r}"
    inputs = {part.topic_partition: part.stop_offset for part in slice_.inputs}
    frozen = {**slice_starts(slice_), **inputs} if slice_.plan.empty else all_stops(folded, slice_)
    _same_partitions(frozen, offsets, where)
    for partition, stop in (inputs if slice_.plan.empty else frozen).items():
        if offsets[partition].offset < stop:
            raise InvariantError(
                "a finished run stands at the stop offsets that were frozen",
                f"{partition} stops at {stop}, and {offsets[partition].offset} would be committed",
                where=where,
            )


def _same_partitions(
    expected: Iterable[TopicPartition], offsets: Mapping[TopicPartition, CommittedOffset], where: str
) -> None:
    other = {*expected} ^ offsets.keys()
    if other:
        names = ", ".join(map(str, sorted(other)[:5]))
        raise InvariantError(
            "nothing is committed outside the slice, and every partition of it is",
            f"{names} stand on one side only",
            where=where,
        )
