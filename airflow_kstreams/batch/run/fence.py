"""Fences the transactional ids of an earlier run's tasks.

A zombie task may still hold an open transaction with output, offsets or a done notification in it. Claiming
its transactional id makes the broker abort that transaction and refuse everything the zombie sends from then
on. The claimant lives for a moment only.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.protocol.logs.partition_leaders import await_leaders
from airflow_kstreams.batch.protocol.slice.metadata import Folded
from airflow_kstreams.batch.protocol.slice.slice import transactional_ids
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import AdminPort, ClusterPort

log = logging.getLogger(__name__)

_PARALLEL = 16
#: Nothing is ever written by these, so the shortest timeout every broker accepts does.
_TRANSACTION_TIMEOUT_MS = 10_000


@dataclass(frozen=True, slots=True)
class LastTasks:
    """The tasks of an application's last run, which may still be at work.

    :param transactional_ids: one per task; None when neither a run nor partition groups are recorded.
    :param topologies: those that they may have run, where it is known.
    """

    transactional_ids: tuple[str, ...] | None
    topologies: tuple[TopologyPlan, ...]


def last_tasks(application_id: str, folded: Folded, ledger: Ledger) -> LastTasks:
    """Return the tasks of the continuous run or of the slice, or those of the recorded partition groups.

    The marker of a run may be gone (stop offsets deleted) or another writer's; the groups give the ids, too.
    """
    owners = [owner for owner in (ledger.current_continuous, folded.slice) if owner is not None]
    ids: tuple[str, ...] | None = None
    if owners:
        ids = () if owners[0].plan.empty else owners[0].plan.task_ids
    elif ledger.assignment is not None:
        recorded = ledger.assignment.subtopologies
        ids = transactional_ids(application_id, {sub: len(entry.by_group) for sub, entry in recorded.items()})
    return LastTasks(ids, tuple(owner.plan.topology for owner in owners))


def fence(
    cluster: ClusterPort,
    ids: Sequence[str],
    *,
    admin: AdminPort,
    topics: Collection[str],
) -> None:
    """Claim each transactional id once, side by side.

    :param ids: the transactional ids.
    :param topics: those in which the tasks may have transactions open.
    :raises KafkaClientError: one could not be claimed.
    """
    if not ids:
        return
    log.info("%d transactional ids of the last tasks are to be fenced", len(ids))
    await_leaders(admin, topics)
    with ThreadPoolExecutor(max_workers=min(_PARALLEL, len(ids))) as pool:
        list(pool.map(lambda name: _claim(cluster, name), ids))
    log.info("%d transactional ids are fenced", len(ids))


def _claim(cluster: ClusterPort, transactional_id: str) -> None:
    writer = cluster.writer(transactional_id=transactional_id, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS)
    try:
        writer.init_transactions()
    finally:
        writer.close()
