"""A producer outside the engine, whose topic grows while it writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from airflow_kstreams.streams import ConfigError, LinearHashPartitioner, partition_of_key

pytestmark = pytest.mark.promise("producers-acknowledge-before-they-switch")

SECONDS = 60
KEYS = [b"%d" % number for number in range(300)]


@pytest.fixture
def producer(kafka: str) -> Iterator[Producer]:
    """Sends nothing by itself before long."""
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 200_000, "log_level": 2})
    yield producer
    producer.purge()
    producer.close()


def test_all_is_acknowledged_before_a_producer_uses_new_partitions(
    producer: Producer,
    grow: Callable[[str, int], None],
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    consume_all: Callable[..., list[Any]],
) -> None:
    topic = create_topic(topic_name("growing"), 2)
    partitioner = LinearHashPartitioner({topic: 2}, producer, refresh_seconds=0)
    acknowledged: list[tuple[int | None, bytes]] = []

    def write(value: bytes) -> None:
        for key in KEYS:
            producer.produce(
                topic,
                key=key,
                value=value,
                partition=partitioner.partition(topic, key),
                on_delivery=lambda error, message: acknowledged.append((message.partition(), value)),
            )

    write(b"before")
    assert not acknowledged
    grow(topic, 3)
    assert not acknowledged
    moved = next(key for key in KEYS if partition_of_key(key, 2, 3) == 2)
    assert partitioner.partition(topic, moved) == 2
    assert len(acknowledged) == len(KEYS) and {partition for partition, _ in acknowledged} == {0, 1}
    write(b"behind")
    assert producer.flush(SECONDS) == 0
    places = {(row.key, row.value): row.partition for row in consume_all(topic)}
    assert places == {(key, b"before"): partition_of_key(key, 2, 2) for key in KEYS} | {
        (key, b"behind"): partition_of_key(key, 2, 3) for key in KEYS
    }


def test_producer_is_told_when_its_topic_does_not_exist_or_no_broker_answers(
    producer: Producer, topic_name: Callable[..., str]
) -> None:
    topic = topic_name("missing")
    with pytest.raises(ConfigError, match="has no partitions"):
        LinearHashPartitioner({topic: 2}, producer).partition(topic, b"key")
    nowhere = Producer({"bootstrap.servers": "127.0.0.1:9", "log_level": 0})
    try:
        with pytest.raises(KafkaException):
            LinearHashPartitioner({topic: 2}, nowhere, timeout_seconds=0.5).partition(topic, b"key")
    finally:
        nowhere.close()
