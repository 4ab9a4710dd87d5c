"""The coordinator of continuous runs: their start, and what their driver does while they last.

The order at the start is that of ``Coordinator.begin``: look for a live lease, claim the coordinator's id,
look again, decide, and write all of it in one transaction. Only the holder of the lease deletes the metadata
topic then, and only after that tasks may start; see ``start.py`` for what is written and why nothing is lost.
"""

from __future__ import annotations

import logging

from airflow_kstreams.batch.continuous.start import build_continuous_run
from airflow_kstreams.batch.protocol.ledger import (
    assignment_record,
    check_run_id,
    continuous_record,
    lease_record,
)
from airflow_kstreams.batch.protocol.model import ContinuousRun, RunState
from airflow_kstreams.batch.protocol.stops import partitions_of
from airflow_kstreams.batch.protocol.topics import ensure_ledger_topic, refuse_other_topics
from airflow_kstreams.batch.protocol.transaction_timeouts import refuse_unfit_timeouts
from airflow_kstreams.batch.run.assignment import AskGroups
from airflow_kstreams.batch.run.lease import CoordinatorLease
from airflow_kstreams.batch.run.lease_errors import Caller, refuse_other_application, refuse_other_topology
from airflow_kstreams.batch.run.prior_runs import unless_void
from airflow_kstreams.batch.run.session import CoordinatorSession
from airflow_kstreams.batch.run.slice_request import SliceRequest
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import Clock, ClusterPort
from airflow_kstreams.streams.protocol_topics import ProtocolTopics
from airflow_kstreams.streams.settings import ApplicationSettings

log = logging.getLogger(__name__)


class ContinuousCoordinator:
    """Coordinates the continuous runs of one application. Close it after use.

    :param cluster: where everything is kept.
    :param settings: the application's settings.
    :param clock: the machine's unless given.
    :ivar lease: the lease that :meth:`begin_continuous` took, to be renewed and given up.
    """

    def __init__(
        self, cluster: ClusterPort, settings: ApplicationSettings, *, clock: Clock | None = None
    ) -> None:
        self._settings = settings
        self._app = settings.application_id
        self._session = CoordinatorSession(cluster, settings, clock=clock)
        self.lease = CoordinatorLease(self._session)

    def begin_continuous(
        self,
        run_id: str,
        plan: TopologyPlan,
        *,
        order: tuple[int, int] = (0, 0),
        owner: str = "",
        groups: AskGroups | None = None,
    ) -> ContinuousRun:
        """Begin to run continuously, and take the lease. :meth:`delete_metadata` must follow before any task.

        :param order: as for :meth:`Coordinator.begin`; a higher one of the same run takes over.
        :param owner: names the caller in messages.
        :param groups: as for :meth:`Coordinator.begin`.
        :raises ConfigError: transactions could not last as long as the settings say, or the run id cannot be
            used.
        :raises RunBusyError: another owner holds a live lease, or won a race.
        :raises TopologyError: topics or partition groups do not fit, or an unfinished batch belongs to
            another topology.
        :raises DataLossError: what a partition would start at is gone.
        """
        check_run_id(run_id)
        refuse_other_application(plan, self._app)
        caller = Caller(run_id=run_id, order=order, owner=owner or run_id, hold_lease=True, continuous=True)
        ledger = self._session.read_ledger(wait_ms=0)
        self.lease.refuse_busy_for_certain(ledger, caller)
        refuse_unfit_timeouts(self._settings, self._session.admin)
        ensure_ledger_topic(self._session.admin, self._settings)
        with self.lease.racing(caller, ledger):
            return self._begin_continuous_claimed(caller, plan, groups)

    def delete_metadata(self) -> None:
        """Delete the metadata topic, which a continuous run has made void, and wait until it is gone.

        :raises RunSupersededError: the lease is not held any more.
        :raises KafkaClientError: the broker did not do it in time.
        """
        self.lease.renew()
        self._session.admin.delete_topics([ProtocolTopics(self._app).metadata])

    def announce_stop(self) -> None:
        """Ask the tasks of a continuous run to end cleanly; every later renewal of the lease says it again.

        :raises RunSupersededError: another driver owns the application.
        :raises KafkaClientError: the broker did not answer.
        """
        self.lease.renew(stopping=True)

    def purge_processed(self, run: ContinuousRun) -> None:
        """Delete the records of repartition topics that a continuous run has processed; only saves space.

        :raises KafkaClientError: the broker did not answer.
        """
        topics = run.plan.topology.repartition_topics
        partitions = [tp for topic in topics for tp in partitions_of(run.slice, topic)]
        committed = self._session.committed(partitions)
        self._session.admin.delete_records(
            {tp: found.offset for tp, found in committed.items() if found.offset}
        )

    def grown_topics(self, run: ContinuousRun) -> dict[str, tuple[int, int]]:
        """Return source topics with more partitions than the run reads: how many it reads, and how many there
        are.

        :raises KafkaClientError: the broker did not answer.
        """
        found = self._session.admin.describe_topics(run.plan.topology.sources)
        return {
            topic: (read, found[topic].partitions)
            for topic, read in run.plan.partitions.items()
            if topic in found and found[topic].partitions > read
        }

    def close(self) -> None:
        """Give up a lease that is still held, and close the clients."""
        try:
            self.lease.close()
        finally:
            self._session.close()

    def _begin_continuous_claimed(
        self, caller: Caller, plan: TopologyPlan, groups: AskGroups | None
    ) -> ContinuousRun:
        self._session.claim()
        ledger = self._session.read_ledger()
        self.lease.refuse_busy(ledger, caller)
        folded = unless_void(self._session.read_fenced(plan), ledger)
        if folded.state is RunState.RUNNING and folded.slice is not None:
            refuse_other_topology(folded.slice, plan)
            refuse_other_topics(self._session.admin, folded.slice, folded.slice.plan.topology.sources)
        generation = ledger.continuous.generation + 1 if ledger.continuous is not None else 1
        new = build_continuous_run(
            self._session,
            request=SliceRequest(run_id=caller.run_id, plan=plan, generation=generation, groups=groups),
            folded=folded,
            ledger=ledger,
        )
        lease = self.lease.new(caller, generation)
        records = [lease_record(self._app, lease), continuous_record(self._app, new.run)]
        if new.assignment is not None:
            records.append(assignment_record(self._app, new.assignment))
        self._session.write(records, offsets=new.offsets)
        self.lease.take(lease)
        log.info("application %s: continuous run %s began", self._app, caller.run_id)
        return new.run
