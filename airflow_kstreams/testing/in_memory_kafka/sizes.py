"""Computes the sizes of records, batches and commits of offsets, by Kafka's formats.

Three limits have three measures. The client measures a record by its largest size in a request, not
compressed. A partition's leader measures a batch by its size in the log, headers of batch and records
included, as the writer compressed it. The group coordinator measures a commit by the batch of records that it
would write to the topic of offsets, one record for each partition, never compressed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence

from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.testing.in_memory_kafka.log import Content

#: ``offset.metadata.max.bytes``, which the broker counts in characters. The client sends one more than it was
#: given.
OFFSET_METADATA_MAX = 4_096
#: Size of a record in a request, besides key, value and headers, as the client computes it.
_CLIENT_OVERHEAD = 36
#: Size of a batch's header in the log.
_BATCH_OVERHEAD = 61
#: Fields of a committed offset besides its metadata, and of its key besides group and topic.
_OFFSET_VALUE_FIXED, _OFFSET_KEY_FIXED = 2 + 8 + 4 + 8 + 1, 2 + 2 + 2 + 4


def request_bytes(content: Content) -> int:
    """Return the size of a record that the client compares with ``message.max.bytes``."""
    key, value, _, headers = content
    size = _CLIENT_OVERHEAD + len(key or b"") + len(value or b"")
    return size if not headers else size + _headers_bytes(content)


def is_too_large(contents: Sequence[Content], limit_bytes: int) -> bool:
    """Whether a topic refuses a batch, however its writer compresses it."""
    if _BATCH_OVERHEAD + sum(map(request_bytes, contents)) <= limit_bytes:
        return False
    return batch_bytes(contents) > limit_bytes and _compressed_bytes(contents) > limit_bytes


def batch_bytes(contents: Iterable[Content]) -> int:
    """Return the size of a batch in the log, not compressed."""
    total = _BATCH_OVERHEAD
    for delta, content in enumerate(contents):
        key, value, _, _ = content
        body = 2 + _signed(delta) + _field(key) + _field(value) + _headers_count_bytes(content)
        body += _headers_bytes(content)
        total += _signed(body) + body
    return total


def offsets_bytes(group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> int:
    """Return the size of the batch that commits offsets of a group."""
    total = _BATCH_OVERHEAD
    for delta, (at, committed) in enumerate(offsets.items()):
        key = _OFFSET_KEY_FIXED + len(group.encode()) + len(at.topic.encode())
        metadata = len(committed.metadata.encode()) + 1
        value = _OFFSET_VALUE_FIXED + _unsigned(metadata + 1) + metadata
        body = 2 + _signed(delta) + _signed(key) + key + _signed(value) + value + 1
        total += _signed(body) + body
    return total


def _compressed_bytes(contents: Iterable[Content]) -> int:
    """Return the approximate size of a batch in the log, compressed by its writer."""
    parts: list[bytes] = []
    for key, value, _, headers in contents:
        parts += [key or b"", value or b""]
        for name, header in headers or ():
            parts += [name.encode(), header or b""]
    return _BATCH_OVERHEAD + len(zlib.compress(b"".join(parts), 1))


def _headers_bytes(content: Content) -> int:
    headers = content[3] or ()
    return sum(_field(name.encode()) + _field(value) for name, value in headers)


def _headers_count_bytes(content: Content) -> int:
    return _signed(len(content[3] or ()))


def _field(data: bytes | None) -> int:
    """Return the size of a field: its bytes and their length."""
    return 1 if data is None else _signed(len(data)) + len(data)


def _signed(number: int) -> int:
    """Return the size of a number of a signed type that is not negative."""
    return _unsigned(2 * number)


def _unsigned(number: int) -> int:
    return max(1, (number.bit_length() + 6) // 7)
