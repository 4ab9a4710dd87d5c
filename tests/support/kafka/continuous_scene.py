"""An application that runs as a batch and continuously in turns, in this process, without Spark.

A continuous run is a thread of tasks whose rounds the test drives; it may stop cleanly, or be killed where it
stands.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from airflow_kstreams.batch.continuous.continuous_task import ContinuousTask
from airflow_kstreams.batch.continuous.start import Housekeeping, begin_continuous, delete_metadata
from airflow_kstreams.batch.continuous.task_thread import LeaseVerdict, LeaseWatch, TaskThread
from airflow_kstreams.batch.ledger.facts import ContinuousRun
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.batch.task.work import TaskAssignment, TaskSetup
from airflow_kstreams.streams import Topology
from airflow_kstreams.streams.calls.call import MakeCaller
from airflow_kstreams.streams.ports import Clock, ClusterPort
from airflow_kstreams.streams.runtime.stream_task import TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from tests.support.kafka.in_process import Application, tasks_of

APP = "app"


@dataclass(kw_only=True)
class Running:
    """A continuous run that is under way.

    :param coordinator: of its driver, which holds the lease.
    :param thread: takes turns with all of its tasks.
    """

    run: ContinuousRun
    coordinator: Coordinator
    watch: LeaseWatch
    thread: TaskThread
    clock: Clock

    @property
    def housekeeping(self) -> Housekeeping:
        """What its driver looks after."""
        return Housekeeping(self.run, self.coordinator.session)

    def rounds(self, count: int = 1, *, renew: bool = True) -> None:
        """Give every task some turns, and let the driver renew its lease."""
        for _ in range(count):
            self.thread.round()
            if renew:
                self.coordinator.lease.renew()
            self.watch.look(timeout_seconds=0)

    def stop(self) -> list[TaskReport]:
        """Stop as a driver does that is asked to."""
        self.coordinator.lease.renew(stopping=True)
        while (verdict := self.watch.verdict) is LeaseVerdict.GO_ON:
            self.watch.look(timeout_seconds=0.1)
        assert verdict is LeaseVerdict.STOP
        reports = self.thread.run()
        self.close()
        return reports

    def close(self) -> None:
        """Let go of everything, the lease too."""
        self.thread.close()
        self.watch.close()
        self.coordinator.close()


@dataclass(kw_only=True)
class SwitchingApplication:
    """See the module.

    :param settings: by dotted name; exactly_once unless given.
    :param make_caller: makes what runs the calls of asynchronous nodes; a loop and threads unless given.
    """

    topology: Topology
    cluster: ClusterPort
    clock: Clock
    make_caller: MakeCaller | None = None
    application_id: str = APP
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def batches(self) -> Application:
        """The application as it runs in batches."""
        return Application(
            application_id=self.application_id,
            topology=self.topology,
            settings=self.settings,
            on=self.cluster,
            clock=self.clock,
            make_caller=self.make_caller,
        )

    @property
    def checked(self) -> ApplicationSettings:
        """The checked settings."""
        return self.batches.checked

    def coordinator(self) -> Coordinator:
        """Make a coordinator of batches."""
        return self.batches.coordinator()

    def begin(self, run_id: str, *, release: bool = True, order: tuple[int, int] = (0, 1)) -> Slice:
        """Begin a batch as a driver does."""
        return self.batches.begin(run_id, order, coordinator=None if release else self.coordinator())

    def task(self, slice_: Slice, task_id: TaskId) -> TaskReport:
        """Run one task of a batch."""
        return self.batches.task(slice_, task_id.subtopology, task_id.group)

    def finish(self, run_id: str) -> RunSummary:
        """Finish a batch."""
        return self.batches.finish(run_id)

    def batch(self, run_id: str) -> RunSummary:
        """Run a whole batch."""
        return self.batches.run(run_id)

    def batch_and_what_was_left(self, run_id: str) -> None:
        """Run a whole batch, after an unfinished one if there is one, as a driver does."""
        while True:
            slice_ = self.begin(run_id)
            self.batches.tasks(slice_)
            if self.finish(slice_.run_id).run_id == run_id:
                return

    def run_continuously(
        self, run_id: str, order: tuple[int, int] = (0, 1), *, only: Collection[int] | None = None
    ) -> Running:
        """Start a continuous run.

        :param only: the subtopologies whose tasks are launched, all unless given.
        """
        coordinator = self.coordinator()
        run = begin_continuous(
            coordinator,
            run_id,
            self.topology.plan(self.application_id),
            order=order,
            owner=f"process of {run_id}",
            groups=partial(self.topology.partition_groups, self.application_id),
        )
        delete_metadata(coordinator)
        watch = LeaseWatch(
            self.cluster, self.checked, run_id=run_id, generation=run.generation, clock=self.clock
        )
        watch.look(timeout_seconds=0)
        tasks = [
            self.continuous_task(run, task_id)
            for task_id in tasks_of(run.slice)
            if only is None or task_id.subtopology in only
        ]
        thread = TaskThread(tasks, verdict=lambda: watch.verdict, run_id=run_id)
        return Running(run=run, coordinator=coordinator, watch=watch, thread=thread, clock=self.clock)

    def continuous_task(self, run: ContinuousRun, task_id: TaskId) -> ContinuousTask:
        """Make one task of a continuous run."""
        return ContinuousTask(
            TaskSetup(
                topology=self.topology,
                assignment=TaskAssignment(task_id=task_id, run_id=run.run_id, generation=run.generation),
                cluster=self.cluster,
                settings=self.checked,
                clock=self.clock,
                make_caller=self.make_caller,
            )
        )
