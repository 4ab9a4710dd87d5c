"""Drives a run: takes the lease, runs the jobs, gives the lease up. SIGTERM and SIGINT ask it to stop.

All facts that decide are in Kafka. A driver that dies at any line leaves a slice that the next driver claims
with the same stop offsets; a driver whose slice was claimed finds its coordinator's transactional id fenced
at its next lease renewal or before its next job, cancels its jobs and leaves.

The jobs of a slice, one per subtopology, run in topological order, independent ones side by side. A job is
launched again for its unfinished tasks, a bounded number of times. Committed offsets and done notifications
in Kafka show which tasks are unfinished, never Spark. Asking for them also freezes the stop offsets of topics
that other subtopologies, done by then, have written for this one.

A continuous run (``continuous_jobs.py``) has tasks in every slot until a stop is requested, which the tasks
read in the lease. A driver that dies leaves tasks that end by themselves when its lease has expired, and
committed offsets from which either mode goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from graphlib import TopologicalSorter

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.continuous.start import Housekeeping, begin_continuous, delete_metadata
from airflow_kstreams.batch.ledger.facts import ContinuousRun
from airflow_kstreams.batch.ledger.history import How
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import TaskShare
from airflow_kstreams.batch.report.counts import speed_lines
from airflow_kstreams.batch.run.assignment import AskGroups
from airflow_kstreams.batch.run.attempts import StepLog
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.batch.run.lease.lease_renewal import LeaseRenewal
from airflow_kstreams.batch.run.tables.merge_plan import MakeMerges
from airflow_kstreams.launch.run_spec import RunSpec
from airflow_kstreams.spark.driver.continuous_jobs import ContinuousJobs, StopSignals, tasks_of
from airflow_kstreams.spark.driver.executors import (
    MAX_LAUNCHES,
    Executors,
    pause_seconds,
    spread,
    worth_another_launch,
)
from airflow_kstreams.spark.driver.progress import RunProgress
from airflow_kstreams.spark.driver.task_reports import TaskReports
from airflow_kstreams.spark.driver.telemetry import Telemetry
from airflow_kstreams.streams.errors import KStreamsError, RunError, TopologyError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.partitioning.partition_groups import first_few
from airflow_kstreams.streams.plan import TopologyPlan, refuse_unknown_subtopology
from airflow_kstreams.streams.ports import Clock, ClusterPort
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.tables.table_port import TablesPort
from airflow_kstreams.streams.topology.topology import Topology

log = package_log(__name__)


@dataclass(slots=True)
class Driver:
    """Runs one run spec: to its stop offsets, or continuously.

    :param spec: the run to make.
    :param topology: the application file's topology.
    :param settings: the application's checked settings.
    :param cluster: the Kafka cluster.
    :param executors: run the tasks.
    :param telemetry: takes the tasks' measurements; None: they are not exported.
    :param tables: opens the tables that runs write to.
    :param make_merges: merges small files of a run before they are committed to tables; None to leave them.
    """

    spec: RunSpec
    topology: Topology
    _: KW_ONLY
    settings: ApplicationSettings
    cluster: ClusterPort
    executors: Executors
    clock: Clock = field(default_factory=SystemClock)
    telemetry: Telemetry | None = None
    tables: TablesPort | None = None
    make_merges: MakeMerges | None = None
    #: Whether the run was finished before: nothing was processed now.
    finished_before: bool = field(default=False, init=False)

    def run(self) -> RunSummary | None:
        """Run until this run's slice is processed, finishing any older unfinished slice first.

        :return: the ledger's summary when the run is finished (now or before); None when a finish operator
            follows.
        :raises KStreamsError: with cause and remedy.
        """
        plan = self.topology.plan(self.spec.application_id)
        if self.spec.topology_hash and self.spec.topology_hash != plan.topology_hash:
            raise TopologyError(
                f"the application file builds topology {plan.topology_hash[:12]} here, and built "
                f"{self.spec.topology_hash[:12]} where the Airflow task read it",
                fix="deploy one version of the application file everywhere, then retry the run",
            )
        if self.spec.subtopology is not None:
            ids = [sub.id for sub in plan.subtopologies]
            refuse_unknown_subtopology(plan.application_id, self.spec.subtopology, ids)
        with self._coordinator() as coordinator:
            while True:
                begun = coordinator.begin(
                    self.spec.run_id,
                    plan,
                    order=self.spec.order,
                    interval_ms=self.spec.interval_ms,
                    dag_id=self.spec.dag_id,
                    owner=self.spec.owner,
                    hold_lease=True,
                    groups=self._groups,
                )
                if begun.finished is not None:
                    self.finished_before = True
                    return begun.finished
                if begun.slice is None:
                    raise RuntimeError("begin returned neither a slice nor a summary")
                own = begun.slice.run_id == self.spec.run_id
                if not own:
                    log.warning("finishing the unfinished run %s first", begun.slice.run_id)
                summary = self._process(begun.slice, coordinator, own=own)
                if own:
                    return summary

    def run_continuously(self) -> list[TaskReport]:
        """Run until SIGTERM or SIGINT.

        :return: the report of each task since its last launch.
        :raises KStreamsError: with cause and remedy.
        """
        with StopSignals() as signals, self._coordinator() as coordinator:
            run = begin_continuous(
                coordinator,
                self.spec.run_id,
                self.topology.plan(self.spec.application_id),
                order=self.spec.order,
                owner=self.spec.owner,
                groups=self._groups,
            )
            reports = TaskReports(run.slice, coordinator.session, self.telemetry)
            coordinator.attempt.reports = lambda: reports.latest
            with (
                reports.exporting(),
                coordinator.lease.keep(on_superseded=self.executors.cancel) as lease,
                coordinator.attempt.ending(otherwise=How.STOPPED),
            ):
                delete_metadata(coordinator)
                reports.add(self._keep_running(run, coordinator, lease, signals))
                log.info("continuous run %s stopped", run.run_id)
            return reports.latest

    @property
    def _groups(self) -> AskGroups:
        """Asks the topology's own partition grouper."""
        return partial(self.topology.partition_groups, self.spec.application_id)

    @contextmanager
    def _coordinator(self) -> Iterator[Coordinator]:
        """Yield a coordinator, and close everything after the block; an error of closing is logged, so that
        it does not hide why the run ended.
        """
        coordinator = Coordinator(
            self.cluster, self.settings, clock=self.clock, tables=self.tables, make_merges=self.make_merges
        )
        try:
            yield coordinator
        finally:
            try:
                coordinator.close()
            except KStreamsError as error:
                log.warning("the coordinator could not be closed: %s", error.cause)
            self.executors.close()

    def _process(self, slice_: Slice, coordinator: Coordinator, *, own: bool) -> RunSummary | None:
        """Process a slice under the lease that begin took, and give the lease up at the end.

        :param own: whether the slice is this run's; the slice of an earlier run is always finished.
        """
        finish = self.spec.finish or not own
        reports = TaskReports(slice_, coordinator.session, self.telemetry)
        coordinator.attempt.reports = lambda: reports.latest
        with (
            reports.exporting(),
            coordinator.lease.keep(on_superseded=self.executors.cancel) as lease,
            coordinator.attempt.ending(),
        ):
            if slice_.plan.empty:
                log.info("run %s has nothing new: Spark is not started", slice_.run_id)
            else:
                only = self.spec.subtopology if own else None
                self._run_jobs(reports, slice_, coordinator, lease, only=only)
            lease.stop_renewing()
            lease.check()
            if finish:
                return coordinator.finish(slice_.run_id, reports=reports.latest)
            for line in speed_lines(reports.latest, slice_.plan.topology.purposes):
                log.info("%s", line)
            return None

    def _run_jobs(
        self,
        reports: TaskReports,
        slice_: Slice,
        coordinator: Coordinator,
        lease: LeaseRenewal,
        *,
        only: int | None,
    ) -> None:
        self.executors.start()
        group = slice_.plan.topology.application_id
        reading = partial(self.cluster.reader, group_id=group, isolation="read_uncommitted", small=True)
        progress = RunProgress(slice_, reading, clock=self.clock)
        jobs = RunJobs(
            slice_=slice_,
            launch=progress.listening(reports.listening(partial(self.executors.launch, slice_))),
            cancel=self.executors.cancel,
            unfinished=lambda subtopology: coordinator.unfinished(slice_, subtopology),
            check=lease.check_before_launch,
            only=only,
            steps=coordinator.attempt.steps,
        )
        with lease.outranking(), progress.telling():
            jobs.run()

    def _keep_running(
        self,
        run: ContinuousRun,
        coordinator: Coordinator,
        lease: LeaseRenewal,
        signals: StopSignals,
    ) -> list[TaskReport]:
        """Run the tasks of a continuous run under the lease that it began with, until a stop is requested."""
        self.executors.start()
        signals.install()  # Spark replaces SIGINT's handler when it starts
        if signals.requested.is_set():
            return []
        hosts = spread(tasks_of(run), self.executors.slots())
        log.info(
            "continuous run %s: %s in %s, up to %s each",
            run.run_id,
            counted(sum(map(len, hosts)), "task"),
            counted(len(hosts), "slot"),
            counted(self.settings.num_stream_threads, "thread"),
        )
        lease.check()
        jobs = ContinuousJobs(
            hosts=hosts,
            launch=partial(self.executors.launch_continuous, run),
            cancel=self.executors.cancel,
            check=lease.check,
            stop=signals.requested,
            announce=partial(coordinator.lease.renew, stopping=True),
            # A task notices within a turn; its processors, and then its last commit, end within these.
            patience_seconds=(self.settings.transaction_timeout_ms + self.settings.client_timeout_ms) / 1000,
            periodically=Housekeeping(run, coordinator.session).keep,
            clock=self.clock,
        )
        with lease.outranking():
            return jobs.run()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunJobs:
    """The jobs of one slice.

    :param launch: runs tasks of one subtopology, and returns their reports.
    :param cancel: cancels running jobs.
    :param unfinished: returns the shares of a subtopology's tasks that are not done, by Kafka.
    :param check: raises when this driver is known to be superseded; called before every launch.
    :param only: id of the only subtopology to run, None for all.
    :param steps: takes the times of the subtopologies' steps.
    """

    slice_: Slice
    launch: Callable[[Sequence[TaskShare]], list[TaskReport]]
    cancel: Callable[[], None]
    unfinished: Callable[[int], Sequence[TaskShare]]
    check: Callable[[], None]
    only: int | None = None
    steps: StepLog = field(default_factory=lambda: StepLog(SystemClock()))
    _stopping: threading.Event = field(default_factory=threading.Event, init=False)

    def run(self) -> list[TaskReport]:
        """Run every subtopology, or the only one, to its stop offsets.

        :return: the reports of the tasks that this driver ran, without tasks that were done before.
        :raises KStreamsError: a task failed for good.
        """
        graph = dependencies(self.slice_.plan.topology) if self.only is None else {self.only: set()}
        order = TopologicalSorter(graph)
        order.prepare()
        begun_ms = self.steps.now_ms()
        reports: list[TaskReport] = []
        running: dict[Future[list[TaskReport]], int] = {}
        with ThreadPoolExecutor(max_workers=max(1, len(graph)), thread_name_prefix="subtopology") as pool:
            try:
                while order.is_active():
                    for subtopology in order.get_ready():
                        if graph[subtopology]:
                            self.steps.add("wait", begun_ms, subtopology=subtopology)
                        running[pool.submit(self._run_subtopology, subtopology)] = subtopology
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        reports.extend(future.result())
                        order.done(running.pop(future))
            except BaseException:
                # Jobs beside the failed subtopology would only delay the error; the retry resumes them.
                self._stopping.set()
                self.cancel()
                raise
        return reports

    def _run_subtopology(self, subtopology: int) -> list[TaskReport]:
        """Process a subtopology, see :meth:`_launch_unfinished`."""
        with self.steps.step("process", subtopology=subtopology):
            return self._launch_unfinished(subtopology)

    def _launch_unfinished(self, subtopology: int) -> list[TaskReport]:
        """Launch a subtopology's unfinished tasks until Kafka shows none, a bounded number of times.

        The cause of a failed launch is said once: by the error that is raised, or when another launch has
        mended it.

        :raises KStreamsError: a task failed with an error that another launch cannot mend, or the last launch
            failed.
        """
        reports: list[TaskReport] = []
        failure: KStreamsError | None = None
        for launch in range(MAX_LAUNCHES):
            shares = self.unfinished(subtopology)
            if not shares:
                return _mended(subtopology, failure, reports)
            if launch and self._stopping.wait(pause_seconds(launch)):
                break
            self.check()
            log.info("subtopology %d: launching %s", subtopology, counted(len(shares), "task"))
            try:
                reports.extend(self.launch(shares))
                log.info("subtopology %d: its tasks have ended", subtopology)
            except KStreamsError as error:
                if self._stopping.is_set() or not worth_another_launch(error):
                    raise
                failure = error
                if launch + 1 < MAX_LAUNCHES:
                    log.warning(
                        "subtopology %d: launching its unfinished tasks again after %s, launch %d of %d",
                        subtopology,
                        error.type_name,
                        launch + 2,
                        MAX_LAUNCHES,
                    )
        left = self.unfinished(subtopology)
        if left:
            raise failure or self._given_up(subtopology, left)
        return _mended(subtopology, failure, reports)

    def _given_up(self, subtopology: int, left: Sequence[TaskShare]) -> RunError:
        names = first_few([f"{subtopology}_{share.group}" for share in left])
        return RunError(
            f"tasks {names} of application {self.slice_.plan.topology.application_id!r} did not reach their "
            f"stop offsets in {MAX_LAUNCHES} launches",
            fix="read the executors' logs for what stopped them, then retry the run: its slice is kept",
            run_id=self.slice_.run_id,
        )


def _mended(subtopology: int, failure: KStreamsError | None, reports: list[TaskReport]) -> list[TaskReport]:
    """Return the reports of a subtopology that is done, after saying why it was launched again."""
    if failure is not None:
        log.warning("subtopology %d is done, after a launch that failed: %s", subtopology, failure.cause)
    return reports


def dependencies(plan: TopologyPlan) -> dict[int, set[int]]:
    """Return for each subtopology the ones that write the topics it reads."""
    return {
        sub.id: {writer.id for topic in sub.sources for writer in plan.writers_of(topic)}
        for sub in plan.subtopologies
    }
