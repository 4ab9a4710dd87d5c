"""Defines what a task is made from and works on: its slice or run, its partitions, its reading's end."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.ledger.facts import Lease
from airflow_kstreams.batch.ledger.lease_look import LeaseOf, LeaseState, last_lease
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.task_share import TaskShare, slice_of
from airflow_kstreams.batch.task.end import BoundedEnd, End
from airflow_kstreams.batch.task.global_table_read import GlobalTables
from airflow_kstreams.batch.task.task_slice import TaskSlice, task_slice
from airflow_kstreams.streams.calls.caller import MakeCaller
from airflow_kstreams.streams.errors import TaskFencedError
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, ReaderPort
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAssignment:
    """The task to run, and the slice or the continuous run to run it for.

    :param task_id: the task.
    :param run_id: the run that owns the slice, or the continuous run.
    :param generation: of either; a newer one means that the driver that launched the task was superseded.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSetup:
    """The parts that every attempt of a task is made from.

    :param topology: built by the application file in this process; not shared with another task that runs.
    :param assignment: which task of which run.
    :param cluster: where everything is kept.
    :param settings: the application's.
    :param clock: the machine's unless given.
    :param scratch: folder for files that need not outlive an attempt; the system's own unless given.
    :param make_caller: makes what runs the calls of asynchronous nodes; a loop and threads unless given.
    :param global_tables: those that its process has read.
    """

    topology: Topology
    assignment: TaskAssignment
    cluster: ClusterPort
    settings: ApplicationSettings
    clock: Clock = field(default_factory=SystemClock)
    scratch: Path | None = None
    make_caller: MakeCaller | None = None
    global_tables: GlobalTables = field(default_factory=GlobalTables)


class Work(Protocol):
    """The work of an attempt, which asks for it once no older attempt can change anything any more."""

    def share(self, setup: TaskSetup, reader: ReaderPort, admin: AdminPort) -> tuple[Slice, TaskSlice]:
        """Return what the task belongs to, and what there is to do.

        :raises TaskFencedError: another driver, or another run, owns the application by now.
        """
        ...

    def end(self, task: StreamTask, admin: AdminPort) -> End:
        """Return where the task's reading ends."""
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
        """Look at the lease, and work out what of the slice is left to the task.

        :raises TaskFencedError: another driver, or another run, owns the application by now.
        :raises DataLossError: records it must read are gone.
        """
        lease = last_lease(setup.settings.application_id, admin=admin, reader=reader, clock=setup.clock)
        setup.assignment.refuse_unless_in_force(lease)
        return self._slice, task_slice(self._slice, self._share, reader, admin)

    def end(self, task: StreamTask, admin: AdminPort) -> BoundedEnd:
        """Return where the task's reading ends: at its stop offsets, and stream time at the run's moment."""
        return BoundedEnd(task, self._slice.plan.end_of_run)
