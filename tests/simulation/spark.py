"""Drivers and executors without Spark: the real driver's loop and job launcher, tasks as processes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from airflow_kstreams.batch.coordinator import Coordinator
from airflow_kstreams.batch.lease import LeaseKeeper
from airflow_kstreams.batch.model import Slice, TaskReport
from airflow_kstreams.batch.run_spec import RunSpec
from airflow_kstreams.batch.task_attempt import TaskAssignment
from airflow_kstreams.batch.task_runner import TaskRunner
from airflow_kstreams.spark.driver import Driver
from airflow_kstreams.spark.jobs import RunJobs
from airflow_kstreams.streams import Topology
from airflow_kstreams.streams.errors import KStreamsError, RecordError, ReportedError, RunError
from airflow_kstreams.streams.runtime.stream_task import TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from tests.simulation.injector import FaultInjector
from tests.simulation.threads import Executor
from tests.simulation.world import Process

#: How often Spark tries a task before the job fails, ``local[N,2]``.
_SPARK_TRIES = 2


class Executors:
    """The executors of one driver, in place of a Spark session."""

    def __init__(self, injector: FaultInjector, driver: Process) -> None:
        self._injector = injector
        self._driver = driver
        injector.children[driver] = []

    def task(self, name: str, body: Any) -> Process:
        """Start a task."""
        process = self._injector.world.start(name, "task", body)
        self._injector.children[self._driver].append(process)
        return process

    def cancel(self) -> None:
        """Cancel what runs. Some tasks hear of it at once; others finish what they are at."""
        for process in self._injector.children[self._driver]:
            if self._injector.random.random() < 0.5:
                process.kill()

    def stop(self) -> None:
        """End the session."""
        self.cancel()


class SimulatedJobs(RunJobs):
    """``RunJobs`` whose jobs are processes of the world."""

    def __init__(
        self, *, topology: Topology, injector: FaultInjector, session: Executors, **jobs: Any
    ) -> None:
        super().__init__(session=session, source=None, client_config_path="", **jobs)  # type: ignore[arg-type]
        self._topology = topology
        self._injector = injector
        self._executors = session

    def _launch(self, subtopology: int, groups: Sequence[int]) -> list[TaskReport]:
        with Executor(len(groups)) as slots:
            futures = [slots.submit(self._spark_task, subtopology, group) for group in groups]
        return [future.result() for future in futures]

    def _spark_task(self, subtopology: int, group: int) -> TaskReport:
        failure: KStreamsError | None = None
        for attempt in range(1, _SPARK_TRIES + 1):
            slice_, settings = self._slice, self._settings
            name = f"task {subtopology}_{group} g{slice_.generation}.{attempt}"
            runners: list[TaskRunner] = []
            process = self._executors.task(name, partial(_run_first, runners))
            runner = TaskRunner(
                topology=self._topology,
                assignment=TaskAssignment(
                    task_id=TaskId(subtopology=subtopology, group=group),
                    run_id=slice_.run_id,
                    generation=slice_.generation,
                ),
                cluster=self._injector.cluster(process),
                settings=settings,
                clock=self._injector.world,
            )
            runners.append(runner)
            ending = process.wait()
            if ending.error is None and not ending.died and not ending.lost:
                report: TaskReport = ending.value
                return report
            if ending.error is None:
                failure = RunError(f"executor of {name} was lost", fix="retry", run_id=slice_.run_id)
            elif not isinstance(ending.error, KStreamsError):
                raise ending.error
            else:
                failure = ReportedError.from_dict(ending.error.to_dict())
                if isinstance(ending.error, RecordError) or not ending.error.is_retriable:
                    break
        assert failure is not None
        raise failure


def _run_first(runners: list[TaskRunner]) -> TaskReport:
    return runners[0].run()


class SimulatedDriver(Driver):
    """``Driver`` whose cluster and executors are the world's."""

    def __init__(
        self,
        spec: RunSpec,
        topology: Topology,
        *,
        settings: ApplicationSettings,
        injector: FaultInjector,
        process: Process,
    ) -> None:
        self._spec = spec
        self._source = _Source(topology)  # type: ignore[assignment]
        self._topology = topology
        self._settings = settings
        self._cluster = injector.cluster(process)  # type: ignore[assignment]
        self._injector = injector
        self._process_of_driver = process
        self._session = None

    def _run_jobs(self, slice_: Slice, coordinator: Coordinator, lease: LeaseKeeper) -> None:
        if self._session is None:
            self._session = Executors(self._injector, self._process_of_driver)  # type: ignore[assignment]
        jobs = SimulatedJobs(
            topology=self._topology,
            injector=self._injector,
            session=self._session,  # type: ignore[arg-type]
            settings=self._settings,
            slice_=slice_,
            unfinished=lambda subtopology: coordinator.unfinished(slice_, subtopology),
            check=lease.check,
        )
        try:
            jobs.run()
        except KStreamsError:
            lease.check()
            raise

    def _cancel(self) -> None:
        if self._session is not None:
            self._session.cancel()  # type: ignore[attr-defined]


class _Source:
    """An application file that is loaded already."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    def topology(self) -> Topology:
        return self._topology
