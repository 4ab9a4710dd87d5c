"""The driver of a continuous run: takes the lease, keeps tasks in every slot, and stops them when asked to.

What decides lives in Kafka, as with a batch: the lease, which is renewed while the run lasts; the plan; and
the word to stop, which the tasks read there. A driver that dies leaves tasks that end by themselves when its
lease has run out, and committed offsets from which either mode goes on.
"""

from __future__ import annotations

import logging
from functools import partial

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.continuous.coordinator import ContinuousCoordinator
from airflow_kstreams.batch.protocol.model import ContinuousRun, TaskReport
from airflow_kstreams.batch.run.lease_renewal import LeaseRenewal
from airflow_kstreams.launch.run_spec import RunSpec
from airflow_kstreams.spark.driver.continuous_jobs import ContinuousJobs, Stopping
from airflow_kstreams.spark.driver.executors import Executors, close_all, spread
from airflow_kstreams.spark.driver.stop_signals import StopSignals
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.ports import Clock, ClusterPort
from airflow_kstreams.streams.runtime.stream_task import TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.topology import Topology

log = logging.getLogger(__name__)

#: Between two looks at what grows: processed records of repartition topics, partitions of inputs.
_HOUSEKEEPING_SECONDS = 30.0


class ContinuousDriver:
    """Runs an application until it is asked to stop.

    :param spec: what to run; its run id names the continuous run.
    :param topology: built by the application file.
    :param settings: of the application, checked.
    :param cluster: where everything is kept.
    :param executors: where tasks run.
    """

    def __init__(
        self,
        spec: RunSpec,
        topology: Topology,
        *,
        settings: ApplicationSettings,
        cluster: ClusterPort,
        executors: Executors,
        clock: Clock | None = None,
    ) -> None:
        self._spec = spec
        self._topology = topology
        self._settings = settings
        self._cluster = cluster
        self._executors = executors
        self._clock = clock or SystemClock()
        self._housekeeping_at = self._clock.monotonic_seconds() + _HOUSEKEEPING_SECONDS
        self._told_of: set[str] = set()

    def run(self) -> list[TaskReport]:
        """Run until SIGTERM or SIGINT.

        :return: what each task did since it was launched last.
        :raises KStreamsError: with cause and remedy.
        """
        coordinator = ContinuousCoordinator(self._cluster, self._settings, clock=self._clock)
        with StopSignals() as signals:
            try:
                run = coordinator.begin_continuous(
                    self._spec.run_id,
                    self._topology.plan(self._spec.application_id),
                    order=self._spec.order,
                    owner=self._spec.owner,
                    groups=partial(self._topology.partition_groups, self._spec.application_id),
                )
                with coordinator.lease.keep(on_superseded=self._executors.cancel) as lease:
                    coordinator.delete_metadata()
                    reports = self._keep_running(run, coordinator, lease, signals)
                    log.info("continuous run %s stopped", run.run_id)
                    return reports
            finally:
                close_all(coordinator, self._executors)

    def _keep_running(
        self,
        run: ContinuousRun,
        coordinator: ContinuousCoordinator,
        lease: LeaseRenewal,
        signals: StopSignals,
    ) -> list[TaskReport]:
        self._executors.start()
        signals.install()  # Spark takes SIGINT when it starts
        if signals.requested.is_set():
            return []
        hosts = spread(tasks_of(run), self._executors.slots())
        log.info(
            "continuous run %s: %d tasks in %d slots, up to %d threads each",
            run.run_id,
            sum(map(len, hosts)),
            len(hosts),
            self._settings.num_stream_threads,
        )
        lease.check()
        jobs = ContinuousJobs(
            hosts=hosts,
            launch=partial(self._executors.launch, run),
            cancel=self._executors.cancel,
            check=lease.check,
            stopping=Stopping(
                requested=signals.requested,
                announce=coordinator.announce_stop,
                # A task notices within a turn; its processors, and then its last commit, end within these.
                patience_seconds=(self._settings.transaction_timeout_ms + self._settings.client_timeout_ms)
                / 1000,
            ),
            keep_house=partial(self._keep_house, run, coordinator),
            clock=self._clock,
        )
        with lease.outranking():
            return jobs.run()

    def _keep_house(self, run: ContinuousRun, coordinator: ContinuousCoordinator) -> None:
        """Purge repartition topics, and warn of partitions that were added."""
        now = self._clock.monotonic_seconds()
        if now < self._housekeeping_at:
            return
        self._housekeeping_at = now + _HOUSEKEEPING_SECONDS
        try:
            coordinator.purge_processed(run)
            for topic, (read, there) in coordinator.grown_topics(run).items():
                if topic not in self._told_of:
                    self._told_of.add(topic)
                    log.warning(
                        "%s has %d partitions by now, %d of them are read: restart the application to read "
                        "the others, from their beginning",
                        topic,
                        there,
                        read,
                    )
        except KStreamsError as error:
            log.warning("repartition topics could not be purged, trying again: %s", error.cause)


def tasks_of(run: ContinuousRun) -> list[TaskId]:
    """Return every task, those of one subtopology side by side."""
    return [
        TaskId(subtopology=sub.id, group=group)
        for sub in run.plan.topology.subtopologies
        for group in range(run.plan.tasks[str(sub.id)])
    ]
