"""The loop a careful engineer writes by hand for one partition: exactly once, no framework. The yardstick."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

GROUP = "bench-hand-written"


def hand_written(
    bootstrap: str, stops: list[int]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the ``mapInArrow`` function: partition numbers in, record counts out."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for partition in batch.column(0).to_pylist():
                count = _run_partition(bootstrap, partition, stops[partition])
                yield pa.RecordBatch.from_arrays([pa.array([str(count)])], names=["report"])

    return run


def _run_partition(bootstrap: str, partition: int, stop: int) -> int:
    import msgspec
    from confluent_kafka import Consumer, Producer, TopicPartition

    from dev.benchmarks.applications import Event, Slim

    decode = msgspec.json.Decoder(Event).decode
    encode = msgspec.json.Encoder().encode
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            # The client's own queue settings stall a fast reader: it pauses fetching for a second when its
            # queue is full.
            "queued.max.messages.kbytes": 32768,
            "fetch.message.max.bytes": 4_194_304,
            "fetch.queue.backoff.ms": 5,
            "fetch.wait.max.ms": 50,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"{GROUP}-{partition}",
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.kbytes": 65536,
            "compression.type": "lz4",
            "delivery.report.only.error": True,
            "partitioner": "murmur2_random",
        }
    )
    producer.init_transactions(30)
    consumer.assign([TopicPartition("bench-events", partition, 0)])
    producer.begin_transaction()
    produce = producer.produce
    position = count = 0
    while position < stop:
        messages = consumer.consume(2_000, 0.05)
        for message in messages:
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
            event = decode(message.value())  # type: ignore[arg-type]
            if event.amount % 10 != 0:
                value = encode(Slim(event.id, event.user, event.amount * 100))
                try:
                    produce("bench-out", value, message.key())
                except BufferError:
                    producer.poll(0.05)
                    produce("bench-out", value, message.key())
        producer.poll(0)
        if messages:
            position = (messages[-1].offset() or 0) + 1
            count += len(messages)
    offsets: list[Any] = [TopicPartition("bench-events", partition, position)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
    producer.commit_transaction(30)
    consumer.close()
    return count
