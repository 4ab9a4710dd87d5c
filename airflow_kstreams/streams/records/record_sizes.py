"""Computes how large a record is to the broker, and how large a record a writer takes for a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from airflow_kstreams.streams.ports import Headers

#: ``max.message.bytes`` of topics, and ``message.max.bytes`` of brokers, that do not say otherwise.
BROKER_MAX_BYTES = 1_048_588
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


def writer_limits(max_message_bytes: Mapping[str, int] | None) -> WriterLimits:
    """Return the limits of a writer of some topics.

    A topic that takes less than the client does by itself may get records that fit only when they are
    compressed: the broker decides. Small records must not fail because they leave together.

    :param max_message_bytes: of each topic.
    """
    limits = (max_message_bytes or {}).values()
    largest, smallest = max(limits, default=0), min(limits, default=_CLIENT_BYTES)
    return WriterLimits(
        min(max(largest, _CLIENT_BYTES), _CLIENT_LARGEST), max(1, min(smallest, _CLIENT_BYTES))
    )
