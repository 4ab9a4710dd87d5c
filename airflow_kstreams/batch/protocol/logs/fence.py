"""Fences the transactional ids of tasks that may still be at work, once every partition in their transactions
has a leader.

A zombie task may still hold an open transaction with outputs, offsets or a done notification in it. Claiming
its transactional id makes the broker abort that transaction and refuse everything that the zombie sends from
then on. The writer that claims it lives for a moment only.

To abort a transaction the coordinator writes a marker into every partition that takes part, before the claim
returns. Brokers 4.3.0 and 4.3.1 (KAFKA-20734) leave out partitions that have no leader at that moment, as
when brokers come back after a crash, and report the transaction as ended. Its records lie open in the log
then, and the next commit under the same id makes them visible: results twice. So a coordinator or task that
claims an id, or aborts what it began, first sees that these partitions have leaders. Brokers without that
defect wait for them in any case.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.partitioning.partition_groups import described_partitions
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import AdminPort, ClusterPort
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.topology import has_dead_letters

log = package_log(__name__)
#: Number of transactional ids that are claimed at the same time.
_PARALLEL = 16
#: These writers write nothing, so the shortest timeout that every broker accepts will do, milliseconds.
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
    :param topics: topics in which the tasks may have transactions open.
    :raises KafkaClientError: an id could not be claimed.
    """
    if not ids:
        return
    log.info("fencing %s of the last tasks", counted(len(ids), "transactional id"))
    await_leaders(admin, topics)
    with ThreadPoolExecutor(max_workers=min(_PARALLEL, len(ids))) as pool:
        list(pool.map(lambda name: _claim(cluster, name), ids))
    log.info("fenced %s", counted(len(ids), "transactional id"))


def _claim(cluster: ClusterPort, transactional_id: str) -> None:
    writer = cluster.writer(transactional_id=transactional_id, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS)
    with closing(writer):
        writer.init_transactions()


def written_topics(
    *plans: TopologyPlan, settings: ApplicationSettings | None = None, subtopology: int | None = None
) -> set[str]:
    """Return the topics that tasks may write in transactions; some may not exist.

    A topic that a processor names only as it sends is not among them.

    :param plans: topology plans of the tasks.
    :param settings: settings of the application, which name the dead-letter topic.
    :param subtopology: the subtopology of the tasks; None for all.
    """
    topics = {ProtocolTopics(plan.application_id).metadata for plan in plans}
    for sub in (sub for plan in plans for sub in plan.subtopologies):
        if subtopology in (None, sub.id):
            topics |= {*sub.changelogs.values(), *sub.sinks}
    if settings is not None and any(has_dead_letters(plan, settings) for plan in plans):
        topics.add(settings.dead_letter_topic)
    return topics


def await_leaders(admin: AdminPort, topics: Collection[str]) -> None:
    """Return once every partition of those topics that exist has a leader.

    :raises KafkaClientError: a partition had none within the client's time limit, or the broker did not
        answer.
    """
    found = admin.describe_topics(topics)
    partitions = described_partitions(found, sorted(found))
    if partitions:
        # Only its leader knows where a partition ends.
        admin.end_offsets(partitions, isolation="read_uncommitted")
