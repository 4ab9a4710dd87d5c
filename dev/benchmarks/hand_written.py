"""The loops a careful engineer writes by hand for one partition, exactly once: the yardstick.

Records cross between Python and the client as confluent-kafka has it, or by columns: with the library
``airflow-kstreams-columns``, on the same clients, as this engine does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

_CLIENT_SECONDS = 30
#: The loop with state gives results after so many records, and commits those that are so long after the last
#: commit; this engine does the same.
_RECORDS_PER_RESULT = 100_000
_SECONDS_PER_COMMIT = 5.0
#: Of one fetch.
_RECORDS, _WAIT_MS = 2_000, 50
#: Every time of a record is taken: none is given.
_ALL_TIMES_MS = (0, (1 << 63) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """What a loop reads and writes.

    :param group: consumer group, and the start of every transactional id.
    :param stops: end of every input partition.
    :param changelog: of the loop with state.
    :param codec: that compresses what it writes.
    :param by_columns: whether records cross by columns.
    """

    bootstrap: str
    group: str
    source: str
    sink: str
    stops: list[int]
    changelog: str = ""
    codec: str = "lz4"
    by_columns: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """The clients of one partition, and what the loop's own lines call.

    :param take: returns the records that come next, after a short wait.
    :param produce: sends a record: topic, value, key and, if need be, a partition. It raises ``BufferError``
        where the client's queue is full, unless it waits itself.
    """

    consumer: Any
    producer: Any
    take: Callable[[], Sequence[Any]]
    produce: Callable[..., None]


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
                with clients(loop, partition) as opened:
                    count = process(loop, partition, kind, opened)
                yield pa.RecordBatch.from_arrays([pa.array([str(count)])], names=["report"])

    return run


@contextmanager
def clients(loop: Loop, partition: int) -> Iterator[Clients]:
    """Open a consumer at the partition's start, and a producer, and close them behind the block."""
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
            "compression.type": loop.codec,
            "delivery.report.only.error": True,
            "partitioner": "murmur2_random",
        }
    )
    crossing = _by_columns if loop.by_columns else _one_by_one
    with crossing(loop, partition, consumer, producer) as opened:
        consumer.assign([TopicPartition(loop.source, partition, 0)])
        yield opened
    consumer.close()


@contextmanager
def _one_by_one(_loop: Loop, _partition: int, consumer: Any, producer: Any) -> Iterator[Clients]:
    yield Clients(
        consumer=consumer, producer=producer, take=partial(_consumed, consumer), produce=producer.produce
    )


@contextmanager
def _by_columns(loop: Loop, partition: int, consumer: Any, producer: Any) -> Iterator[Clients]:
    """Have records cross by columns: a fetch in one call, and each record that is sent in one call of C.

    :raises RuntimeError: the library is not here, or is not for this version of the client.
    """
    from airflow_kstreams.kafka.record_columns import border

    library, why_not = border()
    if library is None:
        raise RuntimeError(f"records cannot cross by columns: {why_not}")
    queue = library.Queue(consumer)
    queue.forward(loop.source, partition)
    sender = library.Sender(producer, partial(produce_when_there_is_room, producer), lambda: _ALL_TIMES_MS)
    yield Clients(
        consumer=consumer,
        producer=producer,
        take=partial(_taken, queue, consumer),
        produce=sender.produce,
    )
    sender.release()
    queue.close()  # else the consumer would wait for it


def _filter_and_map(loop: Loop, partition: int, kind: str, opened: Clients) -> int:
    import msgspec

    from dev.benchmarks.suite_topologies import Event, Padded, Slim

    decode = msgspec.json.Decoder(Event).decode
    encode = msgspec.json.Encoder().encode
    padded, sink, stop = kind == "padded", loop.sink, loop.stops[partition]
    producer, take, produce = opened.producer, opened.take, opened.produce
    producer.init_transactions(_CLIENT_SECONDS)
    producer.begin_transaction()
    position = count = 0
    while position < stop:
        messages = take()
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
    _commit(loop, partition, position, opened)
    return count


def _sum(loop: Loop, partition: int, _kind: str, opened: Clients) -> int:
    import msgspec

    from dev.benchmarks.suite_topologies import Event

    decode = msgspec.json.Decoder(Event).decode
    stop, take, producer = loop.stops[partition], opened.take, opened.producer
    producer.init_transactions(_CLIENT_SECONDS)
    totals: dict[bytes, int] = {}
    dirty: set[bytes] = set()
    unlogged: set[bytes] = set()
    position = count = told = 0
    committed_at = time.monotonic()
    while position < stop:
        for message in take():
            key = message.key()
            totals[key] = totals.get(key, 0) + decode(message.value()).amount
            dirty.add(key)
            position = message.offset() + 1
            count += 1
        if dirty and (count - told >= _RECORDS_PER_RESULT or position >= stop):
            if not unlogged:
                producer.begin_transaction()
            _write(opened, loop.sink, {key: totals[key] for key in dirty})
            unlogged |= dirty
            dirty.clear()
            told = count
            if position >= stop or time.monotonic() - committed_at >= _SECONDS_PER_COMMIT:
                _write(opened, loop.changelog, {key: totals[key] for key in unlogged}, partition)
                _commit(loop, partition, position, opened)
                unlogged.clear()
                committed_at = time.monotonic()
    return count


def _write(opened: Clients, topic: str, totals: Mapping[bytes, int], *partition: int) -> None:
    """Write what changed, into the partition of the key unless one is named."""
    produce = opened.produce
    for key, total in totals.items():
        value = b"%d" % total
        try:
            produce(topic, value, key, *partition)
        except BufferError:
            produce_when_there_is_room(opened.producer, topic, value, key, *partition)


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
    messages: list[Any] = consumer.consume(_RECORDS, _WAIT_MS / 1000)
    for message in messages:
        if message.error() is not None:
            raise RuntimeError(str(message.error()))
    return messages


def _taken(queue: Any, consumer: Any) -> Sequence[Any]:
    """Take the records of the one partition that is read; the client's own events come from its ``poll``."""
    event = consumer.poll(0)
    if event is not None:
        raise RuntimeError(str(event.error() or "a record came past the queue"))
    groups, faults = queue.take(_RECORDS, _WAIT_MS)
    if faults:
        raise RuntimeError(str(faults[0]))
    return groups[0][2] if groups else ()


def _commit(loop: Loop, partition: int, position: int, opened: Clients) -> None:
    from confluent_kafka import TopicPartition

    producer, consumer = opened.producer, opened.consumer
    offsets = [TopicPartition(loop.source, partition, position)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), _CLIENT_SECONDS)
    producer.commit_transaction(_CLIENT_SECONDS)
