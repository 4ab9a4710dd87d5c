"""Coordinates the runs of an application: begin, the stops of intermediate topics, unfinished tasks, finish.
How a run without an end begins, under the same claim, is in :mod:`airflow_kstreams.batch.continuous.start`.

Every decision is written in one transaction under ``<app>-coordinator`` and is made from records that were
read after that id was claimed. Crash argument: a crash before the commit changes nothing; after it, the whole
decision is there. A coordinator that loses a race finds its id fenced at the commit, and nothing of its
decision is seen.

The order in ``begin``; a crash may come after any step:

0. Ledger says finished -> its summary, if it is the same work. Read without waiting; a summary, once there,
   stays.
1. A lease of another owner -> wait until it is free, at most for as long as it lasts; its owner turns out to
   be alive -> RunBusyError. Before any claim, so that the owner is not disturbed.
2. Claim; read ledger and metadata again, to their ends. Repeat 0 and 1 on what is now certain.
3. RUNNING -> keep every frozen fact; a driver claims it with generation + 1 and its lease, renewed
   while it fences.
4. NEW or FINISHED -> release a dead owner's lease, fence, freeze, and write tombstones, stop offsets,
   completed marker (and partition groups, and lease).

The stops of intermediate topics are frozen as proven in :mod:`airflow_kstreams.batch.protocol.slice.stops`.
Only the owner of the lease writes them. Should another coordinator have claimed the coordinator's id between
the look at the topic and the write, the write fails; if the lease is ours still, that one only looked. It is
not known whether a write that failed came through: so before anything is written again, the id is claimed
anew, which settles it, and the topic is looked at once more. A stop that is there stays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import msgspec

from airflow_kstreams.batch.evidence.contradictions import find_foreign_progress
from airflow_kstreams.batch.evidence.moved_offsets import member_warnings
from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.evidence.topic_owners import refuse_shared
from airflow_kstreams.batch.invariants import check_begin, check_finish
from airflow_kstreams.batch.ledger.facts import Lease
from airflow_kstreams.batch.ledger.fold import check_run_id
from airflow_kstreams.batch.ledger.history import Part
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.ledger.writes import LedgerChange
from airflow_kstreams.batch.protocol.logs.data_loss import Loss
from airflow_kstreams.batch.protocol.logs.log_read import refuse_unfit_timeouts
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.offsets.parked import parked_text
from airflow_kstreams.batch.protocol.slice.metadata import Folded, RunState
from airflow_kstreams.batch.protocol.slice.metadata_records import (
    completed_record,
    finished_record,
    intermediate_stop_record,
    plan_pieces,
    slice_records,
    tombstone,
)
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import (
    TaskShare,
    frozen_at,
    partitions_of,
    shares_of,
    to_freeze,
    unfinished_groups,
)
from airflow_kstreams.batch.protocol.topics import (
    ensure_protocol_topics,
    refuse_harmful_settings,
    refuse_other_topics,
)
from airflow_kstreams.batch.run.assignment import AskGroups
from airflow_kstreams.batch.run.attempts import CoordinatorAttempt
from airflow_kstreams.batch.run.begin.groundwork import SliceRequest, refuse_losses
from airflow_kstreams.batch.run.begin.intervals import check_interval
from airflow_kstreams.batch.run.begin.new_slice import NewSlice, build_slice
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.finish import FinishedSlice, close_slice
from airflow_kstreams.batch.run.finished_before import check_finished
from airflow_kstreams.batch.run.lease.lease import (
    Claimant,
    CoordinatorLease,
    refuse_other_application,
    refuse_other_topology,
)
from airflow_kstreams.batch.run.source_topics import ensure_dead_letter_topic, with_matches
from airflow_kstreams.streams.errors import (
    DataLossError,
    KafkaClientError,
    KStreamsError,
    RunBusyError,
    RunError,
    RunSupersededError,
    TaskFencedError,
    TopologyError,
    TransactionAbortedError,
    UpstreamNotDoneError,
)
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.settings import ApplicationSettings

log = package_log(__name__)
_WRITES = 3
#: After these errors it is not known whether a write came through; a read after another claim tells.
_DOUBTFUL = (TaskFencedError, TransactionAbortedError, KafkaClientError)
#: A caller with one of these errors was refused, or has lost the claim.
_NO_ATTEMPTS = (RunBusyError, RunSupersededError, TaskFencedError)


class BeginResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of begin: the slice that it found or made, or the run that was finished.

    Exactly one of ``finished`` and ``slice`` is set. ``slice.run_id`` differs from the run asked for when
    another run's unfinished slice must be finished first.
    """

    slice: Slice | None = None
    finished: RunSummary | None = None
    created: bool = False


class Coordinator:
    """Coordinates the runs of one application. Close it after use.

    :param cluster: the cluster that holds all topics.
    :param settings: settings of the application.
    :param clock: clock to go by; the machine's unless given.
    :ivar session: clients of the coordinator, and its reads and writes.
    :ivar lease: the lease that :meth:`begin` took, which has to be renewed and given up.
    :ivar attempt: the attempt that it makes, as the ledger is to keep it.
    """

    def __init__(
        self, cluster: ClusterPort, settings: ApplicationSettings, *, clock: Clock | None = None
    ) -> None:
        self._settings = settings
        self._app = settings.application_id
        self.session = CoordinatorSession(cluster, settings, clock=clock)
        self.attempt = CoordinatorAttempt(
            self._app, self.session.clock, most_runs=settings.ledger_details_kept
        )
        self.lease = CoordinatorLease(self.session, self.attempt)

    def begin(  # noqa: PLR0913 - all but three have defaults
        self,
        run_id: str,
        plan: TopologyPlan,
        *,
        order: tuple[int, int] = (0, 0),
        owner: str = "",
        hold_lease: bool,
        groups: AskGroups | None = None,
        interval_ms: tuple[int, int] | None = None,
        dag_id: str = "",
    ) -> BeginResult:
        """Begin a run, or find the slice that it, or an older run, has begun already.

        :param order: (clear number, try number); a higher one of the same run claims it.
        :param owner: name of the caller for messages.
        :param hold_lease: whether to take the lease, as a driver does; without it the slice waits for a
            driver.
        :param groups: calls the topology's own partition grouper with the partition counts; needed only by a
            plan that names one, and called only when a new slice is made.
        :param interval_ms: data interval of the run, epoch milliseconds; kept in the ledger, and bounds the
            slice if ``autostop.at`` says so.
        :param dag_id: the DAG that starts the run; kept in the ledger.
        :raises ConfigError: transactions could not last as long as the settings say, the run id cannot be
            used, the run goes by its data interval and has none, or it is finished and was other work.
        :raises RunBusyError: another owner is alive, as its renewals show, or won a race; or the application
            is being reset.
        :raises TopologyError: topics or partition groups do not fit, internal topics are another
            application's, the unfinished slice belongs to another topology, or the finished run does and the
            settings forbid that.
        :raises DataLossError: records at which the run would start are gone, or a topic of the unfinished
            slice was created again, or state, ledger or metadata topic are not whole.
        """
        check_run_id(run_id)
        check_interval(self._settings, run_id, interval_ms)
        refuse_other_application(plan, self._app)
        caller = Claimant(run_id=run_id, order=order, owner=owner or run_id, hold_lease=hold_lease)
        request = SliceRequest(
            run_id=run_id,
            plan=plan,
            generation=1 if hold_lease else 0,
            groups=groups,
            interval_ms=interval_ms,
            dag_id=dag_id,
        )
        log.info("application %s: run %s is to begin", self._app, run_id)
        with self.keeping_failures(caller, "driver" if hold_lease else "capture", dag_id=dag_id):
            begun = self.lease.taking_over(caller)(self._begin, caller, request)
            if begun.slice is not None:
                with self.session.reading:
                    refuse_shared(self.session.neighbours, begun.slice.plan)
        return begun

    @contextmanager
    def keeping_failures(self, caller: Claimant, part: Part, *, dag_id: str = "") -> Iterator[None]:
        """Keep the attempt that a caller makes in the block, and its failure.

        While the lease is held, its release writes how the attempt ended. Without one, a failure is written
        here, if the block has claimed the coordinator's id and was not refused: without a claim nothing may
        be written, and a caller that must wait has made no attempt.

        :param part: the part of the run that the block works on.
        :param dag_id: the DAG that starts the run; empty if none, or if it is known already.
        """
        attempt = self.attempt
        attempt.start(caller.run_id, part=part, owner=caller.owner, order=caller.order, dag_id=dag_id)
        try:
            yield
        except BaseException as error:
            attempt.ended(error)
            if self.lease.held is None:
                self._keep_failure(error)
            raise

    def _keep_failure(self, error: BaseException) -> None:
        """Write the end of an attempt that holds no lease, in a transaction of its own."""
        kept = isinstance(error, KStreamsError) and not isinstance(error, _NO_ATTEMPTS)
        # An attempt that is open has lost its lease to another one.
        if kept and self.attempt.known and not self.attempt.is_open and self.session.claimed:
            try:
                # It may have released the lease of a former owner since it read the ledger.
                ledger = self.session.read_ledger()
                self.session.write((), ledger=LedgerChange(ledger=ledger), histories=self.attempt.closing())
            except KStreamsError as failure:
                log.warning(
                    "application %s: the ledger does not keep why this attempt failed: %s",
                    self._app,
                    failure.cause,
                )
        self.attempt.close()

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
        ledger = self.lease.await_turn(ledger, caller)
        refuse_unfit_timeouts(self._settings, self.session.admin)
        ensure_topics(self.session.admin, self._settings)
        with self.lease.racing(caller, ledger):
            self.session.claim()
            yield self.session.read_ledger()

    def unfinished(self, slice_: Slice, subtopology_id: int) -> Sequence[TaskShare]:
        """Freeze the stops of the intermediate topics that a subtopology reads, unless they are frozen, and
        return the shares of its tasks that are not at their stop, or have not notified.

        :raises UpstreamNotDoneError: a subtopology before this one is not done.
        :raises RunSupersededError: stops were to be frozen, and another driver owns the slice.
        """
        folded = frozen_upstream(self.session, self.lease, slice_, subtopology_id)
        with self.session.reading:
            left = unfinished_groups(slice_, subtopology_id, folded=folded, reader=self.session.reader)
        return shares_of(slice_, subtopology_id, left, folded=folded)

    def finished(self, run_id: str) -> RunSummary | None:
        """Return the summary of a run that has finished, as far as it is visible without waiting."""
        return _finished_run(self.session.read_ledger(wait_ms=0), run_id)

    def finish(
        self,
        run_id: str,
        *,
        reports: Collection[TaskReport] = (),
        order: tuple[int, int] = (0, 0),
        owner: str = "",
    ) -> RunSummary:
        """Write the finished marker and the run's summary, if everything is at its stop. Idempotent.

        :param reports: reports that the tasks have sent to their driver, which contain the time of their last
            commits.
        :param order: (clear number, try number), for the ledger.
        :param owner: name of the caller, for the ledger.
        :raises RunBusyError: another run's owner is alive, as its renewals show.
        :raises UpstreamNotDoneError: done notifications are missing.
        :raises RunError: the run has no slice, or a partition is not at its stop offset.
        :raises DataLossError: a topic is not the one that the run began with.
        :raises RunSupersededError: another driver has claimed the run.
        """
        check_run_id(run_id)
        caller = Claimant(run_id=run_id, order=order, owner=owner or run_id, hold_lease=False)
        with self.keeping_failures(caller, "finish"):
            return self.lease.taking_over(caller, same_run_may_wait=False)(self._finish, caller, reports)

    def close(self) -> None:
        """Give up a lease that is still held, and close the clients."""
        try:
            self.lease.close()
        finally:
            self.session.close()

    def _begin(self, caller: Claimant, request: SliceRequest) -> BeginResult:
        ledger = self.session.read_ledger(wait_ms=0)
        if (done := ledger.find(caller.run_id)) is not None:
            return self._finished(request, ledger.detailed(done))
        waiting = self._waiting_slice(caller, request.plan, ledger)
        if waiting is not None:
            return BeginResult(slice=waiting)
        self.session.refuse_others_topic(ledger, request.plan)
        with self.beginning(caller, ledger, ensure_topics=ensure_protocol_topics) as ledger:
            return self._begin_claimed(caller, request, ledger)

    def _finish(self, caller: Claimant, reports: Collection[TaskReport]) -> RunSummary:
        run_id = caller.run_id
        ledger = self.session.read_ledger(wait_ms=0)
        if (done := _finished_run(ledger, run_id)) is not None:
            return done
        self.lease.await_turn(ledger, caller, same_run_may_wait=False)
        try:
            return self._finish_claimed(run_id, caller, reports)
        except TaskFencedError:
            if self.lease.held is None:
                raise self.lease.lost_race(caller) from None
        except (DataLossError, KafkaClientError) as error:
            # Another coordinator may have finished the run meanwhile, purged what was being read here, and
            # begun the next run, whose offsets are none of this one.
            done = None if error.is_retriable else _finished_run(self.session.read_ledger(), run_id)
            if done is not None:
                return done
            if isinstance(error, DataLossError) and self.lease.held is not None:
                self.lease.renew()  # nothing that a driver finds after it was superseded is to be believed
            raise
        # The coordinator that fenced the owner of the lease was refused, has claimed the run, or has finished
        # the run itself; the ledger says which.
        self.lease.reclaim()
        done = _finished_run(self.session.read_ledger(), run_id)
        return done or self._finish_claimed(run_id, caller, reports)

    def _finished(self, request: SliceRequest, summary: RunSummary) -> BeginResult:
        check_finished(
            summary,
            self._settings,
            plan=request.plan,
            dag_id=request.dag_id,
            interval_ms=request.interval_ms,
        )
        return BeginResult(finished=summary)

    def _waiting_slice(self, caller: Claimant, plan: TopologyPlan, ledger: Ledger) -> Slice | None:
        """Return the run's own slice to a caller that takes no lease: there is nothing to write, and no owner
        to disturb.
        """
        if caller.hold_lease or ledger.current_continuous is not None:
            return None
        slice_ = RunFacts(self._app, ledger, self.session.read_metadata(plan, wait_ms=0)).under_way
        if slice_ is None or slice_.run_id != caller.run_id:
            return None
        refuse_other_topology(slice_, plan)
        return slice_

    def _begin_claimed(self, caller: Claimant, request: SliceRequest, ledger: Ledger) -> BeginResult:
        plan = request.plan
        if (done := ledger.find(caller.run_id)) is not None:
            return self._finished(request, ledger.detailed(done))
        self.lease.refuse_busy(ledger, caller)
        self.attempt.look(ledger, free=self.lease.is_free(ledger))
        self.attempt.works_on(caller.run_id)
        facts = RunFacts(self._app, ledger, self.session.read_fenced(plan))
        if facts.under_way is not None:
            owner = None if facts.under_way.generation else facts.metadata.owner
            self.attempt.works_on(facts.under_way.run_id, captured_by=owner)
            refuse_losses(facts.disagreements() or self._foreign_progress(facts.under_way), request)
            return BeginResult(slice=self._resume(caller, plan, facts.under_way))
        self.lease.end_former(ledger)
        try:
            plan = with_matches(plan, self.session.admin, self._settings, ledger)
            request = dataclasses.replace(request, plan=plan)
            new = build_slice(self.session, request=request, facts=facts)
        except (DataLossError, TopologyError) as error:
            if self._has_begun_meanwhile(plan, facts):
                raise self.lease.lost_race(caller) from error
            raise
        records = [tombstone(self._app, key) for key in facts.metadata.live_keys]
        records += slice_records(new.slice, owner=caller.owner)
        lease = None
        if caller.hold_lease:
            lease = self.lease.new(caller, new.slice.generation, slice_run_id=new.slice.run_id)
        change = self._begun(ledger, new)
        check_begin(new.slice, new.offsets)
        # Of a begin without a lease, the slice itself says who froze it, and when.
        histories = None if lease is None else self.attempt.begun(new.slice)
        self.session.write(records, offsets=new.offsets, ledger=change, lease=lease, histories=histories)
        self._taken(lease)
        log.info(
            "application %s: run %s began, at most %d input records%s%s",
            self._app,
            caller.run_id,
            new.slice.record_span,
            ", nothing new" if new.slice.plan.empty else "",
            f"; parked before: {parked_text(new.parked)}" if new.parked else "",
        )
        return BeginResult(slice=new.slice, created=True)

    def _begun(self, ledger: Ledger, new: NewSlice) -> LedgerChange | None:
        """Return the changes that a new slice makes in the ledger, None if nothing but the lease changes."""
        after = dataclasses.replace(
            ledger,
            assignment=new.assignment,
            own_topics=new.own_topics or ledger.own_topics,
        )
        if ledger.current_continuous is not None:
            after = after.with_continuous(msgspec.structs.replace(ledger.current_continuous, over=True))
        if after == ledger and ledger.checkpoint is not None:
            return None
        return LedgerChange(ledger=after)

    def _has_begun_meanwhile(self, plan: TopologyPlan, before: RunFacts) -> bool:
        """Whether the metadata topic holds another slice than it did: one without a driver yet, so that the
        ledger need not say so. Its offsets name a run that has begun, beside what was read before it.
        """
        now = RunFacts(self._app, before.ledger, self.session.read_metadata(plan)).metadata
        return (now.state, now.slice) != (before.state, before.metadata.slice)

    def _foreign_progress(self, slice_: Slice) -> list[Loss]:
        """Check the offsets that a slice has, without waiting for what its tasks may have left open, unless
        they contradict it: those of the begin itself, another coordinator's, may not be readable yet.
        """
        partitions = partitions_of(slice_)
        admin = self.session.admin
        if not find_foreign_progress(slice_, self.session.committed_so_far(partitions), admin):
            return []
        return find_foreign_progress(slice_, self.session.committed(partitions), admin)

    def _taken(self, lease: Lease | None) -> None:
        self.lease.take(lease)
        if lease is not None:
            self.attempt.opened()

    def _resume(self, caller: Claimant, plan: TopologyPlan, slice_: Slice) -> Slice:
        """Claim an unfinished slice, this run's own or an older one's."""
        refuse_other_topology(slice_, plan)
        topics = {*slice_.plan.topology.sources, *slice_.plan.changelog_ids}
        refuse_other_topics(self.session.admin, slice_, topics)
        refuse_harmful_settings(self.session.admin, plan)
        ensure_dead_letter_topic(self.session.admin, plan, self._settings)
        for warning in member_warnings(self.session.admin, self._app):
            log.warning("%s", warning)
        if not caller.hold_lease:
            return slice_
        # The user's lines may have moved since the slice began.
        topology = msgspec.structs.replace(slice_.plan.topology, purposes=plan.purposes)
        taken = msgspec.structs.replace(
            slice_,
            generation=slice_.generation + 1,
            plan=msgspec.structs.replace(slice_.plan, topology=topology),
        )
        lease = self.lease.new(caller, taken.generation, slice_run_id=taken.run_id)
        marker = [*plan_pieces(taken), completed_record(taken, owner=caller.owner)]
        self.session.write(marker, lease=lease, histories=self.attempt.begun(taken))
        self._taken(lease)
        # Tasks of the former owner may hold offsets in open transactions: how far they are could not be read
        # until those have timed out.
        if slice_.generation and not slice_.plan.empty:
            with self.lease.renewing(), self.attempt.steps.step("fence"):
                self.session.fence(slice_)
        log.info("application %s: %s claimed the slice of run %s", self._app, caller.owner, slice_.run_id)
        return taken

    def _finish_claimed(self, run_id: str, caller: Claimant, reports: Collection[TaskReport]) -> RunSummary:
        claimed = self.session.claimed
        with nullcontext() if claimed else self.session.claiming():
            ledger = self.session.read_ledger()
            if (done := _finished_run(ledger, run_id)) is not None:
                return done
            if not claimed:
                self.lease.refuse_busy(ledger, caller, same_run_may_wait=False)
        self.attempt.look(ledger, free=self.lease.is_free(ledger))
        self.attempt.works_on(run_id)
        metadata = RunFacts(self._app, ledger, self.session.read_metadata(None)).metadata
        slice_ = metadata.slice
        if slice_ is None or slice_.run_id != run_id:
            found = "nothing" if slice_ is None else f"run {slice_.run_id!r}, {metadata.state.value}"
            raise RunError(
                f"run {run_id!r} of application {self._app!r} cannot be finished: it has no slice, the "
                f"metadata topic holds {found}",
                fix="begin the run first",
                run_id=run_id,
            )
        with self.attempt.steps.step("finish"):
            closed = close_slice(self.session, slice_=slice_, folded=metadata, reports=reports)
        history, others = self.attempt.finished(slice_, captured_by=metadata.owner)
        change = LedgerChange(
            ledger=dataclasses.replace(
                ledger,
                reset=None,
                changelog_ends=closed.changelogs or ledger.changelog_ends,
                accepted={tp: each for tp, each in ledger.accepted.items() if tp not in closed.offsets},
            ),
            finished=msgspec.structs.replace(closed.summary, history=history, attempts=history.number),
            details_kept=self._settings.ledger_details_kept,
        )
        check_finish(slice_, metadata, closed.offsets)
        lease = self.lease.held
        ours = lease is not None and lease.owner_run_id == run_id
        finished = self.session.write(
            [*plan_pieces(slice_), finished_record(slice_, owner=metadata.owner)],
            offsets=closed.offsets,
            ledger=change,
            lease=msgspec.structs.replace(lease, expires_ms=0) if lease is not None and ours else lease,
            histories=others,
        )
        self.attempt.close()
        self.lease.take(None if ours else lease)
        log.info("application %s: run %s is finished", self._app, run_id)
        self._purge(closed)
        return finished or closed.summary

    def _purge(self, done: FinishedSlice) -> None:
        """Delete processed repartition records; only saves space, so a failure is logged and left to the
        next run.
        """
        try:
            self.session.admin.delete_records(done.purge)
        except KStreamsError as error:
            log.warning("repartition topics of application %s could not be purged: %s", self._app, error)


def frozen_upstream(
    session: CoordinatorSession, lease: CoordinatorLease, slice_: Slice, subtopology_id: int
) -> Folded:
    """Freeze the stops of the intermediate topics that a subtopology reads, unless they are frozen.

    :return: the content of the metadata topic after that.
    :raises UpstreamNotDoneError: a subtopology before this one is not done, or the metadata topic holds
        another slice.
    :raises RunSupersededError: another driver owns the slice.
    """
    for writes_left in reversed(range(_WRITES)):
        folded = session.read_metadata(None)
        _refuse_other_slice(folded, slice_)
        waiting = to_freeze(folded, slice_, subtopology_id)
        if not waiting:
            break
        ends = session.admin.end_offsets(waiting, isolation="read_uncommitted")
        try:
            stops = frozen_at(slice_, ends, session.admin.end_epochs(waiting))
            lease.write([intermediate_stop_record(slice_, stop) for stop in stops])
        except KStreamsError as error:
            doubtful = isinstance(error, _DOUBTFUL) and error.is_retriable
            if not writes_left or not doubtful:
                raise
            log.info("run %s: the stops are read again: %s", slice_.run_id, error.cause)
            lease.reclaim()
        else:
            log.info("run %s: the stops of %d partitions are frozen", slice_.run_id, len(waiting))
            return session.read_metadata(None)
    return folded


def _refuse_other_slice(folded: Folded, slice_: Slice) -> None:
    """Refuse to judge a slice by a metadata topic that holds another one."""
    found = folded.slice
    if found is None or folded.state is RunState.NEW or found.run_id != slice_.run_id:
        what = "no slice" if found is None else f"run {found.run_id!r}, {folded.state.value}"
        raise UpstreamNotDoneError(
            f"run {slice_.run_id!r} is not finished, but the metadata topic holds {what}",
            fix="nothing if another driver took the run over; else begin it again, which says what to do",
            run_id=slice_.run_id,
        )


def _finished_run(ledger: Ledger, run_id: str) -> RunSummary | None:
    """Return a finished run with its details, as far as they have not expired; None if it is not finished."""
    found = ledger.find(run_id)
    return None if found is None else ledger.detailed(found)
