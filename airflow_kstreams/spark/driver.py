"""The driver of a run: takes the lease, runs the jobs, lets go.

Everything that decides lives in Kafka. A driver that dies at any line leaves a slice that the next driver
takes over with the same stop offsets; a driver that was taken over finds its coordinator's transactional id
fenced at its next lease renewal or before its next job, cancels its jobs and leaves.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from airflow_kstreams.batch.coordinator import Coordinator
from airflow_kstreams.batch.lease import LeaseKeeper
from airflow_kstreams.batch.model import RunSummary, Slice
from airflow_kstreams.batch.run_spec import RunSpec
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.spark.jobs import RunJobs
from airflow_kstreams.spark.session import cancel_jobs, open_session, ship_file
from airflow_kstreams.streams.errors import KStreamsError, TopologyError
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.application_file import ApplicationFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


class Driver:
    """Runs one run spec.

    :param spec: what to run.
    :param source: the application file.
    :param client_config: of the Kafka client, secrets included.
    :param client_config_path: the file it came from; executors read it too.
    """

    def __init__(
        self,
        spec: RunSpec,
        source: ApplicationFile,
        *,
        client_config: dict[str, str],
        client_config_path: str,
    ) -> None:
        self._spec = spec
        self._source = source
        self._settings = ApplicationSettings.parse(spec.application_id, spec.settings)
        self._cluster = KafkaCluster(client_config, settings=self._settings)
        self._client_config_path = client_config_path
        self._session: SparkSession | None = None

    def run(self) -> RunSummary | None:
        """Run until this run's slice is processed, finishing any older unfinished slice first.

        :return: the ledger's summary when the run is finished (now or before); None when a finish operator
            follows.
        :raises KStreamsError: with cause and remedy.
        """
        topology = self._source.topology()
        plan = topology.plan(self._spec.application_id)
        if self._spec.topology_hash and self._spec.topology_hash != plan.topology_hash:
            raise TopologyError(
                f"the application file builds topology {plan.topology_hash[:12]}, capture saw "
                f"{self._spec.topology_hash[:12]}",
                fix="deploy one version of the application file everywhere, then retry the run",
            )
        coordinator = Coordinator(self._cluster, self._settings)
        try:
            while True:
                begun = coordinator.begin(
                    self._spec.run_id,
                    plan,
                    order=self._spec.order,
                    owner=self._spec.owner,
                    hold_lease=True,
                    groups=partial(topology.partition_groups, self._spec.application_id),
                )
                if begun.finished is not None:
                    log.info("run %s is already finished", self._spec.run_id)
                    return begun.finished
                if begun.slice is None:
                    raise KStreamsError(
                        "begin returned neither a slice nor a summary", fix="report this as a bug"
                    )
                own = begun.slice.run_id == self._spec.run_id
                if not own:
                    log.warning("finishing the unfinished run %s first", begun.slice.run_id)
                summary = self._process(begun.slice, coordinator, finish=self._spec.finish or not own)
                if own:
                    return summary
        finally:
            self._close(coordinator)

    def _close(self, coordinator: Coordinator) -> None:
        """Let go of everything; what fails here is told and must not hide why the run ended."""
        try:
            coordinator.close()
        except KStreamsError as error:
            log.warning("the coordinator could not be closed: %s", error.cause)
        if self._session is not None:
            try:
                self._session.stop()
            except Exception as error:  # py4j raises whatever the lost connection to the JVM raised
                log.warning("the Spark session could not be stopped: %s", type(error).__name__)

    def _process(self, slice_: Slice, coordinator: Coordinator, *, finish: bool) -> RunSummary | None:
        """Process a slice under the lease that begin took, which is given up at the end."""
        with coordinator.keep_lease(on_superseded=self._cancel) as lease:
            if slice_.plan.empty:
                log.info("run %s has nothing new: Spark is not started", slice_.run_id)
            else:
                self._run_jobs(slice_, coordinator, lease)
            lease.stop_renewing()
            lease.check()
            return coordinator.finish(slice_.run_id) if finish else None

    def _run_jobs(self, slice_: Slice, coordinator: Coordinator, lease: LeaseKeeper) -> None:
        if self._session is None:
            self._session = open_session(f"{self._spec.application_id} {self._spec.run_id}")
            log.info("Spark session ready")
            ship_file(self._session, self._client_config_path)
        jobs = RunJobs(
            session=self._session,
            source=self._source,
            settings=self._settings,
            slice_=slice_,
            client_config_path=self._client_config_path,
            unfinished=lambda subtopology: coordinator.unfinished(slice_, subtopology),
            check=lease.check,
        )
        try:
            jobs.run()
        except KStreamsError:
            # Once this driver was superseded, whatever its tasks complain of is only a consequence.
            lease.check()
            raise

    def _cancel(self) -> None:
        if self._session is not None:
            cancel_jobs(self._session)
