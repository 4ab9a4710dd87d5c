"""Fences the transactional ids of an earlier run's tasks.

A zombie task may still hold an open transaction with output, offsets or a done notification in it. Claiming
its transactional id makes the broker abort that transaction and refuse everything the zombie sends from then
on. The claimant lives for a moment only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

from airflow_kstreams.batch.leaders import await_leaders
from airflow_kstreams.streams.ports import AdminPort, ClusterPort

_PARALLEL = 16
#: Nothing is ever written by these, so the shortest timeout every broker accepts does.
_TRANSACTION_TIMEOUT_MS = 10_000


def fence(
    cluster: ClusterPort,
    transactional_ids: Sequence[str],
    *,
    admin: AdminPort,
    topics: Collection[str],
) -> None:
    """Claim each transactional id once, side by side.

    :param topics: those in which the tasks may have transactions open.
    :raises KafkaClientError: one could not be claimed.
    """
    if not transactional_ids:
        return
    await_leaders(admin, topics)
    with ThreadPoolExecutor(max_workers=min(_PARALLEL, len(transactional_ids))) as pool:
        list(pool.map(lambda name: _claim(cluster, name), transactional_ids))


def _claim(cluster: ClusterPort, transactional_id: str) -> None:
    writer = cluster.writer(transactional_id=transactional_id, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS)
    try:
        writer.init_transactions()
    finally:
        writer.close()
