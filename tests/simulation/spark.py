"""Executors without Spark: tasks as processes of the world, tried again as Spark does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from airflow_kstreams.batch.ledger.facts import ContinuousRun
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import TaskShare, without_partitions
from airflow_kstreams.batch.task.runner import TaskRunner
from airflow_kstreams.batch.task.work import OpenRows, SliceWork, TaskAssignment, TaskSetup
from airflow_kstreams.streams import Topology
from airflow_kstreams.streams.calls.call import MakeCaller
from airflow_kstreams.streams.errors import KStreamsError, RecordError, ReportedError, RunError
from airflow_kstreams.streams.runtime.stream_task import TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.tables.table_port import TablesPort
from tests.simulation.injector import FaultInjector
from tests.simulation.threads import Executor
from tests.simulation.world import Process, Thread

#: How often Spark tries a task before the job fails, ``local[N,2]``.
_SPARK_TRIES = 2


class SimulatedExecutors:
    """The executors of one driver, in place of a Spark session.

    :param calls: gives what makes the callers of a process.
    :param open_rows: gives what opens the rows of tables.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        settings: ApplicationSettings,
        injector: FaultInjector,
        driver: Process,
        calls: Callable[[Process], MakeCaller | None] = lambda process: None,
        open_rows: Callable[[TablesPort], OpenRows] | None = None,
    ) -> None:
        self._topology = topology
        self._settings = settings
        self._injector = injector
        self._driver = driver
        self._calls = calls
        self._open_rows = open_rows
        self._busy = 0
        self._waiting: list[Thread] = []

    def start(self) -> None:
        """Make ready."""
        self._injector.children.setdefault(self._driver, [])

    def slots(self) -> int:
        """Return how many tasks can run at once."""
        return self._injector.slots or 1

    def launch(self, slice_: Slice, tasks: Sequence[TaskShare]) -> list[TaskReport]:
        """Run tasks side by side, as many at once as there are slots."""
        common = without_partitions(slice_)
        with Executor(len(tasks)) as threads:
            futures = [threads.submit(self._in_slot, common, share) for share in tasks]
        return [future.result() for future in futures]

    def launch_continuous(self, run: ContinuousRun, tasks: Sequence[TaskId]) -> list[TaskReport]:
        raise NotImplementedError

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Wait for one of the slots, if they are limited."""
        slots, world = self._injector.slots, self._injector.world
        while slots and self._busy >= slots:
            world.block(self._waiting)
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            waiting, self._waiting = self._waiting, []
            for thread in waiting:
                world.wake(thread)

    def cancel(self) -> None:
        """Cancel what runs. Some tasks hear of it at once; others finish what they are at."""
        for process in self._injector.children.get(self._driver, ()):
            if self._injector.random.random() < 0.5:
                process.kill()

    def close(self) -> None:
        """End it."""
        self.cancel()

    def _in_slot(self, slice_: Slice, share: TaskShare) -> TaskReport:
        with self.slot():
            return self._spark_task(slice_, share)

    def _spark_task(self, slice_: Slice, share: TaskShare) -> TaskReport:
        failure: KStreamsError | None = None
        task_id = TaskId(subtopology=share.subtopology, group=share.group)
        for attempt in range(1, _SPARK_TRIES + 1):
            name = f"task {task_id} g{slice_.generation}.{attempt}"
            runners: list[TaskRunner] = []
            process = self._start(name, partial(_run_first, runners))
            runner = TaskRunner(
                TaskSetup(
                    topology=self._topology,
                    assignment=TaskAssignment(
                        task_id=task_id, run_id=slice_.run_id, generation=slice_.generation
                    ),
                    cluster=self._injector.cluster(process),
                    settings=self._on(process),
                    clock=process.clock,
                    make_caller=self._calls(process),
                    open_rows=self._rows(process),
                ),
                SliceWork(slice_, share),
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

    def _rows(self, process: Process) -> OpenRows | None:
        """Return what opens the rows of tables in a process."""
        tables = self._injector.tables(process)
        return None if tables is None or self._open_rows is None else self._open_rows(tables)

    def _on(self, process: Process) -> ApplicationSettings:
        """Return the settings with the disk of a process's machine."""
        disk = process.machine.disk
        return replace(self._settings, state_dir=disk) if disk else self._settings

    def _start(self, name: str, body: Any) -> Process:
        process = self._injector.world.start(name, "task", body, self._injector.machine())
        self._injector.children[self._driver].append(process)
        return process


def _run_first(runners: list[TaskRunner]) -> TaskReport:
    return runners[0].run()
