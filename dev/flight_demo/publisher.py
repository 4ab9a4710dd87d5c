"""Publishes records into Kafka as the data set's clock advances, with a plain client."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dev.flight_demo.data import TimedRecord
from dev.flight_demo.kafka_look import LOG_LEVEL

TOPICS = ("flights", "weather", "airlines", "carrier-delays")
PARTITIONS = 4
_CLIENT_SECONDS = 30.0
#: Records of 2013 must not expire; a broker takes them by default.
_TOPIC_CONFIG = {"retention.ms": "-1", "retention.bytes": "-1"}


class PublishError(Exception):
    """Some records did not reach the broker."""


def create_topics(bootstrap: str, names: Sequence[str] = TOPICS) -> None:
    """Create topics that keep records of 2013; returns when the broker has them."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": LOG_LEVEL})
    topics = [
        NewTopic(name, num_partitions=PARTITIONS, replication_factor=1, config=dict(_TOPIC_CONFIG))
        for name in names
    ]
    for created in admin.create_topics(topics).values():
        created.result(_CLIENT_SECONDS)


def publish(bootstrap: str, records: Sequence[TimedRecord], *, on_progress: Callable[[int], None]) -> None:
    """Send records and wait until the broker has all of them.

    :param bootstrap: ``bootstrap.servers``.
    :param records: in the order to send them.
    :param on_progress: called now and then with the number sent since the last call.
    :raises PublishError: at least one was not delivered.
    """
    refused: list[str] = []

    def note_failure(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            refused.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": LOG_LEVEL,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "linger.ms": 20,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    step = 5_000
    for start in range(0, len(records), step):
        batch = records[start : start + step]
        for record in batch:
            producer.produce(
                record.topic,
                record.value,
                record.key,
                timestamp=record.timestamp_ms,
                on_delivery=note_failure,
            )
        producer.poll(0)
        on_progress(len(batch))
    left = producer.flush(_CLIENT_SECONDS)
    if refused or left:
        raise PublishError(
            f"{left + len(refused)} records were not delivered: {(refused or ['timed out'])[0]}"
        )
