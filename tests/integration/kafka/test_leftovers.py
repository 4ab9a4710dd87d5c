"""The transaction that ends leftovers, on the real broker: it is allowed everywhere, and nobody sees it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from airflow_kstreams.batch.leftovers import end_leftovers, open_partitions
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from tests.conftest import Row


def test_nothing_of_it_is_seen_and_transactions_of_others_go_on(
    kafka: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    consume_all: Callable[..., list[Row]],
    wait_until: Callable[..., Any],
) -> None:
    plain = create_topic(topic_name("plain"), 2)
    compacted = create_topic(topic_name("compacted"), 1, cleanup_policy="compact")
    group, source = topic_name("group"), TopicPartition(plain, 0)
    cluster = KafkaCluster({"bootstrap.servers": kafka})
    with (
        closing(cluster.admin()) as admin,
        closing(cluster.reader(group_id=group)) as reader,
        closing(cluster.writer(transactional_id=topic_name("other"))) as other,
        closing(cluster.writer(transactional_id=topic_name("claimed"))) as writer,
    ):
        reader.commit({source: CommittedOffset(7)})
        other.init_transactions()
        other.begin()
        other.produce(plain, b"theirs", b"k", 1)
        other.produce(compacted, b"theirs", b"k", 0)
        other.flush()
        left = open_partitions(admin, [plain, compacted, "no-such-topic"])
        assert set(left) == {TopicPartition(plain, 1), TopicPartition(compacted, 0)}

        writer.init_transactions()
        end_leftovers(writer, reader, left, source=plain)

        assert open_partitions(admin, [plain, compacted]) == left, "the other transaction is still open"
        assert reader.committed([source]) == {source: CommittedOffset(7)}
        writer.begin()
        writer.produce(plain, b"ours", b"k", 0)
        writer.commit()
        other.commit()
        # A commit returns before its markers are written.
        wait_until(lambda: not open_partitions(admin, [plain, compacted]), "the end of both transactions")
    assert [row.value for row in consume_all(plain)] == [b"ours", b"theirs"]
    assert [row.value for row in consume_all(compacted)] == [b"theirs"]
