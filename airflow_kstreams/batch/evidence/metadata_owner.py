"""Tells the application's metadata topic from a topic of somebody else's that has its name.

Begin deletes every key of the metadata topic, and a continuous run deletes the topic. Rule: before that, the
topic is the application's if its ledger has the topic's id, or if each of its records is one that the engine
writes, or one of KIP-95's for topics that the application reads. One without records is the application's,
too: an administrator may have created it. Any other is left untouched. (The ledger is judged where it is
read: it holds a lease or a checkpoint from its first transaction on.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.protocol.logs.log_read import read_log
from airflow_kstreams.batch.protocol.slice.metadata import first_stranger
from airflow_kstreams.batch.protocol.topics import others_protocol_topic
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, ReaderPort


def refuse_others_metadata(
    cluster: ClusterPort,
    ledger: Ledger,
    application_id: str,
    *,
    topics: Callable[[], Collection[str]] | None,
    admin: AdminPort,
    reader: ReaderPort,
    clock: Clock,
) -> None:
    """Refuse to take a metadata topic for the application's own that holds records of others.

    :param ledger: the application's ledger; if it has the topic's id, nothing is read.
    :param topics: returns the topics that the application reads, or writes and reads; where it is None,
        records of any topic count as KIP-95's.
    :param reader: reader of the topic; its earlier assignment is lost.
    :raises ConfigError: the topic holds a record that is not the application's; the text names the first one.
    :raises KafkaClientError: the broker does not answer.
    """
    topic = ProtocolTopics(application_id).metadata
    found = admin.describe_topics([topic])
    known = {} if ledger.own_topics is None else ledger.own_topics.ids
    if topic not in found or known.get(topic) == found[topic].topic_id:
        return
    # What open transactions hide was not written by a program that has come to its end.
    content = read_log(
        cluster, topic, group_id=application_id, admin=admin, reader=reader, wait_ms=0, clock=clock
    )
    if not content.records:
        return
    named = None if topics is None else topics()
    stranger = first_stranger(content.records, application_id, topics=named)
    if stranger is not None:
        raise others_protocol_topic(stranger, application_id)
