"""The coordinator of runs: begin, lease, unfinished, finish (DESIGN 4).

Every decision is written in one transaction under ``<app>-coordinator`` and is made from what was read after
that id was claimed. Crash argument: a crash before the commit leaves what was there; after it, the whole of
what was decided. A coordinator that loses a race finds its id fenced at the commit, and nothing of its
decision is seen.

The order in ``begin``, where each line may be the last one that runs:

0. Ledger says finished -> its summary. Read without waiting; a summary, once there, stays.
1. A live lease of another owner -> RunBusyError, before any claim, so that the owner is not disturbed.
2. Claim; read ledger and metadata again, to their ends. Repeat 0 and 1 on what is now certain.
3. RUNNING -> keep every frozen fact; a driver takes it over with generation + 1 and its lease.
4. NEW or FINISHED -> fence, freeze, and write tombstones, stop offsets, completed marker (and partition
   groups, and lease).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from airflow_kstreams.batch.assignment import AskGroups
from airflow_kstreams.batch.begin import build_slice
from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.fence import fence
from airflow_kstreams.batch.finish import FinishedSlice, close_slice
from airflow_kstreams.batch.freeze import SliceRequest
from airflow_kstreams.batch.intervals import check_interval
from airflow_kstreams.batch.known import unless_void
from airflow_kstreams.batch.leaders import written_topics
from airflow_kstreams.batch.lease import LeaseKeeper
from airflow_kstreams.batch.ledger import (
    Ledger,
    assignment_record,
    check_run_id,
    continuous_record,
    lease_record,
    read_ledger,
    summary_record,
)
from airflow_kstreams.batch.limits import refuse_unfit_timeouts
from airflow_kstreams.batch.log_read import OPEN_TRANSACTION_TIMEOUT_MS, OpenTransactionError
from airflow_kstreams.batch.metadata import Folded, read_metadata
from airflow_kstreams.batch.metadata_records import (
    completed_record,
    finished_record,
    slice_records,
    tombstone,
)
from airflow_kstreams.batch.model import BeginResult, Lease, RunState, RunSummary, Slice
from airflow_kstreams.batch.ownership import Caller, busy, lost_race, other_topology, resetting, superseded
from airflow_kstreams.batch.session import CoordinatorSession
from airflow_kstreams.batch.stops import unfinished_groups
from airflow_kstreams.batch.topics import ensure_protocol_topics, refuse_other_topics
from airflow_kstreams.streams.errors import (
    AccessDeniedError,
    ConfigError,
    DataLossError,
    KafkaClientError,
    KStreamsError,
    RunBusyError,
    RunError,
    RunSupersededError,
    TaskFencedError,
)
from airflow_kstreams.streams.ports import Clock, ClusterPort
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.plan import TopologyPlan

log = logging.getLogger(__name__)

_RENEWALS_PER_LEASE = 3


class Coordinator:
    """Coordinates the runs of one application. Close it after use.

    :param cluster: where everything is kept.
    :param settings: the application's settings.
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

    def begin(
        self,
        run_id: str,
        plan: TopologyPlan,
        *,
        order: tuple[int, int] = (0, 0),
        owner: str = "",
        hold_lease: bool,
        groups: AskGroups | None = None,
        interval_ms: tuple[int, int] | None = None,
    ) -> BeginResult:
        """Begin a run, or find what it, or an older one, has begun already.

        :param order: (clear number, try number); a higher one of the same run takes over.
        :param owner: names the caller in messages.
        :param hold_lease: whether to take the lease, as a driver does; without it the slice waits for a
            driver.
        :param groups: asks the topology's own partition grouper for the groups, given partition counts;
            needed only by a plan that names one, and called only when a new slice is made.
        :param interval_ms: data interval of the run, epoch milliseconds; kept in the ledger, and decides what
            is read if ``autostop.at`` says so.
        :raises ConfigError: transactions could not last as long as the settings say, the run id cannot be
            used, or the run goes by its data interval and has none.
        :raises RunBusyError: another owner holds a live lease, or won a race; or the application is being
            reset.
        :raises TopologyError: topics or partition groups do not fit, or the unfinished slice belongs to
            another topology.
        :raises DataLossError: what the run would start at is gone, or a topic of the unfinished slice was
            created again.
        """
        check_run_id(run_id)
        check_interval(self._settings, run_id, interval_ms)
        self._refuse_other_application(plan)
        caller = Caller(
            run_id=run_id,
            order=order,
            owner=owner or run_id,
            hold_lease=hold_lease,
            interval_ms=interval_ms,
        )
        ledger = self._read_ledger(wait_ms=0)
        if run_id in ledger.runs:
            return BeginResult(finished=ledger.runs[run_id])
        waiting = self._waiting_slice(caller, plan, ledger)
        if waiting is not None:
            return BeginResult(slice=waiting)
        self._refuse_busy_for_certain(ledger, caller)
        refuse_unfit_timeouts(self._settings, self._session.admin)
        ensure_protocol_topics(self._session.admin, self._settings)
        with self._racing(caller, ledger):
            return self._begin_claimed(caller, plan, groups)

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

    def unfinished(self, slice_: Slice, subtopology_id: int) -> Sequence[int]:
        """Return the groups of a subtopology whose tasks are not at their stop, or have not notified.

        :raises UpstreamNotDoneError: a subtopology before this one is not done.
        """
        folded = self._read_metadata(None)
        with self._session.reading:
            return unfinished_groups(slice_, subtopology_id, folded=folded, reader=self._session.reader)

    def finish(self, run_id: str) -> RunSummary:
        """Write the finished marker and the run's summary, if everything is at its stop. Idempotent.

        :raises RunBusyError: another run's owner holds a live lease.
        :raises UpstreamNotDoneError: done notifications are missing.
        :raises RunError: the run has no slice, or a partition is not at its stop offset.
        :raises DataLossError: a topic is not the one the run began with.
        """
        check_run_id(run_id)
        ledger = self._read_ledger(wait_ms=0)
        if run_id in ledger.runs:
            return ledger.runs[run_id]
        caller = Caller(run_id=run_id, order=(0, 0), owner=run_id, hold_lease=False)
        self._refuse_busy_for_certain(ledger, caller, same_run_may_wait=False)
        try:
            return self._finish_claimed(run_id, caller)
        except TaskFencedError:
            if self._lease is None:
                raise self._lost_race(caller) from None
        except KafkaClientError as error:
            # Somebody else may have finished the run meanwhile, and purged what was being read here.
            if error.is_retriable or run_id not in (ledger := self._read_ledger()).runs:
                raise
            return ledger.runs[run_id]
        # Whoever fenced the owner of the lease was refused, has taken over, or has finished the run itself;
        # the ledger tells which.
        self._reclaim(self._lease)
        ledger = self._read_ledger()
        return ledger.runs[run_id] if run_id in ledger.runs else self._finish_claimed(run_id, caller)

    def close(self) -> None:
        """Give up a lease that is still held and close the clients."""
        try:
            self.release()
        except KStreamsError as error:
            log.warning("the lease could not be released and will run out by itself: %s", error)
        finally:
            self._session.close()

    def _refuse_other_application(self, plan: TopologyPlan) -> None:
        if plan.application_id != self._app:
            raise ConfigError(
                f"the plan is of application {plan.application_id!r}, the settings are of {self._app!r}",
                fix="build the plan with the same application id",
            )

    def _waiting_slice(self, caller: Caller, plan: TopologyPlan, ledger: Ledger) -> Slice | None:
        """Return the run's own slice to a caller that takes no lease: there is nothing to write, nobody to
        disturb.
        """
        if caller.hold_lease or ledger.switched is not None:
            return None
        folded = self._read_metadata(plan, wait_ms=0)
        slice_ = folded.slice
        if folded.state is not RunState.RUNNING or slice_ is None or slice_.run_id != caller.run_id:
            return None
        self._refuse_other_topology(slice_, plan)
        return slice_

    def _begin_claimed(self, caller: Caller, plan: TopologyPlan, groups: AskGroups | None) -> BeginResult:
        self._session.claim()
        ledger = self._read_ledger()
        if caller.run_id in ledger.runs:
            return BeginResult(finished=ledger.runs[caller.run_id])
        self._refuse_busy(ledger, caller)
        folded = unless_void(self._read_fenced(plan), ledger)
        if folded.state is RunState.RUNNING and folded.slice is not None:
            return BeginResult(slice=self._resume(caller, plan, folded, folded.slice))
        request = SliceRequest(
            run_id=caller.run_id,
            plan=plan,
            generation=1 if caller.hold_lease else 0,
            groups=groups,
            interval_ms=caller.interval_ms,
        )
        try:
            new = build_slice(
                self._session, self._settings, self._clock, request=request, folded=folded, ledger=ledger
            )
        except DataLossError as error:
            if self._has_begun_meanwhile(plan, folded, ledger):
                raise self._lost_race(caller) from error
            raise
        records = [tombstone(self._app, key) for key in folded.live_keys]
        records += slice_records(new.slice, owner=caller.owner)
        if new.assignment is not None:
            records.append(assignment_record(self._app, new.assignment))
        if ledger.switched is not None:
            over = msgspec.structs.replace(ledger.switched, over=True)
            records.append(continuous_record(self._app, over))
        lease = self._new_lease(caller, new.slice.generation) if caller.hold_lease else None
        if lease is not None:
            records.append(lease_record(self._app, lease))
        self._session.write(records, offsets=new.offsets)
        self._lease = lease
        log.info(
            "application %s: run %s began, at most %d input records%s",
            self._app,
            caller.run_id,
            new.slice.record_span,
            ", nothing new" if new.slice.plan.empty else "",
        )
        return BeginResult(slice=new.slice, created=True)

    def _has_begun_meanwhile(self, plan: TopologyPlan, before: Folded, ledger: Ledger) -> bool:
        """Whether the metadata topic holds another slice than it did: one without a driver yet, so that the
        ledger need not tell. Its offsets name a run that has begun, beside what was read before it.

        :param ledger: as it was then.
        """
        now = unless_void(self._read_metadata(plan), ledger)
        return (now.state, now.slice) != (before.state, before.slice)

    def _resume(self, caller: Caller, plan: TopologyPlan, folded: Folded, slice_: Slice) -> Slice:
        """Take over an unfinished slice, this run's own or an older one's."""
        self._refuse_other_topology(slice_, plan)
        refuse_other_topics(self._session.admin, slice_, slice_.plan.topology.sources)
        if not caller.hold_lease:
            return slice_
        taken = msgspec.structs.replace(slice_, generation=slice_.generation + 1)
        lease = self._new_lease(caller, taken.generation)
        self._session.write([completed_record(taken, owner=caller.owner), lease_record(self._app, lease)])
        self._lease = lease
        # Tasks of the former owner may hold offsets in open transactions, and nobody could read how far they
        # are until those have timed out.
        if slice_.generation and not slice_.plan.empty:
            self._fence(slice_)
        log.info("application %s: %s took over the slice of run %s", self._app, caller.owner, slice_.run_id)
        return taken

    def _finish_claimed(self, run_id: str, caller: Caller) -> RunSummary:
        ledger = Ledger()
        if not self._session.claimed:
            with self._session.claiming():
                ledger = self._read_ledger()
                if run_id in ledger.runs:
                    return ledger.runs[run_id]
                self._refuse_busy(ledger, caller, same_run_may_wait=False)
        folded = unless_void(self._read_metadata(None), ledger)
        slice_ = folded.slice
        if slice_ is None or folded.state is RunState.NEW or slice_.run_id != run_id:
            found = "nothing" if slice_ is None else f"run {slice_.run_id!r}, {folded.state.value}"
            raise RunError(
                f"run {run_id!r} of application {self._app!r} cannot be finished: it has no slice, the "
                "metadata "
                f"topic holds {found}",
                fix="begin the run first",
                run_id=run_id,
            )
        done = close_slice(self._session, self._clock, slice_=slice_, folded=folded)
        records = [finished_record(slice_, owner=folded.owner), summary_record(done.summary)]
        release = self._lease is not None and self._lease.owner_run_id == run_id
        if release and self._lease is not None:
            records.append(lease_record(self._app, msgspec.structs.replace(self._lease, expires_ms=0)))
        self._session.write(records, offsets=done.offsets)
        if release:
            self._lease = None
        self._purge(done)
        return done.summary

    def _purge(self, done: FinishedSlice) -> None:
        """Delete processed repartition records; only saves space, so a failure is told and left to the next
        run.
        """
        try:
            self._session.admin.delete_records(done.purge)
        except KStreamsError as error:
            log.warning("repartition topics of application %s could not be purged: %s", self._app, error)

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

    def _is_mine(self, lease: Lease) -> bool:
        mine = self._lease
        return mine is not None and (mine.owner_run_id, mine.order, mine.generation) == (
            lease.owner_run_id,
            lease.order,
            lease.generation,
        )

    def _held(self) -> Lease:
        if self._superseded is not None:
            raise self._superseded
        if self._lease is None:
            raise ConfigError("no lease is held", fix="call begin with hold_lease=True first")
        return self._lease

    def _reclaim(self, lease: Lease) -> None:
        """Claim the coordinator's id again, if the ledger still says that the lease is ours."""
        with self._session.claiming():
            found = self._read_ledger().lease
            if found is None or not self._is_mine(found) or found.expires_ms == 0:
                # Nothing is ours to release any more: a late release would overwrite the new owner's lease.
                self._lease = None
                self._superseded = superseded(self._app, lease, found)
                raise self._superseded

    def _refuse_other_topology(self, slice_: Slice, plan: TopologyPlan) -> None:
        if slice_.plan.topology.topology_hash != plan.topology_hash:
            raise other_topology(slice_, plan)

    def _lost_race(self, caller: Caller) -> RunBusyError:
        return lost_race(self._app, caller, self._read_ledger().lease)
