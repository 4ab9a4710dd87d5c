"""Fences the transactional ids of tasks that may still be at work.

A zombie task may still hold an open transaction with outputs, offsets or a done notification in it. Claiming
its transactional id makes the broker abort that transaction and refuse everything that the zombie sends from
then on. The writer that claims it lives for a moment only.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

from airflow_kstreams.batch.protocol.logs.partition_leaders import await_leaders
from airflow_kstreams.streams.ports import AdminPort, ClusterPort

log = logging.getLogger(__name__)

#: How many transactional ids are claimed at the same time.
_PARALLEL = 16
#: Nothing is ever written by these, so the shortest timeout every broker accepts does.
_TRANSACTION_TIMEOUT_MS = 10_000


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
