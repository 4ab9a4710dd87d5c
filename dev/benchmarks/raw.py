"""Raw consume and raw produce in Spark tasks: the physical limit of client and broker, no work on records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from dev.benchmarks.hand_written import Loop, clients, produce_when_there_is_room

#: So many of the input's own records are written again and again: compression finds nothing to gain.
_SAMPLE = 100_000


def raw(kind: str, loop: Loop) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the ``mapInArrow`` function: partition numbers in, seconds of the loop alone out.

    :param kind: ``consume`` or ``produce``.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        loops = {"consume": _consume, "produce": _produce}
        for batch in batches:
            for partition in batch.column(0).to_pylist():
                seconds = loops[kind](loop, partition)
                yield pa.RecordBatch.from_arrays([pa.array([str(seconds)])], names=["report"])

    return run


def _consume(loop: Loop, partition: int) -> float:
    started = time.monotonic()
    with clients(loop, partition) as opened:
        take = opened.take if loop.by_columns else partial(_consumed, opened.consumer)
        position, stop = 0, loop.stops[partition]
        while position < stop:
            messages = take()
            if messages:
                position = messages[-1].offset() + 1
    return time.monotonic() - started


def _consumed(consumer: Any) -> list[Any]:
    """Return the records that come next; only the last one is looked at."""
    messages: list[Any] = consumer.consume(2_000, 0.05)
    if messages and messages[-1].error() is not None:
        raise RuntimeError(str(messages[-1].error()))
    return messages


def _produce(loop: Loop, partition: int) -> float:
    stop = loop.stops[partition]
    sample: list[tuple[bytes, bytes]] = []
    with clients(loop, partition) as opened:
        while len(sample) < min(stop, _SAMPLE):
            sample += [(message.key(), message.value()) for message in opened.take()]
    return _timed_produce(loop, partition, stop, sample)


def _timed_produce(loop: Loop, partition: int, records: int, sample: list[tuple[bytes, bytes]]) -> float:
    started = time.monotonic()
    with clients(loop, partition) as opened:
        producer, produce, sink, written = opened.producer, opened.produce, loop.sink, 0
        producer.init_transactions(30)
        producer.begin_transaction()
        while written < records:
            for key, value in sample[: records - written]:
                try:
                    produce(sink, value, key)
                except BufferError:
                    produce_when_there_is_room(producer, sink, value, key)
            written += len(sample)
        producer.commit_transaction(60)
        return time.monotonic() - started
