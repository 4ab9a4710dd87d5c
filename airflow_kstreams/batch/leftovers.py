"""Ends what the last owner of a transactional id left open, even where the broker only says that it did.

Claiming an id ends its open transaction: the coordinator aborts it, with a marker in every partition that
takes part, before the claim returns. Brokers with KAFKA-20734 (4.3.0 is one) leave out partitions that have
no leader at that moment, as when a broker, or all of them, come back after a crash, and report the
transaction as ended. Its records lie open in the log then, and the next commit under the same id makes them
visible: results twice. Seen in rounds of ``dev/chaos`` that kill the broker.

So whoever claims an id whose last transaction may not have ended well first makes a transaction that it
aborts. It takes part in every partition where any transaction is open, and in the group's offsets; its
markers end whatever was left there, and readers of committed records never see it.
"""

from __future__ import annotations

from collections.abc import Collection

from airflow_kstreams.batch.metadata_records import metadata_topic
from airflow_kstreams.streams.ports import (
    AdminPort,
    CommittedOffset,
    ReaderPort,
    TopicPartition,
    WriterPort,
)
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.plan import TopologyPlan

#: Tells readers of uncommitted records what the void record is.
VOID_HEADERS = [("__kstreams_void", b"aborted on purpose")]


def written_topics(
    plan: TopologyPlan, settings: ApplicationSettings, subtopology: int | None = None
) -> list[str]:
    """Return the topics that tasks write in transactions.

    :param subtopology: whose tasks; None for all.
    """
    topics = {metadata_topic(plan.application_id)}
    for sub in plan.subtopologies:
        if subtopology in (None, sub.id):
            topics |= {*sub.changelogs.values()}
            topics |= {*sub.sinks} if settings.exactly_once else set()
    if settings.dead_letters and settings.exactly_once:
        topics.add(settings.dead_letter_topic)
    return sorted(topics)


def open_partitions(admin: AdminPort, topics: Collection[str]) -> list[TopicPartition]:
    """Return where any transaction is open, in those of the topics that exist.

    :raises KafkaClientError: the broker did not answer.
    """
    found = admin.describe_topics(topics)
    partitions = [TopicPartition(topic, n) for topic in sorted(found) for n in range(found[topic].partitions)]
    if not partitions:
        return []
    stable = admin.end_offsets(partitions, isolation="read_committed")
    ends = admin.end_offsets(partitions, isolation="read_uncommitted")
    return [tp for tp in partitions if stable[tp] < ends[tp]]


def end_leftovers(
    writer: WriterPort, reader: ReaderPort, partitions: Collection[TopicPartition], *, source: str
) -> None:
    """Abort what an earlier owner of the writer's transactional id may have left open.

    :param writer: claimed, without a transaction.
    :param reader: of the group whose offsets the id commits.
    :param partitions: where something may be open.
    :param source: any topic that exists; nothing of it is touched.
    :raises KStreamsError: the broker did not answer, or another owner has claimed the id.
    """
    writer.begin()
    for tp in partitions:
        # Compacted topics take no record without a key.
        writer.produce(tp.topic, None, b"", tp.partition, None, VOID_HEADERS)
    writer.send_offsets({TopicPartition(source, 0): CommittedOffset(0)}, reader)
    writer.abort()
