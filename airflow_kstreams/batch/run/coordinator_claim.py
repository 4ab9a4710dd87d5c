"""Claims the coordinator's transactional id for a begin, bounded or endless, and keeps the failure of a
caller that ends without a lease.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from airflow_kstreams.batch.ledger.history import Part
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.ledger.writes import LedgerChange
from airflow_kstreams.batch.protocol.logs.log_read import refuse_unfit_timeouts
from airflow_kstreams.batch.run.attempts import CoordinatorAttempt
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.lease.lease import Claimant, CoordinatorLease
from airflow_kstreams.streams.errors import KStreamsError, RunBusyError, RunSupersededError, TaskFencedError
from airflow_kstreams.streams.ports import AdminPort
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.settings import ApplicationSettings

log = package_log(__name__)
#: A caller with one of these errors was refused, or has lost the claim.
_NO_ATTEMPTS = (RunBusyError, RunSupersededError, TaskFencedError)


class CoordinatorClaim:
    """The claim of one coordinator's transactional id.

    :param session: session that makes the claim.
    :param lease: the lease that a begin takes under it.
    :param attempt: the attempt that the caller makes.
    """

    def __init__(
        self, session: CoordinatorSession, lease: CoordinatorLease, attempt: CoordinatorAttempt
    ) -> None:
        self._session = session
        self._lease = lease
        self._attempt = attempt

    @contextmanager
    def keeping_failures(self, caller: Claimant, part: Part, *, dag_id: str = "") -> Iterator[None]:
        """Keep the attempt that a caller makes in the block, and its failure.

        While the lease is held, its release writes how the attempt ended. Without one, a failure is written
        here, if the block has claimed the coordinator's id and was not refused: without a claim nothing may
        be written, and a caller that must wait has made no attempt.

        :param part: the part of the run that the block works on.
        :param dag_id: the DAG that starts the run; empty if none, or if it is known already.
        """
        attempt = self._attempt
        attempt.start(caller.run_id, part=part, owner=caller.owner, order=caller.order, dag_id=dag_id)
        try:
            yield
        except BaseException as error:
            attempt.ended(error)
            if self._lease.held is None:
                self._keep_failure(error)
            raise

    def _keep_failure(self, error: BaseException) -> None:
        """Write the end of an attempt that holds no lease, in a transaction of its own."""
        kept = isinstance(error, KStreamsError) and not isinstance(error, _NO_ATTEMPTS)
        # An attempt that is open has lost its lease to another one.
        if kept and self._attempt.known and not self._attempt.is_open and self._session.claimed:
            try:
                # It may have released the lease of a former owner since it read the ledger.
                ledger = self._session.read_ledger()
                self._session.write((), ledger=LedgerChange(ledger=ledger), histories=self._attempt.closing())
            except KStreamsError as failure:
                log.warning(
                    "application %s: the ledger does not keep why this attempt failed: %s",
                    self._session.application_id,
                    failure.cause,
                )
        self._attempt.close()

    @contextmanager
    def beginning(
        self,
        caller: Claimant,
        ledger: Ledger,
        *,
        ensure_topics: Callable[[AdminPort, ApplicationSettings], None],
    ) -> Iterator[Ledger]:
        """Claim the coordinator's id for a run that begins in the block, bounded or endless: steps 1 and 2.

        The block decides from the ledger that it gets, refuses the caller again by it, and writes once.

        :param ledger: the ledger, read without waiting.
        :param ensure_topics: function that creates the protocol's topics that the run needs.
        :raises ConfigError: transactions could not last as long as the settings say.
        :raises RunBusyError: another owner is alive, as its renewals show, or won a race.
        """
        ledger = self._lease.await_turn(ledger, caller)
        self._session.prepare_claim()
        refuse_unfit_timeouts(self._session.settings, self._session.admin)
        ensure_topics(self._session.admin, self._session.settings)
        with self._lease.racing(caller, ledger):
            self._session.claim()
            yield self._session.read_ledger()
