"""Computes the size of a record at the broker, the largest record that a writer takes, and the time by which
a record is dated beyond the limits of its topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from airflow_kstreams.streams.ports import Headers, TopicLimits
from airflow_kstreams.streams.records.timestamp_reading import iso_of

#: Kafka's default of ``max.message.bytes`` of topics and ``message.max.bytes`` of brokers.
BROKER_MAX_BYTES = 1_048_588
#: Limits of a topic without settings of its own, from Kafka 4 on.
BROKER_LIMITS = TopicLimits(BROKER_MAX_BYTES, after_ms=3_600_000)
#: The client's default of ``message.max.bytes`` and ``batch.size``, and the largest value that it takes for
#: ``message.max.bytes``.
_CLIENT_BYTES, _CLIENT_LARGEST = 1_000_000, 1_000_000_000
#: Most bytes of a batch with one record, without key, value and headers.
_OVERHEAD = 61 + 36
#: Most bytes of a header, without name and value.
_HEADER_OVERHEAD = 10


def record_bytes(key: bytes | None, value: bytes | None, headers: Headers | None) -> int:
    """Return the most bytes that a record takes when it is written alone and not compressed."""
    size = _OVERHEAD + len(key or b"") + len(value or b"")
    for name, header in headers or ():
        size += _HEADER_OVERHEAD + len(name.encode()) + len(header or b"")
    return size


class WriterLimits(NamedTuple):
    """A writer's limits.

    :param record_bytes: most bytes of a record, not compressed; ``message.max.bytes`` of the client.
    :param batch_bytes: most bytes of a batch of several records, not compressed; ``batch.size`` of the
        client.
    """

    record_bytes: int = _CLIENT_BYTES
    batch_bytes: int = _CLIENT_BYTES


#: Limits of a writer that knows nothing of its topics.
CLIENT_LIMITS = WriterLimits()


def writer_limits(topics: Mapping[str, TopicLimits] | None) -> WriterLimits:
    """Return the limits of a writer for its topics.

    A topic that takes less than the client does by itself may get records that fit only when they are
    compressed: the broker decides. Small records must not fail because they leave together.

    :param topics: topic -> its limits.
    """
    limits = [topic.max_bytes for topic in (topics or {}).values()]
    largest, smallest = max(limits, default=0), min(limits, default=_CLIENT_BYTES)
    return WriterLimits(
        min(max(largest, _CLIENT_BYTES), _CLIENT_LARGEST), max(1, min(smallest, _CLIENT_BYTES))
    )


def beyond_ms(timestamp_ms: int, now_ms: int, limits: TopicLimits) -> int:
    """Return the milliseconds by which a record is dated beyond its topic's limits; 0 or less if it is
    within.

    :param timestamp_ms: the record's timestamp, epoch milliseconds.
    :param now_ms: the broker's time, epoch milliseconds.
    """
    return max(now_ms - limits.before_ms - timestamp_ms, timestamp_ms - now_ms - limits.after_ms)


def shown_time(timestamp_ms: int, now_ms: int, limits: TopicLimits | None) -> str:
    """Describe the time of a record that its topic refuses.

    :param timestamp_ms: the record's timestamp, epoch milliseconds.
    :param now_ms: the time of this machine, epoch milliseconds.
    :param limits: limits of the topic; None if they are not known.
    """
    early = timestamp_ms < now_ms
    side = "before" if early else "after"
    limit = "not known here"
    if limits is not None:
        limit = f"{limits.before_ms if early else limits.after_ms:,}"
    return (
        f"dated {iso_of(timestamp_ms)}, {abs(timestamp_ms - now_ms):,} ms {side} this machine's time; the "
        f"topic's message.timestamp.{side}.max.ms is {limit}"
    )
