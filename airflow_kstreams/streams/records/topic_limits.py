"""Says which records topics take: computes how large a record is to the broker, how large a record a writer
takes, and how far a record is dated beyond what its topic allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from airflow_kstreams.streams.ports import Headers, TopicLimits
from airflow_kstreams.streams.records.timestamp_reading import iso_of

#: ``max.message.bytes`` of topics, and ``message.max.bytes`` of brokers, that do not say otherwise.
BROKER_MAX_BYTES = 1_048_588
#: What a topic takes that says nothing of its own, from Kafka 4 on.
BROKER_LIMITS = TopicLimits(BROKER_MAX_BYTES, after_ms=3_600_000)
#: ``message.max.bytes`` and ``batch.size`` of a writer that is told nothing, and the most that the client
#: takes for the former.
_CLIENT_BYTES, _CLIENT_LARGEST = 1_000_000, 1_000_000_000
#: Of a batch with one record, besides key, value and headers: at most.
_OVERHEAD = 61 + 36
#: Of a header, besides name and value: at most.
_HEADER_OVERHEAD = 10


def record_bytes(key: bytes | None, value: bytes | None, headers: Headers | None) -> int:
    """Return how large a record is at most when it is written alone and nothing compresses it."""
    size = _OVERHEAD + len(key or b"") + len(value or b"")
    for name, header in headers or ():
        size += _HEADER_OVERHEAD + len(name.encode()) + len(header or b"")
    return size


class WriterLimits(NamedTuple):
    """A writer's limits.

    :param record_bytes: of a record, not compressed; ``message.max.bytes`` of the client.
    :param batch_bytes: of a batch of several records, not compressed; ``batch.size`` of the client.
    """

    record_bytes: int = _CLIENT_BYTES
    batch_bytes: int = _CLIENT_BYTES


#: Of a writer that is told nothing of its topics.
CLIENT_LIMITS = WriterLimits()


def writer_limits(topics: Mapping[str, TopicLimits] | None) -> WriterLimits:
    """Return the limits of a writer of some topics.

    A topic that takes less than the client does by itself may get records that fit only when they are
    compressed: the broker decides. Small records must not fail because they leave together.

    :param topics: limits of each topic.
    """
    limits = [topic.max_bytes for topic in (topics or {}).values()]
    largest, smallest = max(limits, default=0), min(limits, default=_CLIENT_BYTES)
    return WriterLimits(
        min(max(largest, _CLIENT_BYTES), _CLIENT_LARGEST), max(1, min(smallest, _CLIENT_BYTES))
    )


def beyond_ms(timestamp_ms: int, now_ms: int, limits: TopicLimits) -> int:
    """Return how far a record is dated beyond what its topic allows; 0 or less if it is not.

    :param now_ms: the broker's time.
    """
    return max(now_ms - limits.before_ms - timestamp_ms, timestamp_ms - now_ms - limits.after_ms)


def shown_time(timestamp_ms: int, now_ms: int, limits: TopicLimits | None) -> str:
    """Describe a record whose topic refuses its time.

    :param now_ms: the time of this machine.
    :param limits: of the topic; None if they are not known.
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
