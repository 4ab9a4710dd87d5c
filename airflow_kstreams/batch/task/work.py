"""What a task is made from and works on: its slice or run, its partitions, and where its reading ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.protocol.metadata import Folded, read_metadata
from airflow_kstreams.batch.protocol.model import RunState, Slice
from airflow_kstreams.batch.task.end import BoundedEnd, End
from airflow_kstreams.batch.task.task_slice import TaskSlice, task_slice
from airflow_kstreams.streams.errors import TaskFencedError
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, ReaderPort
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAssignment:
    """Which task to run for which slice, or for which continuous run.

    :param task_id: the task.
    :param run_id: the run that owns the slice, or the continuous run.
    :param generation: of either; a newer one means that the driver that launched the task was superseded.
    """

    task_id: TaskId
    run_id: str
    generation: int

    def refuse_unless_current(self, folded: Folded) -> Slice:
        """Return the slice, if the metadata topic still says that it is this driver's.

        :raises TaskFencedError: another driver, or another run, owns the application by now.
        """
        slice_ = folded.slice
        mine = (self.run_id, self.generation)
        if (
            slice_ is not None
            and folded.state is RunState.RUNNING
            and (slice_.run_id, slice_.generation) == mine
        ):
            return slice_
        if slice_ is None:
            found = "no slice"
            fix = (
                "nothing if the application was reset, or runs continuously by now; else its metadata topic "
                "was deleted: begin the run again, which says what to do"
            )
        else:
            found = f"run {slice_.run_id!r} generation {slice_.generation}"
            fix = "nothing: a newer driver owns the run and launches this task itself"
        raise TaskFencedError(
            f"task {self.task_id} belongs to run {self.run_id!r} generation {self.generation}, but the "
            f"metadata topic says {folded.state.value}, {found}",
            fix=fix,
            task_id=str(self.task_id),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSetup:
    """What every attempt of a task is made from.

    :param topology: built by the application file in this process; not shared with another task that runs.
    :param assignment: which task of which run.
    :param cluster: where everything is kept.
    :param settings: the application's.
    :param clock: the machine's unless given.
    :param scratch: folder for files that need not outlive an attempt; the system's own unless given.
    """

    topology: Topology
    assignment: TaskAssignment
    cluster: ClusterPort
    settings: ApplicationSettings
    clock: Clock = field(default_factory=SystemClock)
    scratch: Path | None = None


class Work(Protocol):
    """What an attempt asks, once no older attempt can change anything any more."""

    def share(self, setup: TaskSetup, reader: ReaderPort, admin: AdminPort) -> tuple[Slice, TaskSlice]:
        """Return what the task belongs to, and what there is to do.

        :raises TaskFencedError: another driver, or another run, owns the application by now.
        """
        ...

    def end(self, task: StreamTask, admin: AdminPort) -> End:
        """Return where the task's reading ends."""
        ...


class SliceWork:
    """The work of a task of a slice: bounded."""

    def share(self, setup: TaskSetup, reader: ReaderPort, admin: AdminPort) -> tuple[Slice, TaskSlice]:
        """Fold the metadata topic, and work out what of the slice is left to the task.

        :raises TaskFencedError: another driver, or another run, owns the application by now.
        :raises UpstreamNotDoneError: an intermediate topic it reads has no complete set of done
            notifications.
        :raises DataLossError: records it must read are gone.
        """
        folded = read_metadata(setup.cluster, setup.settings.application_id, admin=admin, clock=setup.clock)
        slice_ = setup.assignment.refuse_unless_current(folded)
        return slice_, task_slice(slice_, folded, setup.assignment.task_id, reader, admin)

    def end(self, task: StreamTask, admin: AdminPort) -> BoundedEnd:
        """Return where the task's reading ends: at its stop offsets."""
        return BoundedEnd(task)
