"""Gives a subtopology with state more processors: copies their state while runs go on as before, until a
begin takes over (:mod:`airflow_kstreams.batch.run.takeover`).

Order, for each source: claim its transactional id, then read the ledger, then copy. So a begin that takes
over after the ledger was read has fenced this catch-up, and one that has taken over before is seen in the
ledger. A source with nothing to copy is not claimed, so that no begin is kept from taking over.

The same again goes on with an expansion that was interrupted. One to another number is refused while it is
under way: what has been copied would have to go.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, Self

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.expand.processor_plan import ProcessorPlan, plan_processors
from airflow_kstreams.batch.moving.state_copy import CopyWork, StateCopy
from airflow_kstreams.batch.run.more_processors import add_partitions
from airflow_kstreams.batch.run.session import CoordinatorSession
from airflow_kstreams.streams.errors import ConfigError, TaskFencedError, TransactionAbortedError
from airflow_kstreams.streams.ports import Clock, ClusterPort, TopicPartition
from airflow_kstreams.streams.settings import ApplicationSettings

log = logging.getLogger(__name__)

#: How long to wait for more to copy.
_POLL_SECONDS = 5.0
#: How long a begin may take that has fenced the catch-up.
_BEGIN_SECONDS = 60.0
#: How old the last step of a copy may get.
_FRESH_MS = 600_000

#: How the copy of a source ended: as far as it was there; other processors are there by now; somebody else
#: has claimed it.
Ended = Literal["copied", "taken over", "fenced"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUpOptions:
    """How to copy.

    :param rate: changelog records per second that are read, of all sources together; None for as fast as it
        goes.
    :param parallel: how many sources are copied side by side.
    :param follow: whether to go on copying what runs add, until a begin takes over; else until all is copied
        that was there.
    """

    rate: float | None = None
    parallel: int = 4
    follow: bool = True

    def check(self) -> None:
        """Refuse what cannot be.

        :raises ConfigError: the rate or the number of sources is no positive number.
        """
        if self.rate is not None and not self.rate > 0:
            raise ConfigError(
                f"a rate of {self.rate} records/s would copy nothing", fix="give a number above 0, or none"
            )
        if self.parallel < 1:
            raise ConfigError(
                f"{self.parallel} sources side by side would copy nothing", fix="give a number from 1 on"
            )


#: Is told how far a source is: T2 and T1 of each of its changelog partitions.
Progress = Callable[[Mapping[TopicPartition, tuple[int, int]]], None]


class ProcessorExpansion:
    """One subtopology that is to have more processors; a context manager that closes its clients.

    :param cluster: where the application is.
    :param settings: of the application, as its runs have them.
    :param subtopology: its id; None where only one keeps state.
    :param count: how many processors it is to have.
    :param copy_sources: copies some sources side by side; in threads of this process unless given.
    """

    def __init__(
        self,
        cluster: ClusterPort,
        settings: ApplicationSettings,
        *,
        subtopology: int | None,
        count: int,
        clock: Clock | None = None,
        copy_sources: CopySources | None = None,
    ) -> None:
        self._subtopology, self._count = subtopology, count
        self._clock = clock or SystemClock()
        self._session = CoordinatorSession(cluster, settings, clock=clock)
        self._copy_sources = copy_sources or partial(copy_in_threads, cluster, settings, clock=self._clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def plan(self) -> ProcessorPlan:
        """Return what :meth:`run` would do, and how far it is. Changes nothing, disturbs no run.

        :raises ConfigError: as :func:`plan_processors`.
        :raises TopologyError: as :func:`plan_processors`.
        """
        return plan_processors(self._session, self._subtopology, self._count)

    def run(self, options: CatchUpOptions | None = None, progress: Progress | None = None) -> ProcessorPlan:
        """Copy the state of the new processors.

        :param progress: is told how far each source is, from several threads.
        :return: how it stands in the end; without ``after`` when a begin has taken over.
        :raises ConfigError: as :func:`plan_processors`, or the options cannot be.
        :raises TopologyError: as :func:`plan_processors`, or a store turns out to have other keys than the
            records.
        :raises KafkaClientError: the broker refuses, or does not answer; the same again goes on.
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
            fenced = works and "fenced" in self._copy_sources(works, options, progress or _told_nobody)
            if fenced:
                # A begin that is about to take over; whoever claims an id again would keep it from that.
                self._clock.sleep(_BEGIN_SECONDS)
            elif options.follow and not works:
                self._clock.sleep(_POLL_SECONDS)
            plan = self.plan()
        return plan

    def _to_copy(self, plan: ProcessorPlan) -> list[CopyWork]:
        """Return the sources of which there is more to copy, or that would soon count as left alone."""
        stale_ms = self._clock.now_ms() - _FRESH_MS
        behind = {
            each.changelog.partition
            for each in plan.sources
            if each.position is None or each.lag or each.stepped_ms < stale_ms
        }
        return [work for work in plan.works if work.source in behind]


class CopySources(Protocol):
    """Copies the state of sources as far as it is there, and says of each how that ended."""

    def __call__(
        self, works: Sequence[CopyWork], options: CatchUpOptions, progress: Progress
    ) -> Sequence[Ended]:
        """Copy, and return when all are done."""
        ...


def copy_in_threads(
    cluster: ClusterPort,
    settings: ApplicationSettings,
    works: Sequence[CopyWork],
    options: CatchUpOptions,
    progress: Progress,
    *,
    clock: Clock,
) -> Sequence[Ended]:
    """Copy in threads of this process; see :class:`CopySources`."""
    threads = min(options.parallel, len(works))
    rate = None if options.rate is None else options.rate / threads

    def copied(work: CopyWork) -> Ended:
        return copy_source(cluster, settings, work, rate=rate, clock=clock, progress=progress)

    with ThreadPoolExecutor(max_workers=threads) as pool:
        return list(pool.map(copied, works))


def copy_source(
    cluster: ClusterPort,
    settings: ApplicationSettings,
    work: CopyWork,
    *,
    rate: float | None,
    clock: Clock,
    progress: Progress,
) -> Ended:
    """Copy the state of one source as far as it is there.

    :param rate: changelog records per second; None for as fast as it goes.
    :raises TopologyError: a store has other keys than the records.
    :raises KafkaClientError: the broker refuses, or does not answer.
    """
    with StateCopy(cluster, settings, work, clock=clock) as copy:
        try:
            copy.claim()
            if _has_other_processors(cluster, settings, work, clock):
                return "taken over"
            ends = copy.ends()
            copy.begin_anew(copy.anew(ends))
            for records in copy.copy(ends):
                progress({tp: (at, ends[tp]) for tp, at in copy.positions.items()})
                if rate is not None:
                    clock.sleep(records / rate)
            copy.touch()
        except TaskFencedError as error:
            log.info("the catch-up of processor %d was fenced: %s", work.source, error)
            return "fenced"
        except TransactionAbortedError as error:
            log.info("the catch-up of processor %d begins its step again: %s", work.source, error)
        return "copied"


def _has_other_processors(
    cluster: ClusterPort, settings: ApplicationSettings, work: CopyWork, clock: Clock
) -> bool:
    """Whether the subtopology has other processors than when the work was planned."""
    session = CoordinatorSession(cluster, settings, clock=clock)
    try:
        assignment = session.read_ledger(wait_ms=0).assignment
    finally:
        session.close()
    entry = None if assignment is None else assignment.subtopologies.get(str(work.sub.id))
    return entry is None or len(entry.by_group) != work.before


def _told_nobody(positions: Mapping[TopicPartition, tuple[int, int]]) -> None:
    """Take note of nothing."""
