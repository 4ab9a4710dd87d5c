"""Gives a subtopology with state more processors, and gives up expansions of processors that have not
arrived.

An expansion copies the state of the processors that give keys away, while runs go on as before, until a begin
takes over (:mod:`airflow_kstreams.batch.growing.takeover`). A source with nothing to copy is not claimed, so
that no begin is kept from taking over. The same command again goes on with an expansion that was interrupted.
A command with another number of processors is refused meanwhile: the copied entries would have to go.

Order in which an expansion is given up, where each line may be the last one that runs::

    claim       the coordinator's transactional id: a begin that is about to take over cannot write any more
    void        source by source: claim its id, and let its offset name no expansion
    write       to the ledger what it says already: proof that no begin has claimed the coordinator's id since
    clear       delete what lies in the changelogs of the processors that never came

Crash argument: before all is void, the expansion goes on, and a begin that looks finds sources without a
copied entry. After that no offset counts any more; entries that were not cleared are cleared before an
expansion writes there again. A begin that claims after the proof finds everything void; one that has claimed
before it makes the proof fail, and nothing is cleared: it may have taken over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Self

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.expand.growth import last_topology
from airflow_kstreams.batch.expand.processor_plan import (
    CopiedSource,
    ProcessorPlan,
    expansions,
    plan_processors,
    sources_now,
)
from airflow_kstreams.batch.growing.expansion_rules import add_partitions
from airflow_kstreams.batch.growing.state_copy import Copies, CopyWork, Ended, StateCopy, ThreadCopies
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.ledger.writes import LedgerChange
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.lease.lease_observation import LeaseObservation
from airflow_kstreams.streams.errors import ConfigError, RunBusyError, TaskFencedError
from airflow_kstreams.streams.ports import Clock, ClusterPort
from airflow_kstreams.streams.settings import ApplicationSettings

#: Seconds between two looks at the progress of the copies.
_LOOK_SECONDS = 1.0
#: Seconds to wait for more changelog records to copy.
_POLL_SECONDS = 5.0
#: Seconds that a begin may take after it has fenced the catch-up.
_BEGIN_SECONDS = 60.0
#: Largest age of the last step of a copy, milliseconds.
_FRESH_MS = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUpOptions:
    """Options of the copy of state.

    :param rate: changelog records per second, of all sources together; None for no limit.
    :param parallel: number of sources that are copied side by side.
    :param follow: whether to go on copying the records that runs add, until a begin takes over; otherwise the
        copy ends at the records that existed when it began.
    """

    rate: float | None = None
    parallel: int = 4
    follow: bool = True

    def check(self) -> None:
        """Refuse options that no copy can follow.

        :raises ConfigError: the rate or the number of sources is no positive number.
        """
        if self.rate is not None and not self.rate > 0:
            raise ConfigError(
                f"a rate of {self.rate} records/s would copy nothing",
                fix="give a number above 0, or leave the rate out",
            )
        if self.parallel < 1:
            raise ConfigError(
                f"{self.parallel} sources side by side would copy nothing", fix="give a number from 1 on"
            )


#: Called with the state of every copied changelog.
CopyProgress = Callable[[Sequence[CopiedSource]], None]


class ProcessorExpansion:
    """One subtopology that is to have more processors; a context manager that closes its clients.

    :param cluster: the cluster where the application runs.
    :param settings: settings of the application, as its runs have them.
    :param subtopology: id of the subtopology; None where only one keeps state.
    :param count: number of processors that it is to have.
    """

    def __init__(
        self,
        cluster: ClusterPort,
        settings: ApplicationSettings,
        *,
        subtopology: int | None,
        count: int,
        clock: Clock | None = None,
    ) -> None:
        self._subtopology, self._count = subtopology, count
        self._clock = clock or SystemClock()
        self._session = CoordinatorSession(cluster, settings, clock=clock)
        self._copies: Copies = ThreadCopies(cluster, settings, clock=self._clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def copy_by(self, copies: Copies) -> None:
        """Use another implementation of the copies than threads of this process."""
        self._copies = copies

    def plan(self) -> ProcessorPlan:
        """Return the plan that :meth:`run` would follow, with the state of the copies. Changes nothing,
        disturbs no run.

        :raises ConfigError: as in :func:`plan_processors`.
        :raises TopologyError: as in :func:`plan_processors`.
        """
        return plan_processors(self._session, self._subtopology, self._count)

    def run(
        self,
        options: CatchUpOptions | None = None,
        progress: CopyProgress | None = None,
    ) -> ProcessorPlan:
        """Copy the state of the new processors.

        :param progress: called now and then with the state of every copied changelog.
        :return: the plan at the end; without ``after`` when a begin has taken over.
        :raises ConfigError: as in :func:`plan_processors`, or the options cannot be met.
        :raises TopologyError: as in :func:`plan_processors`, or a store turns out to have other keys than the
            records.
        :raises KafkaClientError: the broker refuses, or does not answer; the same call again goes on.
        """
        options = options or CatchUpOptions()
        options.check()
        plan = self.plan()
        if plan.after is not None:
            add_partitions(self._session.admin, plan.sub, plan.after.count)
        while plan.after is not None:
            works = self._to_copy(plan)
            if not (works or options.follow):
                break
            if works and "fenced" in self._copied(plan, works, options, progress):
                # A begin is about to take over; another claim of the id would keep it from that.
                self._clock.sleep(_BEGIN_SECONDS)
            elif options.follow and not works:
                self._clock.sleep(_POLL_SECONDS)
            plan = self.plan()
        return plan

    def _copied(
        self,
        plan: ProcessorPlan,
        works: Sequence[CopyWork],
        options: CatchUpOptions,
        progress: CopyProgress | None,
    ) -> Sequence[Ended]:
        count = min(options.parallel, len(works))
        shares = [works[at::count] for at in range(count)]
        rate = None if options.rate is None else options.rate / count
        if progress is None:
            return self._copies.copy(shares, rate)
        with ThreadPoolExecutor(max_workers=1) as pool:
            copying = pool.submit(self._copies.copy, shares, rate)
            try:
                while wait([copying], timeout=_LOOK_SECONDS).not_done:
                    progress(sources_now(self._session, plan))
            except BaseException:
                self._copies.cancel()
                raise
            return copying.result()

    def _to_copy(self, plan: ProcessorPlan) -> list[CopyWork]:
        """Return the sources with more changelog records to copy, and those whose last step would soon be too
        old.
        """
        stale_ms = self._clock.now_ms() - _FRESH_MS
        behind = {
            each.changelog.partition
            for each in plan.sources
            if each.position is None or each.lag or each.told.stepped_ms < stale_ms
        }
        return [work for work in plan.works if work.source in behind]


def give_up_expansions(
    cluster: ClusterPort,
    settings: ApplicationSettings,
    *,
    dry_run: bool = False,
    clock: Clock | None = None,
) -> list[ProcessorPlan]:
    """Give up the expansions that are under way, and return them.

    :param cluster: the cluster where the application runs.
    :param settings: settings of the application, as its runs have them.
    :param dry_run: whether to change nothing; such a call disturbs no run.
    :raises ConfigError: the application has no run yet.
    :raises RunBusyError: a run is at work, or has begun meanwhile.
    :raises KafkaClientError: the broker refuses, or does not answer; the same call again goes on.
    """
    with closing(CoordinatorSession(cluster, settings, clock=clock)) as session:
        plans = _under_way(session, session.read_ledger(wait_ms=0))
        if dry_run or not plans:
            return plans
        leases = LeaseObservation(session)
        _refuse_busy(leases, leases.watch(session.read_ledger(), waiting="the command"), settings)
        try:
            session.claim()
            ledger = session.read_ledger()
            _refuse_busy(leases, ledger, settings)
            plans = _under_way(session, ledger)
            with ExitStack() as clients:
                copies = [
                    clients.enter_context(StateCopy(cluster, settings, work, clock=session.clock))
                    for plan in plans
                    for work in plan.works
                ]
                for copy in copies:
                    copy.claim()
                    copy.void()
                session.write((), ledger=LedgerChange(ledger=ledger))
                for copy in copies:
                    copy.clear()
        except TaskFencedError as error:
            raise RunBusyError(
                f"application {settings.application_id!r}: a run has begun while its expansion was being "
                "given up, and may have taken it over",
                fix="look at its status, then give up what is left",
            ) from error
        return plans


def _under_way(session: CoordinatorSession, ledger: Ledger) -> list[ProcessorPlan]:
    return expansions(session, last_topology(session, ledger), ledger)


def _refuse_busy(leases: LeaseObservation, ledger: Ledger, settings: ApplicationSettings) -> None:
    lease = ledger.held_lease
    if lease is not None and not leases.is_free(ledger):
        raise RunBusyError(
            f"application {settings.application_id!r}: {lease.owner} works on run {lease.owner_run_id!r}; an "
            "expansion is given up between runs",
            fix="wait for the run to end, then give it up",
            owner=lease.owner,
            owner_run_id=lease.owner_run_id,
        )
