"""What every coordinator stands on: the lease that its begin took, and the reads that it decides from.

A lease is a record of the ledger, written under the coordinator's transactional id together with what begins.
Its holder renews it in time; a holder that finds the id claimed by another reads the ledger, and goes on only
if the lease is still its own. Whoever meets the lease of another owner is refused here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.protocol.ledger import Ledger, lease_record, read_ledger
from airflow_kstreams.batch.protocol.log_read import OPEN_TRANSACTION_TIMEOUT_MS, OpenTransactionError
from airflow_kstreams.batch.protocol.metadata import Folded, read_metadata
from airflow_kstreams.batch.protocol.model import Lease, Slice
from airflow_kstreams.batch.protocol.partition_leaders import written_topics
from airflow_kstreams.batch.run.fence import fence
from airflow_kstreams.batch.run.lease_errors import Caller, busy, lost_race, resetting, superseded
from airflow_kstreams.batch.run.lease_keeper import LeaseKeeper
from airflow_kstreams.batch.run.session import CoordinatorSession
from airflow_kstreams.streams.errors import (
    AccessDeniedError,
    ConfigError,
    DataLossError,
    KafkaClientError,
    KStreamsError,
    RunBusyError,
    RunSupersededError,
    TaskFencedError,
)
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import Clock, ClusterPort
from airflow_kstreams.streams.settings import ApplicationSettings

log = logging.getLogger(__name__)

_RENEWALS_PER_LEASE = 3


class LeaseHolder:
    """Renews and gives up the lease that begin took, reads ledger and metadata. Close it after use.

    :param cluster: where everything is kept.
    :param settings: the application's settings.
    :param clock: the machine's unless given.
    """

    def __init__(
        self, cluster: ClusterPort, settings: ApplicationSettings, *, clock: Clock | None = None
    ) -> None:
        self._settings = settings
        self._app = settings.application_id
        self._clock = clock or SystemClock()
        self._cluster = cluster
        self._session = CoordinatorSession(cluster, settings.application_id)
        self._lease: Lease | None = None
        self._superseded: RunSupersededError | None = None

    def keep_lease(self, *, on_superseded: Callable[[], None] | None = None) -> LeaseKeeper:
        """Return a context manager that renews the lease that ``begin`` took, and gives it up at the end.

        :param on_superseded: called once, from another thread, when another driver takes over.
        :raises ConfigError: no lease is held.
        """
        if self._lease is None:
            raise ConfigError("no lease is held", fix="call begin with hold_lease=True first")
        return LeaseKeeper(
            renew=self.renew,
            release=self.release,
            interval_seconds=self._settings.lease_ms / 1000 / _RENEWALS_PER_LEASE,
            on_superseded=on_superseded,
        )

    def renew(self) -> None:
        """Renew the lease.

        :raises RunSupersededError: another driver owns the slice.
        :raises KafkaClientError: the broker did not answer; the lease lasts until it runs out.
        """
        with self._session.writing:
            lease = self._held()
            expires_ms = self._clock.now_ms() + self._settings.lease_ms
            renewed = msgspec.structs.replace(lease, expires_ms=expires_ms)
            try:
                if not self._session.claimed:
                    self._reclaim(lease)
                self._session.write([lease_record(self._app, renewed)])
            except TaskFencedError:
                self._reclaim(lease)
                self._session.write([lease_record(self._app, renewed)])

    def release(self) -> None:
        """Give the lease up, so that the next owner need not wait for its end.

        A writer that may have repeated a request, as when the transaction coordinator moves, is never used
        again; the id is claimed anew then, if the ledger still says that the lease is ours.

        :raises KafkaClientError: the broker did not answer; the lease lasts until it runs out.
        """
        lease = self._lease
        if lease is None:
            return
        try:
            if not self._session.claimed:
                self._reclaim(lease)
            self._session.write([lease_record(self._app, msgspec.structs.replace(lease, expires_ms=0))])
        except (TaskFencedError, RunSupersededError):
            log.info("application %s: the lease was taken over before it was released", self._app)
        finally:
            self._lease = None

    def close(self) -> None:
        """Give up a lease that is still held and close the clients."""
        try:
            self.release()
        except KStreamsError as error:
            log.warning("the lease could not be released and will run out by itself: %s", error)
        finally:
            self._session.close()

    def _read_metadata(
        self, plan: TopologyPlan | None, *, wait_ms: int = OPEN_TRANSACTION_TIMEOUT_MS
    ) -> Folded:
        with self._session.reading:
            return read_metadata(
                self._cluster,
                self._app,
                admin=self._session.admin,
                reader=self._session.reader,
                topics=plan.sources if plan is not None else (),
                wait_ms=wait_ms,
                clock=self._clock,
            )

    def _read_ledger(self, *, wait_ms: int = OPEN_TRANSACTION_TIMEOUT_MS) -> Ledger:
        with self._session.reading:
            return read_ledger(
                self._cluster,
                self._app,
                admin=self._session.admin,
                reader=self._session.reader,
                wait_ms=wait_ms,
                clock=self._clock,
            )

    def _read_fenced(self, plan: TopologyPlan) -> Folded:
        """Read the metadata topic to its end, fencing dead tasks whose open transactions hide it."""
        try:
            return self._read_metadata(plan, wait_ms=1)
        except OpenTransactionError:
            stable = self._read_metadata(plan, wait_ms=0)
            if stable.slice is not None:
                self._fence(stable.slice)
            return self._read_metadata(plan)

    def _fence(self, slice_: Slice) -> None:
        fence(
            self._cluster,
            slice_.plan.transactional_ids,
            admin=self._session.admin,
            topics=written_topics(slice_.plan.topology, settings=self._settings),
        )

    def _new_lease(self, caller: Caller, generation: int) -> Lease:
        return Lease(
            owner_run_id=caller.run_id,
            order=caller.order,
            owner=caller.owner,
            generation=generation,
            expires_ms=self._clock.now_ms() + self._settings.lease_ms,
            continuous=caller.continuous,
        )

    def _held(self) -> Lease:
        if self._superseded is not None:
            raise self._superseded
        if self._lease is None:
            raise ConfigError("no lease is held", fix="call begin with hold_lease=True first")
        return self._lease

    def _is_mine(self, lease: Lease) -> bool:
        mine = self._lease
        return mine is not None and (mine.owner_run_id, mine.order, mine.generation) == (
            lease.owner_run_id,
            lease.order,
            lease.generation,
        )

    def _reclaim(self, lease: Lease) -> None:
        """Claim the coordinator's id again, if the ledger still says that the lease is ours."""
        with self._session.claiming():
            found = self._read_ledger().lease
            if found is None or not self._is_mine(found) or found.expires_ms == 0:
                # Nothing is ours to release any more: a late release would overwrite the new owner's lease.
                self._lease = None
                self._superseded = superseded(self._app, lease, found)
                raise self._superseded

    def _refuse_busy(self, ledger: Ledger, caller: Caller, *, same_run_may_wait: bool = True) -> None:
        if ledger.unfinished_reset is not None:
            raise resetting(self._app, caller, ledger.unfinished_reset)
        lease = ledger.lease
        now_ms = self._clock.now_ms()
        if lease is None or lease.expires_ms <= now_ms or self._is_mine(lease):
            return
        same_run = lease.owner_run_id == caller.run_id and lease.continuous == caller.continuous
        if same_run and (not same_run_may_wait or caller.order > lease.order):
            return
        raise busy(self._app, caller, lease, now_ms=now_ms)

    def _refuse_busy_for_certain(
        self, ledger: Ledger, caller: Caller, *, same_run_may_wait: bool = True
    ) -> None:
        """Refuse a caller that meets a live lease, after a second look that waits for open transactions: the
        lease may have been released a moment ago, and a commit returns before readers see it.
        """
        try:
            self._refuse_busy(ledger, caller, same_run_may_wait=same_run_may_wait)
        except RunBusyError:
            self._refuse_busy(self._read_ledger(), caller, same_run_may_wait=same_run_may_wait)

    @contextmanager
    def _racing(self, caller: Caller, ledger: Ledger) -> Iterator[None]:
        """Tell a caller that lost a race while it began, whatever the loss looked like.

        :param ledger: as the caller saw it before.
        """
        try:
            yield
        except TaskFencedError:
            raise self._lost_race(caller) from None
        except AccessDeniedError:
            raise  # nobody else's doing
        except (DataLossError, KafkaClientError) as error:
            # What looks like lost records may be another coordinator's work, seen half before and half after:
            # it moved offsets and purged what they left behind.
            if error.is_retriable or self._read_ledger() == ledger:
                raise
            raise self._lost_race(caller) from error

    def _lost_race(self, caller: Caller) -> RunBusyError:
        return lost_race(self._app, caller, self._read_ledger().lease)
