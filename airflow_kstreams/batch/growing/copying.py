"""Copies the state of one source as far as it is there, wherever that runs.

Order: claim the source's transactional id, then read the ledger, then copy. So a begin that takes over after
the ledger was read has fenced this copy, and one that has taken over before is seen in the ledger.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Literal, Protocol

from airflow_kstreams.batch.growing.state_copy import BATCH, CopyWork, StateCopy
from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.streams.errors import TaskFencedError, TransactionAbortedError
from airflow_kstreams.streams.ports import Clock, ClusterPort
from airflow_kstreams.streams.settings import ApplicationSettings

log = logging.getLogger(__name__)

#: How the copy of a source ended: as far as the source went, or as was wanted; other processors are there by
#: now; somebody else has claimed it.
Ended = Literal["copied", "taken over", "fenced"]


class Copies(Protocol):
    """Does the copying, somewhere."""

    def copy(self, shares: Sequence[Sequence[CopyWork]], rate: float | None) -> Sequence[Ended]:
        """Copy the state of sources as far as it is there, and say of each how that ended.

        :param shares: what is copied side by side; the sources of a share follow each other.
        :param rate: changelog records per second that each share reads; None for as fast as it goes.
        :raises TopologyError: a store has other keys than the records.
        :raises KafkaClientError: the broker refuses, or does not answer.
        """
        ...

    def cancel(self) -> None:
        """Have what copies end soon, wherever it is: the next copy goes on there."""
        ...


class ThreadCopies:
    """Copies in threads of this process; see :class:`Copies`."""

    def __init__(self, cluster: ClusterPort, settings: ApplicationSettings, *, clock: Clock) -> None:
        self._cluster, self._settings, self._clock = cluster, settings, clock
        self._cancelled = threading.Event()

    def copy(self, shares: Sequence[Sequence[CopyWork]], rate: float | None) -> Sequence[Ended]:
        """Copy each share in a thread."""
        with ThreadPoolExecutor(max_workers=len(shares)) as pool:
            each = pool.map(partial(self._copied, rate), shares)
            return [ended for share in each for ended in share]

    def cancel(self) -> None:
        """End after the transaction that is under way."""
        self._cancelled.set()

    def _copied(self, rate: float | None, share: Sequence[CopyWork]) -> list[Ended]:
        def goes_on() -> bool:
            return not self._cancelled.is_set()

        return [
            copy_source(self._cluster, self._settings, work, rate=rate, clock=self._clock, goes_on=goes_on)
            for work in share
            if goes_on()
        ]


def copy_source(
    cluster: ClusterPort,
    settings: ApplicationSettings,
    work: CopyWork,
    *,
    rate: float | None,
    clock: Clock,
    goes_on: Callable[[], bool] = lambda: True,
) -> Ended:
    """Copy the state of one source as far as it is there.

    :param rate: changelog records per second; None for as fast as it goes.
    :param goes_on: asked after each transaction whether to make another one.
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
            # A second's worth each, so that the pauses are short.
            most = BATCH if rate is None else min(BATCH, max(1, int(rate)))
            for records in copy.copy(ends, most):
                if not goes_on():
                    return "copied"
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
    assignment = read_ledger(cluster, settings.application_id, wait_ms=0, clock=clock).assignment
    changelogs = work.sub.changelogs.values()
    entry = None if assignment is None else assignment.groups_of(work.sub.id, changelogs)
    return entry is None or len(entry.by_group) != work.before
