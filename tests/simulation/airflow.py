"""A scheduler without Airflow: three operators in a row, each tried again until it succeeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.batch.task.work import OpenRows
from airflow_kstreams.launch.run_spec import RunSpec
from airflow_kstreams.spark.driver.driver import Driver
from airflow_kstreams.streams import Topology
from airflow_kstreams.streams.calls.call import MakeCaller
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.tables.table_port import TablesPort
from tests.simulation.injector import FaultInjector
from tests.simulation.spark import SimulatedExecutors
from tests.simulation.world import Process

#: With a bounded number of faults, nothing needs more tries than this.
MAX_TRIES = 25


class RunFailedError(Exception):
    """A DAG run failed although a scheduler tried as often as it could."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DagRun:
    """A run as its operators know it.

    :param clear_number: how often it was cleared.
    :param interval_ms: its data interval, epoch milliseconds.
    :param suffix: of its processes' names.
    """

    run_id: str
    clear_number: int = 0
    interval_ms: tuple[int, int] | None = None
    suffix: str = ""


#: What an operator does in its process, given the run and its order.
Execute = Callable[[Process, DagRun, tuple[int, int]], None]


def _execute(execute: Execute, holder: list[Process], run: DagRun, order: tuple[int, int]) -> None:
    execute(holder[0], run, order)


class Scheduler:
    """Runs DAG runs of one application.

    :param separate_finish: whether an operator of its own finishes the run, or the driver does.
    :param calls: gives what makes the callers of a task's process.
    :param open_rows: gives what opens the rows of tables.
    :ivar settings: of the application; they may change from run to run.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        settings: ApplicationSettings,
        injector: FaultInjector,
        separate_finish: bool,
        calls: Callable[[Process], MakeCaller | None] = lambda process: None,
        open_rows: Callable[[TablesPort], OpenRows] | None = None,
    ) -> None:
        self._topology = topology
        self.settings = settings
        self._injector = injector
        self._separate_finish = separate_finish
        self._calls = calls
        self._open_rows = open_rows
        self._world = injector.world

    def dag_run(self, run: DagRun) -> None:
        """Run one DAG run to its end.

        :raises RunFailedError: it fails for good.
        """
        self._operator("capture", run, self._capture)
        self._operator("driver", run, self._drive)
        if self._separate_finish:
            self._operator("finish", run, self._finish)

    def early_finish(self, run_id: str) -> Process:
        """Run the finish operator alone, as when somebody marks the operators before it as successful."""

        def finish() -> None:
            try:
                self._finish(holder[0], DagRun(run_id=run_id), (0, 0))
            except KStreamsError as error:
                if not error.is_retriable:
                    raise

        machine = self._injector.machine()
        holder = [self._world.start(f"finish {run_id} early", "finish", finish, machine)]
        return holder[0]

    def _operator(self, role: str, run: DagRun, execute: Execute) -> None:
        for number in range(1, MAX_TRIES + 1):
            holder: list[Process] = []
            order = (run.clear_number, number)
            name = f"{role} {run.run_id} {run.clear_number}.{number}{run.suffix}"
            body = partial(_execute, execute, holder, run, order)
            process = self._world.start(name, role, body, self._injector.machine())
            holder.append(process)
            ending = process.wait()
            if not (ending.died or ending.lost or ending.error):
                return
            error = ending.error
            if error is not None and not (isinstance(error, KStreamsError) and error.is_retriable):
                raise RunFailedError(f"{name} fails for good: {type(error).__name__}: {error}") from error
            self._world.sleep(self._injector.random.choice((0.5, 3.0, 15.0)))
        raise RunFailedError(f"{role} of {run.run_id} was tried {MAX_TRIES} times; last: {error or 'died'}")

    def _capture(self, process: Process, run: DagRun, order: tuple[int, int]) -> None:
        coordinator = self._coordinator(process)
        app = self.settings.application_id
        try:
            coordinator.begin(
                run.run_id,
                self._topology.plan(app),
                # As the operator does: capture, whatever its own try, comes before the driver's tries.
                order=(order[0], 0),
                owner=process.name,
                hold_lease=False,
                groups=partial(self._topology.partition_groups, app),
                interval_ms=run.interval_ms,
            )
        finally:
            coordinator.close()

    def _drive(self, process: Process, run: DagRun, order: tuple[int, int]) -> None:
        spec = RunSpec(
            application_id=self.settings.application_id,
            run_id=run.run_id,
            order=order,
            owner=process.name,
            topology_hash=self._topology.plan(self.settings.application_id).topology_hash,
            finish=not self._separate_finish,
            interval_ms=run.interval_ms,
        )
        Driver(
            spec,
            self._topology,
            settings=self.settings,
            cluster=self._injector.cluster(process),
            executors=SimulatedExecutors(
                self._topology,
                settings=self.settings,
                injector=self._injector,
                driver=process,
                calls=self._calls,
                open_rows=self._open_rows,
            ),
            clock=process.clock,
            tables=self._injector.tables(process),
        ).run()

    def _finish(self, process: Process, run: DagRun, order: tuple[int, int]) -> None:
        coordinator = self._coordinator(process)
        try:
            coordinator.finish(run.run_id)
        finally:
            coordinator.close()

    def _coordinator(self, process: Process) -> Coordinator:
        return Coordinator(
            self._injector.cluster(process),
            self.settings,
            clock=process.clock,
            tables=self._injector.tables(process),
        )
