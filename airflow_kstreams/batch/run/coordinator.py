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

The claim for a begin is made in :mod:`.coordinator_claim`. The finish, its order, and its races are in
:mod:`.run_finish`, the stops of intermediate topics in :mod:`.intermediate_stops`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

import msgspec

from airflow_kstreams.batch.evidence.contradictions import find_foreign_progress
from airflow_kstreams.batch.evidence.moved_offsets import member_warnings
from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.evidence.topic_owners import refuse_shared
from airflow_kstreams.batch.invariants import check_begin
from airflow_kstreams.batch.ledger.facts import Lease
from airflow_kstreams.batch.ledger.fold import check_run_id
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.ledger.writes import LedgerChange
from airflow_kstreams.batch.protocol.logs.data_loss import Loss
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.offsets.parked import parked_text
from airflow_kstreams.batch.protocol.slice.metadata_records import (
    completed_record,
    plan_pieces,
    slice_records,
    tombstone,
)
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import (
    TaskShare,
    partitions_of,
    shares_of,
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
from airflow_kstreams.batch.run.coordinator_claim import CoordinatorClaim
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.finished_before import check_finished
from airflow_kstreams.batch.run.intermediate_stops import frozen_upstream
from airflow_kstreams.batch.run.lease.lease import (
    Claimant,
    CoordinatorLease,
    refuse_other_application,
    refuse_other_topology,
)
from airflow_kstreams.batch.run.run_finish import RunFinish
from airflow_kstreams.batch.run.source_topics import ensure_dead_letter_topic, with_matches
from airflow_kstreams.batch.run.tables.landing import seal
from airflow_kstreams.batch.run.tables.merge_plan import MakeMerges
from airflow_kstreams.batch.run.tables.targets import refuse_unfit_run
from airflow_kstreams.streams.errors import (
    DataLossError,
    TableRefusedError,
    TopologyError,
)
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import Clock, ClusterPort
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.tables.table_port import TablesPort

log = package_log(__name__)


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
    :param tables: opens the tables that runs write to; None if it was not said where they are.
    :param make_merges: merges small files of a run before they are committed to tables; None to commit them
        as they are.
    :ivar session: clients of the coordinator, and its reads and writes.
    :ivar lease: the lease that :meth:`begin` took, which has to be renewed and given up.
    :ivar attempt: the attempt that it makes, as the ledger is to keep it.
    :ivar claim: the claim of its transactional id for a begin, and what is kept of one that fails.
    """

    def __init__(
        self,
        cluster: ClusterPort,
        settings: ApplicationSettings,
        *,
        clock: Clock | None = None,
        tables: TablesPort | None = None,
        make_merges: MakeMerges | None = None,
    ) -> None:
        self._settings = settings
        self._tables = tables
        self._make_merges = make_merges
        self._app = settings.application_id
        self.session = CoordinatorSession(cluster, settings, clock=clock)
        self.attempt = CoordinatorAttempt(
            self._app, self.session.clock, most_runs=settings.ledger_details_kept
        )
        self.lease = CoordinatorLease(self.session, self.attempt)
        self.claim = CoordinatorClaim(self.session, self.lease, self.attempt)

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
            used, the run goes by its data interval and has none, it writes to tables and its settings do not
            say exactly once, or it is finished and was other work.
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
        if plan.tables:
            refuse_unfit_run(self._settings, plan)
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
        with self.claim.keeping_failures(caller, "driver" if hold_lease else "capture", dag_id=dag_id):
            begun = self.lease.taking_over(caller)(self._begin, caller, request)
            if begun.slice is not None:
                with self.session.reading:
                    refuse_shared(self.session.neighbours, begun.slice.plan)
        return begun

    def unfinished(self, slice_: Slice, subtopology_id: int) -> Sequence[TaskShare]:
        """Freeze the stops of the intermediate topics that a subtopology reads, unless they are frozen, and
        return the shares of its tasks that are not at their stop, or have not notified.

        :raises UpstreamNotDoneError: a subtopology before this one is not done.
        :raises RunSupersededError: stops were to be frozen, and another driver owns the slice.
        """
        if slice_.plan.topology.subtopology(subtopology_id).lands:
            seal(self.session, self.lease, slice_, self._make_merges)
            return ()
        folded = frozen_upstream(self.session, self.lease, slice_, subtopology_id)
        with self.session.reading:
            left = unfinished_groups(slice_, subtopology_id, folded=folded, reader=self.session.reader)
        return shares_of(slice_, subtopology_id, left, folded=folded)

    def finish(
        self,
        run_id: str,
        *,
        reports: Collection[TaskReport] = (),
        order: tuple[int, int] = (0, 0),
        owner: str = "",
        seen: Ledger | None = None,
    ) -> RunSummary:
        """Write the finished marker and the run's summary, if everything is at its stop. Idempotent.

        :param reports: reports that the tasks have sent to their driver, which contain the time of their last
            commits.
        :param seen: the ledger, if the caller has just read it without waiting: it is not read again before
            the claim.
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
        with self.claim.keeping_failures(caller, "finish"):
            retrying = self.lease.taking_over(caller, same_run_may_wait=False)
            finish = RunFinish(self.session, self.lease, self.attempt, seen=seen, tables=self._tables)
            return retrying(finish.finish, caller, reports)

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
        with self.claim.beginning(caller, ledger, ensure_topics=ensure_protocol_topics) as ledger:
            return self._begin_claimed(caller, request, ledger)

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
        self.attempt.take_reported(facts.reported, finished=ledger.is_finished)
        if facts.under_way is not None:
            owner = None if facts.under_way.generation else facts.metadata.owner
            self.attempt.works_on(facts.under_way.run_id, captured_by=owner)
            refuse_losses(facts.disagreements() or self._foreign_progress(facts.under_way), request)
            return BeginResult(slice=self._resume(caller, plan, facts.under_way))
        self.lease.end_former(ledger)
        try:
            plan = with_matches(plan, self.session.admin, self._settings, ledger)
            request = dataclasses.replace(request, plan=plan)
            new = build_slice(self.session, request=request, facts=facts, tables=self._tables)
        except (DataLossError, TableRefusedError, TopologyError) as error:
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
        records += self.attempt.forgetting_reported() if histories is not None else ()
        self.session.write(records, offsets=new.offsets, ledger=change, lease=lease, histories=histories)
        self._taken(lease)
        log.info(
            "application %s: run %s began, at most %s%s%s",
            self._app,
            caller.run_id,
            counted(new.slice.record_span, "input record"),
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
        marker += self.attempt.forgetting_reported()
        self.session.write(marker, lease=lease, histories=self.attempt.begun(taken))
        self._taken(lease)
        # Tasks of the former owner may hold offsets in open transactions: how far they are could not be read
        # until those have timed out.
        if slice_.generation and not slice_.plan.empty:
            with self.lease.renewing(), self.attempt.steps.step("fence"):
                self.session.fence(slice_)
        log.info("application %s: %s claimed the slice of run %s", self._app, caller.owner, slice_.run_id)
        return taken
