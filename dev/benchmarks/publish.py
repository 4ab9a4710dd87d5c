"""Creates and fills the benchmarks' topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

KINDS = ("view", "click", "buy", "return")


class Message(NamedTuple):
    """A record to publish.

    :param timestamp_ms: 0 for now.
    """

    topic: str
    value: bytes
    key: bytes
    timestamp_ms: int = 0


def create_topics(bootstrap: str, topics: dict[str, int]) -> None:
    """Create topics anew: a topic of the same name is deleted first."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    existing = admin.list_topics(timeout=30).topics
    stale = [name for name in topics if name in existing]
    if stale:
        for future in admin.delete_topics(stale).values():
            future.result(30)
    pending = dict(topics)
    while pending:
        futures = admin.create_topics(
            [NewTopic(name, count, 1, config={"retention.ms": "-1"}) for name, count in pending.items()]
        )
        for name, future in futures.items():
            error = future.exception(30)
            if error is None:
                pending.pop(name)
            elif "ALREADY_EXISTS" not in str(error) and "already exists" not in str(error):
                raise error


def publish(
    bootstrap: str,
    messages: Iterable[Message],
    *,
    count: int,
    progress: Callable[[int], None],
    partition: int = -1,
    codec: str = "",
) -> None:
    """Publish records.

    :param count: how many there are.
    :param partition: for all of them; -1 for those that their keys ask for.
    :param progress: is told now and then how many were sent.
    :param codec: that compresses them; empty for none.
    :raises RuntimeError: some were not delivered.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
            "partitioner": "murmur2_random",
            "compression.type": codec or "none",
            "acks": "all",
            # Closing it says that events were left unread, which nobody asked for.
            "log_level": 2,
        }
    )
    for number, message in enumerate(messages):
        while True:
            try:
                producer.produce(
                    message.topic,
                    message.value,
                    message.key,
                    partition=partition,
                    timestamp=message.timestamp_ms,
                )
                break
            except BufferError:
                producer.poll(0.05)
        if number % 10_000 == 0:
            producer.poll(0)
            progress(number)
    left = producer.flush(120)
    if left:
        raise RuntimeError(f"{left} records were not delivered")
    producer.close()
    progress(count)
