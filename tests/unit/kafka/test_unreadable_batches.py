"""A batch that unpacks to more than the client takes is named, with the two ways past it.

The client's own broker for tests, which lives in the producer, keeps batches as they were sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer

from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.bounded_read import BoundedRead
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.settings import ApplicationSettings

IN = TopicPartition("in", 0)
SMALL = {
    "fetch.message.max.bytes": "100000",
    "fetch.max.bytes": "1000000",
    "message.max.bytes": "1000000",
}
LARGE = 3_000_000


@pytest.fixture
def bootstrap() -> Iterator[str]:
    """Three records, one that unpacks to 3 MB, and one more."""
    producer = Producer(
        {
            "test.mock.num.brokers": 1,
            "bootstrap.servers": "own",
            "compression.type": "zstd",
            "message.max.bytes": 100_000_000,
            "linger.ms": 50,
            "log_level": 0,
        }
    )
    broker = next(iter(producer.list_topics(timeout=60).brokers.values()))
    for value in (b"a", b"a" * LARGE, b"b"):
        producer.produce(IN.topic, value=value, partition=0)
        assert producer.flush(60) == 0
    yield f"{broker.host}:{broker.port}"
    producer.flush(1)


def sizes(bootstrap: str, first: int = 0, limit: int = 1_000_512) -> list[int]:
    """Read the topic from an offset on, and return the sizes of its values."""
    client = {
        "bootstrap.servers": bootstrap,
        "log_level": "0",
        **SMALL,
        "receive.message.max.bytes": str(limit),
    }
    cluster = KafkaCluster(client, settings=ApplicationSettings.parse("app"))
    with closing(cluster.reader(group_id="app")) as reader:
        read = BoundedRead(reader, {IN: (first, 3)})
        return [len(record.value() or b"") for fetched in read for record in fetched[IN]]


@pytest.mark.promise("unreadable-batches-are-named")
@pytest.mark.remedy("client_errors.unreadable_batch")
def test_reading_goes_on_with_or_without_a_batch_that_unpacks_to_too_much(bootstrap: str) -> None:
    with pytest.raises(KafkaClientError) as refused:
        sizes(bootstrap)
    error = refused.value
    assert error.cause.startswith("in-0@1: ")
    assert "1000512 bytes of receive.message.max.bytes" in error.cause
    assert "no retry helps" in error.fix
    assert not error.is_retriable

    assert sizes(bootstrap, limit=3 * LARGE) == [1, LARGE, 1]
    assert "--accept in:0 --to-offset" in error.fix
    assert sizes(bootstrap, first=2) == [1]
