"""Holds the coordinator's lease: takes it in begin, renews it, gives it up, and refuses it to others.

A lease is a record of the ledger, written under the coordinator's transactional id together with what begins.
Its holder renews it in time; a holder that finds the id claimed by another coordinator reads the ledger, and
goes on only if the lease is still its own. A caller that meets the lease of another owner waits here until
it is free, and is refused if the owner turns out to be alive (:mod:`.lease_observation`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
import tenacity

from airflow_kstreams.batch.ledger.facts import Lease, ResetRecord
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.protocol.slice.metadata_records import MetadataRecord
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.run.attempts import CoordinatorAttempt
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.lease.lease_observation import LeaseObservation
from airflow_kstreams.batch.run.lease.lease_renewal import LeaseRenewal
from airflow_kstreams.streams.errors import (
    AccessDeniedError,
    ConfigError,
    DataLossError,
    KafkaClientError,
    KStreamsError,
    RunBusyError,
    RunSupersededError,
    TaskFencedError,
    TopologyError,
)
from airflow_kstreams.streams.naming.commands import drop_slice_command
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.streams.printable import package_log

log = package_log(__name__)
_WAIT = "retry later; runs of one application follow each other (set max_active_runs=1)"
_RENEWALS_PER_LEASE = 3
#: Time for which a write under the claim says as much of the lease as a renewal.
_PROVED_SECONDS = 1.0
#: Number of attempts. The second one meets a lease that was renewed a moment ago; more are for stalls.
_CLAIMS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """The caller of begin.

    :param order: (clear number, try number); a higher one of the same run claims it.
    :param owner: name of the caller for messages.
    :param hold_lease: whether the caller is a driver, which works on the slice; else it only freezes the
        slice.
    :param continuous: whether it runs the application continuously.
    """

    run_id: str
    order: tuple[int, int]
    owner: str
    hold_lease: bool
    continuous: bool = False


class CoordinatorLease:
    """The lease of one coordinator, which may hold none.

    :param session: session that writes the lease.
    :param attempt: the attempt whose end is written when the lease is given up.
    """

    def __init__(self, session: CoordinatorSession, attempt: CoordinatorAttempt) -> None:
        self._session = session
        self._attempt = attempt
        self._app = session.application_id
        self._clock = session.clock
        self._lease_ms = session.settings.lease_ms
        self._others = LeaseObservation(session)
        self._held: Lease | None = None
        self._superseded: RunSupersededError | None = None

    @property
    def held(self) -> Lease | None:
        """The lease as it was taken; None without one."""
        return self._held

    def new(self, caller: Claimant, generation: int, *, slice_run_id: str = "") -> Lease:
        """Return a lease for a caller; the begin writes it, and then calls :meth:`take`.

        :param slice_run_id: id of the run whose slice the lease is for; empty for a continuous run.
        """
        return Lease(
            owner_run_id=caller.run_id,
            order=caller.order,
            owner=caller.owner,
            generation=generation,
            expires_ms=self._clock.now_ms() + self._lease_ms,
            continuous=caller.continuous,
            lease_ms=self._lease_ms,
            slice_run_id=slice_run_id,
        )

    def take(self, lease: Lease | None) -> None:
        """Hold a lease that was just written; None if it was given up, or never asked for."""
        self._held = lease

    def end_former(self, ledger: Ledger) -> None:
        """Release the lease that a former owner has left, before a new start fences its tasks.

        The start writes its own lease, and the offsets that it has read, only after that fence. A task
        attempt that claims its transactional id in between would find the former lease in force and go on,
        and the start would overwrite the offsets that it commits.

        :param ledger: the ledger as it was read under the claim, which fenced the former owner.
        :raises TaskFencedError: another coordinator claimed the transactional id.
        """
        former = ledger.held_lease
        if former is not None and self._held is None:
            self._session.write((), lease=msgspec.structs.replace(former, expires_ms=0))

    def keep(self, *, on_superseded: Callable[[], None] | None = None) -> LeaseRenewal:
        """Return a context manager that renews the lease that ``begin`` took, and gives it up at the end.

        :param on_superseded: called once, from another thread, when another driver claims the run.
        :raises ConfigError: no lease is held.
        """
        if self._held is None:
            raise _none_held()
        return self._renewal(self.release, on_superseded)

    @contextmanager
    def renewing(self) -> Iterator[None]:
        """Renew the lease while a block runs that may last longer than it, and hold it still afterwards.

        :raises RunSupersededError: another driver has claimed the run meanwhile.
        """
        with self._renewal(lambda: None) as renewal:
            yield
        if renewal.superseded:
            renewal.check()

    def renew(self, *, stopping: bool = False) -> None:
        """Renew the lease.

        :param stopping: whether to ask the tasks of a continuous run to end cleanly; later renewals ask it
            again.
        :raises RunSupersededError: another driver owns the slice.
        :raises KafkaClientError: the broker did not answer; the lease lasts until it runs out.
        """
        with self._session.writing:
            if self._superseded is not None:
                raise self._superseded
            if self._held is None:
                raise _none_held()
            if stopping:
                self._held = msgspec.structs.replace(self._held, stopping=True)
            expires_ms = self._clock.now_ms() + self._lease_ms
            renewed = msgspec.structs.replace(self._held, expires_ms=expires_ms)
            try:
                self.write((), lease=renewed)
            except TaskFencedError:
                self.reclaim()
                self._session.write((), lease=renewed)

    def write(
        self,
        records: Iterable[MetadataRecord],
        *,
        lease: Lease | None = None,
        offsets: Mapping[TopicPartition, CommittedOffset] | None = None,
    ) -> None:
        """Write decisions of the lease's owner in one transaction.

        :param lease: the lease, if it is to be renewed in the same transaction.
        :param offsets: offsets to commit in the same transaction.
        :raises RunSupersededError: another driver owns the slice.
        :raises TaskFencedError: another coordinator has claimed the id meanwhile, perhaps only to look;
            :meth:`reclaim` tells. Whether the records were written is not known.
        :raises KafkaClientError: the client failed, and the outcome may be unknown.
        """
        with self._session.writing:
            if self._superseded is not None:
                raise self._superseded
            if not self._session.claimed:
                self.reclaim()
            self._session.write(records, lease=lease, offsets=offsets)

    def release(self) -> None:
        """Give the lease up, so that the next owner need not wait for its end.

        A writer that may have repeated a request, as when the transaction coordinator moves, is never used
        again; the id is claimed anew then, if the ledger still says that the lease is ours.

        :raises KafkaClientError: the broker did not answer; the lease lasts until it runs out.
        """
        lease = self._held
        if lease is None:
            return
        try:
            if not self._session.claimed:
                self.reclaim()
            released = msgspec.structs.replace(lease, expires_ms=0)
            self._session.write((), lease=released, histories=self._attempt.closing())
        except (TaskFencedError, RunSupersededError):
            log.info("application %s: another driver claimed the lease before it was released", self._app)
        finally:
            self._held = None
            self._attempt.close()

    def close(self) -> None:
        """Give up a lease that is still held; a failure is logged."""
        try:
            self.release()
        except KStreamsError as error:
            log.warning("the lease could not be released and will run out by itself: %s", error)

    def reclaim(self) -> None:
        """Claim the coordinator's id again, if the ledger still says that the lease is ours.

        :raises RunSupersededError: the ledger says that it is another's.
        """
        with self._session.claiming():
            lease = self._held
            if lease is None:
                raise self._superseded or _none_held()
            ledger = self._session.read_ledger()
            found = ledger.lease
            if found is None or not self._is_mine(found) or found.expires_ms == 0:
                # Nothing is left to release: a release now would overwrite the new owner's lease.
                self._superseded = superseded(self._app, lease, found)
                self._held = None
                raise self._superseded
            self._attempt.look(ledger)

    def is_free(self, ledger: Ledger) -> bool:
        """Whether no owner of the lease can be at work."""
        return self._others.is_free(ledger)

    def refuse_busy(self, ledger: Ledger, caller: Claimant, *, same_run_may_wait: bool = True) -> None:
        """Refuse a caller that meets a live lease of another owner, or a reset that is not done.

        :param ledger: the ledger as it is now, read after :meth:`await_turn`, so that a lease was watched for
            long enough.
        :param same_run_may_wait: whether the caller waits for an owner of the same run and order.
        :raises RunBusyError: the caller must wait.
        """
        if ledger.unfinished_reset is not None:
            raise resetting(self._app, caller, ledger.unfinished_reset)
        lease = self._in_the_way(ledger, caller, same_run_may_wait=same_run_may_wait)
        if lease is not None:
            raise busy(self._app, caller, lease)

    def await_turn(self, ledger: Ledger, caller: Claimant, *, same_run_may_wait: bool = True) -> Ledger:
        """Wait until the lease of another owner is free, at most for as long as it lasts.

        Before that comes a second look, which waits for open transactions: the lease may have been released a
        moment ago, and a commit returns before readers see it.

        :return: the ledger after the wait.
        :raises RunBusyError: the owner is alive, or the application is being reset.
        """
        if (
            ledger.unfinished_reset is not None
            or self._in_the_way(ledger, caller, same_run_may_wait=same_run_may_wait) is not None
        ):
            ledger = self._session.read_ledger()
            if (
                ledger.unfinished_reset is None
                and self._in_the_way(ledger, caller, same_run_may_wait=same_run_may_wait) is not None
            ):
                ledger = self._others.watch(ledger, waiting=f"run {caller.run_id}")
        self.refuse_busy(ledger, caller, same_run_may_wait=same_run_may_wait)
        return ledger

    def taking_over(self, caller: Claimant, *, same_run_may_wait: bool = True) -> tenacity.Retrying:
        """Return a retry policy that calls a function again while the lease is of an owner whose run the
        caller claims.

        Such an owner may be alive, as a driver is that its worker left behind: when it renews its lease
        between the caller's claim and write, it finds the lease still its own, and claims the id back.

        :param same_run_may_wait: whether the caller waits for an owner of the same run and order.
        """

        def overtaken(error: BaseException) -> bool:
            if not isinstance(error, RunBusyError):
                return False
            ledger = self._session.read_ledger()
            lease = ledger.held_lease
            return (
                ledger.unfinished_reset is None
                and lease is not None
                and _takes_over(caller, lease, same_run_may_wait=same_run_may_wait)
            )

        def again(state: tenacity.RetryCallState) -> None:
            log.warning(
                "application %s: another driver renewed its lease meanwhile, claim %d of %d follows",
                self._app,
                state.attempt_number + 1,
                _CLAIMS,
            )

        return tenacity.Retrying(
            retry=tenacity.retry_if_exception(overtaken),
            stop=tenacity.stop_after_attempt(_CLAIMS),
            before_sleep=again,
            reraise=True,
        )

    @contextmanager
    def racing(self, caller: Claimant, ledger: Ledger) -> Iterator[None]:
        """Turn every error by which a caller loses a race into a RunBusyError that says so.

        :param ledger: the ledger as the caller saw it before the race.
        """
        try:
            yield
        except TaskFencedError:
            raise self.lost_race(caller) from None
        except AccessDeniedError:
            raise  # no other coordinator's doing
        except (DataLossError, TopologyError, KafkaClientError) as error:
            # An error that names lost records, or another application, may come from another coordinator's
            # work, seen half before and half after: it moved offsets and purged the records before them, and
            # its tasks wrote to topics that it created.
            if error.is_retriable or self._session.read_ledger() == ledger:
                raise
            raise self.lost_race(caller) from error

    def lost_race(self, caller: Claimant) -> RunBusyError:
        """Build the error for a caller whose claim was overtaken."""
        return lost_race(self._app, caller, self._session.read_ledger().lease)

    def _in_the_way(self, ledger: Ledger, caller: Claimant, *, same_run_may_wait: bool) -> Lease | None:
        """Return the lease of another owner that a caller has to wait for."""
        lease = ledger.held_lease
        if lease is None or self._others.is_free(ledger) or self._is_mine(lease):
            return None
        return None if _takes_over(caller, lease, same_run_may_wait=same_run_may_wait) else lease

    def _renewal(
        self, release: Callable[[], None], on_superseded: Callable[[], None] | None = None
    ) -> LeaseRenewal:
        return LeaseRenewal(
            renew=self.renew,
            release=release,
            interval_seconds=self._lease_ms / 1000 / _RENEWALS_PER_LEASE,
            on_superseded=on_superseded,
            proved=lambda: self._session.has_written_within(_PROVED_SECONDS),
        )

    def _is_mine(self, lease: Lease) -> bool:
        mine = self._held
        return mine is not None and (mine.owner_run_id, mine.order, mine.generation) == (
            lease.owner_run_id,
            lease.order,
            lease.generation,
        )


def _takes_over(caller: Claimant, lease: Lease, *, same_run_may_wait: bool) -> bool:
    """Whether a lease is of the caller's own run, and of an attempt that the caller follows."""
    same_run = lease.owner_run_id == caller.run_id and lease.continuous == caller.continuous
    return same_run and (not same_run_may_wait or caller.order > lease.order)


def _none_held() -> ConfigError:
    return ConfigError("no lease is held", fix="call begin with hold_lease=True first")


def busy(application_id: str, caller: Claimant, lease: Lease) -> RunBusyError:
    """Build the error for a caller that has seen the owner of a lease take or renew it."""
    doing, fix = "works on run", _WAIT
    if lease.continuous:
        doing = "stops it as" if lease.stopping else "runs it continuously as"
        fix = f"stop it by sending SIGTERM to {lease.owner}, wait for its end, then retry"
    return RunBusyError(
        f"application {application_id!r} is busy: {lease.owner} {doing} {lease.owner_run_id!r} and has just "
        f"renewed its lease; run {caller.run_id!r} must wait",
        fix=fix,
        run_id=caller.run_id,
        owner=lease.owner,
        owner_run_id=lease.owner_run_id,
    )


def lost_race(application_id: str, caller: Claimant, lease: Lease | None) -> RunBusyError:
    """Build the error for a caller whose claim was overtaken before it could write."""
    owner = "another coordinator" if lease is None else lease.owner
    return RunBusyError(
        f"application {application_id!r} is busy: {owner} began at the same moment as run {caller.run_id!r}",
        fix=_WAIT,
        run_id=caller.run_id,
        owner=owner,
        owner_run_id="" if lease is None else lease.owner_run_id,
    )


def superseded(application_id: str, lease: Lease, found: Lease | None) -> RunSupersededError:
    """Build the error for an owner whose lease belongs to another one now."""
    who = "no driver" if found is None else f"{found.owner} for run {found.owner_run_id!r}"
    return RunSupersededError(
        f"run {lease.owner_run_id!r} of application {application_id!r} was claimed by another driver: the "
        f"lease of generation {lease.generation} now belongs to {who}",
        fix="nothing: the new owner finishes the run",
        run_id=lease.owner_run_id,
    )


def refuse_other_topology(slice_: Slice, plan: TopologyPlan) -> None:
    """Refuse an unfinished slice that the application file no longer fits.

    :raises TopologyError: the topology has another hash.
    """
    if slice_.plan.topology.topology_hash != plan.topology_hash:
        raise TopologyError(
            f"run {slice_.run_id!r} of application {plan.application_id!r} began with topology "
            f"{slice_.plan.topology.topology_hash[:12]} and is not finished, the application file now builds "
            f"{plan.topology_hash[:12]}",
            fix="deploy the old application file and finish the run, or drop its slice, so that the next run "
            f"goes on where it stopped: {drop_slice_command(plan.application_id)}",
        )


def refuse_other_application(plan: TopologyPlan, application_id: str) -> None:
    """Refuse a plan that was built for another application.

    :raises ConfigError: the application ids differ.
    """
    if plan.application_id != application_id:
        raise ConfigError(
            f"the plan is of application {plan.application_id!r}, the settings are of {application_id!r}",
            fix="build the plan with the same application id",
        )


def resetting(application_id: str, caller: Claimant, reset: ResetRecord) -> RunBusyError:
    """Build the error for a caller that meets a reset that is not done."""
    return RunBusyError(
        f"application {application_id!r} is being reset, or its reset was interrupted; run "
        f"{caller.run_id!r} must wait",
        fix=f"retry when the reset is done; if it was interrupted, run it again: {reset.command}",
        run_id=caller.run_id,
        owner="reset",
    )
