"""The loops a careful engineer writes by hand for one partition, exactly once: the yardstick."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

_CLIENT_SECONDS = 30
#: The loop with state gives results after so many records, and commits those that are so long after the last
#: commit; this engine does the same.
_RECORDS_PER_RESULT = 100_000
_SECONDS_PER_COMMIT = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """What a loop reads and writes.

    :param group: consumer group, and the start of every transactional id.
    :param stops: end of every input partition.
    :param changelog: of the loop with state.
    """

    bootstrap: str
    group: str
    source: str
    sink: str
    stops: list[int]
    changelog: str = ""


def hand_written(
    loop: Loop, kind: str = "stateless"
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the ``mapInArrow`` function: partition numbers in, record counts out.

    :param kind: ``stateless``, ``padded`` or ``sum_by_key``.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        process = _sum if kind == "sum_by_key" else _filter_and_map
        for batch in batches:
            for partition in batch.column(0).to_pylist():
                count = process(loop, partition, kind)
                yield pa.RecordBatch.from_arrays([pa.array([str(count)])], names=["report"])

    return run


def clients(loop: Loop, partition: int) -> tuple[Any, Any]:
    """Return a consumer at the partition's start, and a producer."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": loop.bootstrap,
            "group.id": loop.group,
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
            "bootstrap.servers": loop.bootstrap,
            "transactional.id": f"{loop.group}-{partition}",
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.kbytes": 65536,
            "compression.type": "lz4",
            "delivery.report.only.error": True,
            "partitioner": "murmur2_random",
        }
    )
    consumer.assign([TopicPartition(loop.source, partition, 0)])
    return consumer, producer


def _filter_and_map(loop: Loop, partition: int, kind: str) -> int:
    import msgspec

    from dev.benchmarks.suite_topologies import Event, Padded, Slim

    decode = msgspec.json.Decoder(Event).decode
    encode = msgspec.json.Encoder().encode
    padded, sink, stop = kind == "padded", loop.sink, loop.stops[partition]
    consumer, producer = clients(loop, partition)
    producer.init_transactions(_CLIENT_SECONDS)
    producer.begin_transaction()
    produce = producer.produce
    position = count = 0
    while position < stop:
        messages = _consumed(consumer)
        for message in messages:
            event = decode(message.value())
            if event.amount % 10 != 0:
                if padded:
                    value = encode(Padded(event.id, event.user, event.amount * 100, event.note))
                else:
                    value = encode(Slim(event.id, event.user, event.amount * 100))
                try:
                    produce(sink, value, message.key())
                except BufferError:
                    produce_when_there_is_room(producer, sink, value, message.key())
        producer.poll(0)
        if messages:
            position = messages[-1].offset() + 1
            count += len(messages)
    _commit(loop, partition, position, consumer, producer)
    consumer.close()
    return count


def _sum(loop: Loop, partition: int, _kind: str) -> int:
    import msgspec

    from dev.benchmarks.suite_topologies import Event

    decode = msgspec.json.Decoder(Event).decode
    stop = loop.stops[partition]
    consumer, producer = clients(loop, partition)
    producer.init_transactions(_CLIENT_SECONDS)
    totals: dict[bytes, int] = {}
    dirty: set[bytes] = set()
    unlogged: set[bytes] = set()
    position = count = told = 0
    committed_at = time.monotonic()
    while position < stop:
        for message in _consumed(consumer):
            key = message.key()
            totals[key] = totals.get(key, 0) + decode(message.value()).amount
            dirty.add(key)
            position = message.offset() + 1
            count += 1
        if dirty and (count - told >= _RECORDS_PER_RESULT or position >= stop):
            if not unlogged:
                producer.begin_transaction()
            _write(producer, loop.sink, {key: totals[key] for key in dirty})
            unlogged |= dirty
            dirty.clear()
            told = count
            if position >= stop or time.monotonic() - committed_at >= _SECONDS_PER_COMMIT:
                _write(producer, loop.changelog, {key: totals[key] for key in unlogged}, partition)
                _commit(loop, partition, position, consumer, producer)
                unlogged.clear()
                committed_at = time.monotonic()
    consumer.close()
    return count


def _write(producer: Any, topic: str, totals: Mapping[bytes, int], *partition: int) -> None:
    """Write what changed, into the partition of the key unless one is named."""
    produce = producer.produce
    for key, total in totals.items():
        value = b"%d" % total
        try:
            produce(topic, value, key, *partition)
        except BufferError:
            produce_when_there_is_room(producer, topic, value, key, *partition)


def produce_when_there_is_room(producer: Any, *record: Any) -> None:
    """Produce a record after the client's queue was full."""
    while True:
        producer.poll(0.05)
        try:
            producer.produce(*record)
        except BufferError:
            continue
        return


def _consumed(consumer: Any) -> list[Any]:
    messages: list[Any] = consumer.consume(2_000, 0.05)
    for message in messages:
        if message.error() is not None:
            raise RuntimeError(str(message.error()))
    return messages


def _commit(loop: Loop, partition: int, position: int, consumer: Any, producer: Any) -> None:
    from confluent_kafka import TopicPartition

    offsets = [TopicPartition(loop.source, partition, position)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), _CLIENT_SECONDS)
    producer.commit_transaction(_CLIENT_SECONDS)
