"""Works out the work of one task for a slice, from the share that its driver shipped and the committed
offsets, and the end of its reading.

Rule: a task's last commit commits the stops of all of its partitions, says so beside them, and carries its
done notification if its driver found none. So the next attempt, of Spark or of a driver, processes and closes
nothing again. No other commit covers all stops, but for a task whose stream time advances behind them in
several transactions (:mod:`airflow_kstreams.batch.protocol.slice.slice`), and for a task with retry topics,
which stays at its stops, or waits for room in such a topic, and meanwhile commits the results of parked
records (:mod:`airflow_kstreams.batch.protocol.offsets.parked`). Of such a task, and of one with nothing to
read, whose stops begin commits, only that mark says that it is done, not the offsets.

Begin commits every partition's start under the run's id. An offset that another run has committed therefore
means that this one is over.

The end of a reading is bounded in a batch, where every partition has a stop offset. The endless end is in
:mod:`airflow_kstreams.batch.continuous.continuous_task`; one loop serves both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.evidence.contradictions import refuse_unfit_progress
from airflow_kstreams.batch.ledger.facts import Lease
from airflow_kstreams.batch.ledger.fold import LeaseOf, LeaseState, last_lease
from airflow_kstreams.batch.protocol.logs.data_loss import Loss, data_loss, deleted, truncated_below
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.protocol.offsets.parked import owes_last_commit
from airflow_kstreams.batch.protocol.slice.slice import EndOfRun, FrozenTarget, Slice
from airflow_kstreams.batch.protocol.slice.stops import TaskShare, end_epochs, looked_at, slice_of, spans_of
from airflow_kstreams.batch.protocol.topics import refuse_other_topics
from airflow_kstreams.batch.task.global_table_read import GlobalTables
from airflow_kstreams.streams.calls.call import MakeCaller
from airflow_kstreams.streams.errors import TaskFencedError
from airflow_kstreams.streams.naming.commands import drop_slice_command
from airflow_kstreams.streams.ports import (
    AdminPort,
    Clock,
    ClusterPort,
    CommittedOffset,
    Fetched,
    ReaderPort,
    TopicPartition,
)
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.table_plan import TablePlan
from airflow_kstreams.streams.tables.table_rows import RowsWriter, TableRows
from airflow_kstreams.streams.topology.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAssignment:
    """The task to run, and the slice or the continuous run to run it for.

    :param task_id: id of the task.
    :param run_id: the run that owns the slice, or the continuous run.
    :param generation: generation of the slice or of the continuous run; a newer one means that the driver
        that launched the task was superseded.
    """

    task_id: TaskId
    run_id: str
    generation: int

    def refuse_unless_in_force(self, lease: Lease | None, *, continuous: bool = False) -> None:
        """Refuse to go on unless the last lease is that of this task's driver.

        :raises TaskFencedError: another driver, or another run, owns the application by now, or none does.
        """
        state = LeaseOf(self.run_id, self.generation, continuous).state_of(lease)
        if state is LeaseState.IN_FORCE:
            return
        run = f"the continuous run {self.run_id!r}" if continuous else f"run {self.run_id!r}"
        fix = "nothing: the driver that owns the application launches its tasks itself"
        if lease is None:
            found = "is held by no driver"
            fix = (
                "nothing if the application was reset; else its ledger was deleted: begin the run again, "
                "which says what to do"
            )
        elif state is LeaseState.RELEASED:
            found = f"was released by {lease.owner}"
            fix = "nothing: the next driver launches what is left"
        else:
            held = "is held" if lease.expires_ms else "was held last"
            found = f"{held} by {lease.owner} for {lease.works_on!r} generation {lease.generation}"
            if lease.works_on == self.run_id and lease.generation > self.generation:
                fix = "nothing: a newer driver owns the run and launches this task itself"
        raise TaskFencedError(
            f"task {self.task_id} belongs to {run} generation {self.generation}, but the ledger says that "
            f"the lease {found}",
            fix=fix,
            task_id=str(self.task_id),
        )


#: ``open_rows(table, target, writer)`` gives what takes a task's rows for a table.
OpenRows = Callable[[TablePlan, FrozenTarget, RowsWriter], TableRows]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSetup:
    """The parts that every attempt of a task is made from.

    :param topology: built by the application file in this process; not shared with another task that runs.
    :param assignment: the task, and its run.
    :param cluster: the cluster that holds all topics.
    :param settings: settings of the application.
    :param clock: clock to go by; the machine's unless given.
    :param scratch: folder for files that need not outlive an attempt; the system's own unless given.
    :param make_caller: makes the caller that runs the calls of asynchronous nodes; a loop and threads unless
        given.
    :param global_tables: the global tables that its process has read.
    :param open_rows: opens what takes rows for tables; None where it was not said where tables are.
    """

    topology: Topology
    assignment: TaskAssignment
    cluster: ClusterPort
    settings: ApplicationSettings
    clock: Clock = field(default_factory=SystemClock)
    scratch: Path | None = None
    make_caller: MakeCaller | None = None
    global_tables: GlobalTables = field(default_factory=GlobalTables)
    open_rows: OpenRows | None = None


class Work(Protocol):
    """The work of an attempt, which asks for it once no older attempt can change a committed offset
    any more.
    """

    def share(self, setup: TaskSetup, reader: ReaderPort, admin: AdminPort) -> tuple[Slice, TaskSlice]:
        """Return the slice that the task belongs to, and the work that is left to it.

        :raises TaskFencedError: another driver, or another run, owns the application by now.
        """
        ...

    def end(self, task: StreamTask, admin: AdminPort) -> End:
        """Return the object that decides where the task's reading ends."""
        ...


class SliceWork:
    """The work of a task of a slice: bounded.

    :param common: the slice as its driver shipped it, without partitions.
    :param share: the task's partitions.
    """

    def __init__(self, common: Slice, share: TaskShare) -> None:
        self._slice = slice_of(common, share)
        self._share = share

    def share(self, setup: TaskSetup, reader: ReaderPort, admin: AdminPort) -> tuple[Slice, TaskSlice]:
        """Check the lease, and work out the part of the slice that is left to the task.

        :raises TaskFencedError: another driver, or another run, owns the application by now.
        :raises DataLossError: records that the task must read are gone.
        """
        lease = last_lease(setup.settings.application_id, admin=admin, reader=reader, clock=setup.clock)
        setup.assignment.refuse_unless_in_force(lease)
        return self._slice, task_slice(self._slice, self._share, reader, admin)

    def end(self, task: StreamTask, admin: AdminPort) -> BoundedEnd:
        """Return the end of the task's reading: its stop offsets, and the run's moment of stream time."""
        return BoundedEnd(task, self._slice.plan.end_of_run)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSlice:
    """The work that is left to a task.

    :param bounds: (position to resume at, stop offset) of each of its partitions.
    :param committed: committed offset of each partition when this was worked out; partitions without one are
        absent.
    :param processed: whether the task's last commit is made.
    :param notify: whether the done notification is to be written, with the last commit or, if that is made
        already, alone.
    :param kept_ms: partition -> the interval outside of which its records are left out, epoch milliseconds.
    :param end_epochs: leader epoch at each log's end when its stop was frozen, where it is known.
    :param looked_at: start and end of the offsets that may be looked at, of each partition that waits for
        others.
    :param tables: topics of the global tables whose records without key this task counts.
    """

    bounds: Mapping[TopicPartition, tuple[int, int]]
    committed: Mapping[TopicPartition, CommittedOffset]
    processed: bool = False
    notify: bool = False
    kept_ms: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    end_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    looked_at: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    tables: tuple[str, ...] = ()


def task_slice(slice_: Slice, share: TaskShare, reader: ReaderPort, admin: AdminPort) -> TaskSlice:
    """Work out the rest of a task's share of a slice.

    :param slice_: the slice as the task knows it.
    :raises TaskFencedError: another run has begun.
    :raises DataLossError: records that the task must read are gone.
    """
    spans = spans_of(slice_, share)
    committed = reader.committed(sorted(spans))
    metadata = {tp: OffsetMetadata.decode(offset.metadata) for tp, offset in committed.items()}
    task_id = f"{share.subtopology}_{share.group}"
    passed = {tp for tp, offset in committed.items() if offset.offset >= spans[tp][1]}
    _refuse_next_run(slice_, task_id, metadata, passed=passed)
    bounds = {
        tp: (committed[tp].offset if tp in committed else start, stop)
        for tp, (start, stop) in sorted(spans.items())
    }
    refuse_slice_loss(admin, slice_, bounds)
    to_read = {tp: (start, stop) for tp, (start, stop) in bounds.items() if start < stop}
    refuse_unfit_progress(slice_, to_read, committed, admin)
    at_stops = passed == spans.keys()
    complete = any(
        found.complete and (found.run_id, found.task_id) == (slice_.run_id, task_id)
        for found in metadata.values()
    )
    sub, moment_ms = (
        slice_.plan.topology.subtopology(share.subtopology),
        slice_.plan.moment_of(share.subtopology),
    )
    owes = owes_last_commit(slice_.run_id, metadata.values(), sub, moment_ms=moment_ms)
    kept = slice_.plan.kept_ms
    return TaskSlice(
        bounds=bounds,
        committed=committed,
        processed=at_stops and (complete or not (share.notify or owes)),
        notify=share.notify,
        kept_ms={} if kept is None else {part.topic_partition: kept for part in slice_.inputs},
        end_epochs=end_epochs(slice_, share),
        looked_at=looked_at(slice_, share),
        tables=share.tables,
    )


def _refuse_next_run(
    slice_: Slice,
    task_id: str,
    metadata: Mapping[TopicPartition, OffsetMetadata],
    *,
    passed: Set[TopicPartition],
) -> None:
    """Refuse a task that begins when its run is over. An offset that another run has committed before the
    stop is no sign of that: it was taken back.

    :param passed: partitions whose committed offset is at the stop, or behind it.
    """
    for tp, found in sorted(metadata.items()):
        if found.run_id not in ("", slice_.run_id) and tp in passed:
            raise TaskFencedError(
                f"task {task_id} belongs to run {slice_.run_id!r}, but the offset of {tp} was committed by "
                f"run {found.run_id!r}",
                fix="nothing: that run began when this one was finished",
                task_id=task_id,
            )


def refuse_slice_loss(
    admin: AdminPort, slice_: Slice, spans: Mapping[TopicPartition, tuple[int, int]]
) -> None:
    """Refuse to read records that are gone, and to wait for stop offsets that logs will never reach.

    :param spans: partition -> (offset to read next, stop offset).
    :raises DataLossError: a topic was created again, a log was truncated, or records were deleted.
    """
    application_id, run = slice_.plan.topology.application_id, f"run {slice_.run_id!r}"
    refuse_other_topics(admin, slice_, {partition.topic for partition in spans})
    starts = admin.start_offsets(sorted(spans))
    ends = admin.end_offsets(sorted(spans), isolation="read_uncommitted")
    losses: list[Loss] = []
    for partition, span in sorted(spans.items()):
        position, stop = span
        if ends[partition] < stop:
            drop, end = drop_slice_command(application_id), ends[partition]
            losses.append(truncated_below(partition, span=span, log_end=end, run=run, drop=drop))
        elif position < min(stop, starts[partition]):
            had = f"; {run} had to read [{position}, {stop})"
            losses.append(deleted(partition, expected=position, log_start=starts[partition], reader=had))
    if losses:
        raise data_loss(losses, application_id, run_id=slice_.run_id)


#: Partition -> (offset to read next, stop offset or end of the log).
Unread = dict[TopicPartition, tuple[int, int]]


class End(Protocol):
    """The questions that the loop asks its end."""

    @property
    def turn_seconds(self) -> float:
        """Seconds of processing after which the next task of the thread has its turn."""
        ...

    def take(self, fetched: Fetched) -> None:
        """Give the fetched records to the task."""
        ...

    def at_stop(self) -> bool:
        """Return whether the last commit is the only thing left to do."""
        ...

    def end_of_run(self) -> Iterator[None]:
        """Bring stream time to the run's moment; yields where the task may be committed."""
        ...

    def commit_due(
        self, *, processed: bool, interval_elapsed: bool, since_seconds: float, opened: bool
    ) -> bool:
        """Return whether to commit now.

        :param processed: whether records were processed since this was asked last.
        :param interval_elapsed: whether the last commit is ``commit.interval.ms`` ago.
        :param since_seconds: seconds since the last commit.
        :param opened: whether something may have been written since.
        """
        ...

    def anything_to_commit(self, *, opened: bool) -> bool:
        """Return whether a commit would write or move an offset."""
        ...

    def committed(self) -> None:
        """Update the end after a commit."""
        ...

    def unread(self, positions: Mapping[TopicPartition, int]) -> Unread:
        """Return the offsets that are still to be read, by partition."""
        ...

    def needless(self, assigned: Set[TopicPartition], paused: Set[TopicPartition]) -> Set[TopicPartition]:
        """Return the partitions of which no record needs to be fetched for now."""
        ...


def at_commit_point(task: StreamTask) -> bool:
    """Return whether a commit may come now; if not, ask the task for a commit point soon."""
    if task.execution.may_commit:
        return True
    task.execution.ask_for_commit_point()
    return False


class BoundedEnd:
    """The stop offsets of a slice, and the moment to which its end brings stream time.

    :param task: the task, which knows its stop offsets.
    :param end_of_run: the moment to which stream time is brought at the end; None without one.
    """

    turn_seconds = math.inf

    def __init__(self, task: StreamTask, end_of_run: EndOfRun | None = None) -> None:
        self._task = task
        self._end_of_run = end_of_run

    def take(self, fetched: Fetched) -> None:
        """Give the fetched records to the task; the end of a partition may be its stop."""
        for partition, records in fetched.records.items():
            self._task.add(partition, records)
        for partition, end in fetched.ends.items():
            self._task.group.reached(partition, end)

    def at_stop(self) -> bool:
        """Return whether the last commit is the only thing left to do.

        No other may cover the stop offsets of a task without retry topics: if it dies behind one, it counts
        as done, and what its processors give in close never comes.
        """
        return self._task.execution.complete

    def end_of_run(self) -> Iterator[None]:
        """Bring stream time to the run's moment, unless records are parked that may be dated before it."""
        task, end_of_run = self._task, self._end_of_run
        moment_ms = None if end_of_run is None else end_of_run.moment_of(task.task_id.subtopology)
        if end_of_run is None or moment_ms is None:
            return iter(())
        return task.end_of_run(moment_ms, end_of_run.also)

    def commit_due(
        self, *, processed: bool, interval_elapsed: bool, since_seconds: float, opened: bool
    ) -> bool:
        """Return whether the task is at a commit point that is due, or waits for parked records with a
        transaction open.
        """
        task = self._task
        if not task.execution.waits_for_retries:
            return not task.group.complete and task.commit_due(
                interval_elapsed=interval_elapsed, processed=processed
            )
        if task.commit_due(interval_elapsed=False, processed=processed):
            return True
        return opened and interval_elapsed and at_commit_point(task)

    def anything_to_commit(self, *, opened: bool) -> bool:
        """Return whether the task has written something since the last commit."""
        return opened

    def committed(self) -> None:
        """Do nothing: a bounded end does not depend on commits."""

    def unread(self, positions: Mapping[TopicPartition, int]) -> Unread:
        """Return the partitions that are not read to their stop."""
        stops = self._task.group.stops()
        return {p: (positions[p], stops[p]) for p in self._task.group.unfinished()}

    def needless(self, assigned: Set[TopicPartition], paused: Set[TopicPartition]) -> Set[TopicPartition]:
        """Return the partitions that are at their stop, and those that are far ahead of others."""
        group = self._task.group
        return assigned - set(group.unfinished()) | set(group.ahead(paused))
