"""What a system wrote, in a form that can be compared with what another wrote."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

_CLIENT_SECONDS = 30.0
_BITS = (1 << 64) - 1
#: A record: partition, key, value.
Record = tuple[int, bytes | None, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """Equal digests mean equal outputs, in whatever order the records came.

    :param records: how many there are, or for a table how many keys.
    :param checksum: sum of hashes; comparable within one process only.
    """

    records: int
    checksum: int


def digest(records: Iterable[Iterable[Record]], *, table: bool) -> Digest:
    """Sum up records.

    :param records: in batches; of one partition in its order.
    :param table: only the last value of each key counts, and none if that is a tombstone.
    """
    return _table_digest(records) if table else _record_digest(records)


def _record_digest(batches: Iterable[Iterable[Record]]) -> Digest:
    count = checksum = 0
    for batch in batches:
        for _, key, value in batch:
            count += 1
            checksum += _hash(key, value)
    return Digest(records=count, checksum=checksum & _BITS)


def _table_digest(batches: Iterable[Iterable[Record]]) -> Digest:
    last: dict[bytes | None, bytes | None] = {}
    homes: dict[bytes | None, int] = {}
    for batch in batches:
        for partition, key, value in batch:
            if homes.setdefault(key, partition) != partition:
                raise ValueError(f"key {_shown(key)} is in partitions {homes[key]} and {partition}")
            last[key] = value
    rows = {key: value for key, value in last.items() if value is not None}
    return Digest(records=len(rows), checksum=sum(_hash(*row) for row in rows.items()) & _BITS)


def _hash(key: bytes | None, value: bytes | None) -> int:
    """Hash a record as one text: hashes of tuples are so regular that sums of them hide swapped values."""
    lengths = (-1 if key is None else len(key), -1 if value is None else len(value))
    return hash(b"%d,%d:%b%b" % (*lengths, key or b"", value or b""))


def _shown(key: bytes | None) -> str:
    return "null" if key is None else hashlib.sha256(key).hexdigest()[:12]


def differences(ours: Digest, theirs: Digest) -> str:
    """Say how another output differs from ours; nothing if it does not."""
    if theirs.records != ours.records:
        return f"{theirs.records:,} records, ours has {ours.records:,}"
    return "" if theirs.checksum == ours.checksum else f"other contents in {ours.records:,} records"


def read(bootstrap: str, topic: str) -> Iterator[list[Record]]:
    """Read a topic's committed records from its start to its present end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-outputs",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "queued.max.messages.kbytes": 65_536,
            "fetch.queue.backoff.ms": 5,
        }
    )
    try:
        left = set(consumer.list_topics(topic, timeout=_CLIENT_SECONDS).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
        while left:
            batch: list[Record] = []
            for message in consumer.consume(10_000, timeout=0.2):
                error = message.error()
                if error is None:
                    batch.append((message.partition() or 0, message.key(), message.value()))
                elif error.name() == "_PARTITION_EOF":
                    left.discard(message.partition() or 0)
                else:
                    raise KafkaException(error)
            yield batch
    finally:
        consumer.close()
