"""Gives up the expansions of processors that are under way.

Order, where each line may be the last one that runs::

    claim       the coordinator's transactional id: a begin that is about to take over cannot write any more
    void        source by source: claim its id, and let its offset name no expansion
    write       to the ledger what it says already: proof that no begin has claimed the coordinator's id since
    clear       delete what lies in the changelogs of the processors that never came

Crash argument: before all is void, the expansion is under way, and a begin that looks finds sources of which
nothing is copied. After that nothing counts any more; what was not cleared is cleared before an expansion
writes there again. A begin that claims after the proof finds everything void; one that has claimed before it
makes the proof fail, and nothing is cleared: it may have taken over.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Self

from airflow_kstreams.batch.expand.growth import last_topology
from airflow_kstreams.batch.expand.processor_plan import ProcessorPlan, expansions
from airflow_kstreams.batch.growing.state_copy import StateCopy
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.ledger.writes import LedgerChange
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.lease.lease_observation import LeaseObservation
from airflow_kstreams.streams.errors import RunBusyError, TaskFencedError
from airflow_kstreams.streams.ports import Clock, ClusterPort
from airflow_kstreams.streams.settings import ApplicationSettings


class ExpansionAbort:
    """Gives up what is under way; a context manager that closes its clients.

    :param cluster: where the application is.
    :param settings: of the application, as its runs have them.
    """

    def __init__(
        self, cluster: ClusterPort, settings: ApplicationSettings, *, clock: Clock | None = None
    ) -> None:
        self._cluster, self._settings = cluster, settings
        self._session = CoordinatorSession(cluster, settings, clock=clock)
        self._leases = LeaseObservation(self._session)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def plan(self) -> list[ProcessorPlan]:
        """Return what :meth:`run` would give up. Changes nothing, disturbs no run.

        :raises ConfigError: the application has no run yet.
        """
        return self._under_way(self._session.read_ledger(wait_ms=0))

    def run(self) -> list[ProcessorPlan]:
        """Give it up, and return what it was.

        :raises ConfigError: the application has no run yet.
        :raises RunBusyError: a run is at work, or has begun meanwhile.
        :raises KafkaClientError: the broker refuses, or does not answer; the same again goes on.
        """
        if not self.plan():
            return []
        ledger = self._leases.watch(self._session.read_ledger(), waiting="the command")
        self._refuse_busy(ledger)
        try:
            self._session.claim()
            ledger = self._session.read_ledger()
            self._refuse_busy(ledger)
            plans = self._under_way(ledger)
            with ExitStack() as clients:
                copies = [
                    clients.enter_context(
                        StateCopy(self._cluster, self._settings, work, clock=self._session.clock)
                    )
                    for plan in plans
                    for work in plan.works
                ]
                for copy in copies:
                    copy.claim()
                    copy.void()
                self._session.write((), ledger=LedgerChange(ledger=ledger))
                for copy in copies:
                    copy.clear()
        except TaskFencedError as error:
            raise self._busy(
                ledger,
                "a run has begun while its expansion was being given up, and may have taken it over",
                fix="look at its status, then give up what is left",
            ) from error
        return plans

    def _under_way(self, ledger: Ledger) -> list[ProcessorPlan]:
        return expansions(self._session, last_topology(self._session, ledger), ledger)

    def _refuse_busy(self, ledger: Ledger) -> None:
        lease = ledger.held_lease
        if lease is not None and not self._leases.is_free(ledger):
            raise self._busy(
                ledger,
                f"{lease.owner} works on run {lease.owner_run_id!r}; an expansion is given up between runs",
                fix="wait for the run to end, then give it up",
            )

    def _busy(self, ledger: Ledger, why: str, *, fix: str) -> RunBusyError:
        lease = ledger.held_lease
        return RunBusyError(
            f"application {self._settings.application_id!r}: {why}",
            fix=fix,
            run_id="",
            owner="" if lease is None else lease.owner,
            owner_run_id="" if lease is None else lease.owner_run_id,
            lease_expires_ms=0 if lease is None else lease.expires_ms,
        )
