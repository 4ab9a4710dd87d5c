"""Keeps one partition's log: records, transaction markers, the last stable offset, and sizes by Kafka's
formats.

Invariant: offsets only grow and are never given twice, unless the log is truncated; compaction and deletion
leave gaps. The last stable offset is the first offset of the oldest transaction without a marker in this
partition, else the high watermark; a read_committed reader sees the records before it, except those of
aborted transactions.

Three limits have three measures. The client measures a record by its largest size in a request, not
compressed. A partition's leader measures a batch by its size in the log, headers of batch and records
included, as the writer compressed it. The group coordinator measures a commit by the batch of records that it
would write to the topic of offsets, one record for each partition, never compressed.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_kstreams.streams.ports import CommittedOffset, Headers, Isolation, TopicPartition

#: Key, value, timestamp in epoch milliseconds, headers.
Content = tuple[bytes | None, bytes | None, int, Headers | None]
#: Kafka's timestamp type "create time".
_CREATE_TIME = 1


@dataclass(slots=True, kw_only=True, eq=False)
class Transaction:
    """The records and offsets of one producer between two decisions.

    :ivar committed: the coordinator's decision, None while there is none.
    :ivar records: its records, in order.
    :ivar logs: the partitions it wrote to.
    :ivar offsets: its offsets by group.
    :ivar unmarked: number of partitions and groups that still wait for the decision's marker.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    committed: bool | None = None
    records: list[LogRecord] = field(default_factory=list)
    logs: dict[TopicPartition, PartitionLog] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)
    unmarked: int = 0


@dataclass(slots=True, eq=False, repr=False)
class LogRecord:
    """A record in a log, with the attributes of the port ``Record``.

    :ivar transaction: the one that wrote it; None outside any.
    :ivar epoch: epoch of the leader that took it; None if there are no leaders.
    """

    at: TopicPartition
    position: int
    content: Content
    transaction: Transaction | None = None
    epoch: int | None = 0

    def __repr__(self) -> str:
        return f"LogRecord({self.at}@{self.position}, {self.key()!r}: {self.value()!r})"

    @property
    def aborted(self) -> bool:
        """True if its transaction was aborted."""
        return self.transaction is not None and self.transaction.committed is False

    def topic(self) -> str:
        """Return the topic."""
        return self.at.topic

    def partition(self) -> int:
        """Return the partition."""
        return self.at.partition

    def offset(self) -> int:
        """Return the offset in the partition."""
        return self.position

    def key(self) -> bytes | None:
        """Return the serialized key."""
        return self.content[0]

    def value(self) -> bytes | None:
        """Return the serialized value."""
        return self.content[1]

    def timestamp(self) -> tuple[int, int]:
        """Return the timestamp's type and the timestamp, epoch milliseconds."""
        return _CREATE_TIME, self.content[2]

    def headers(self) -> Headers | None:
        """Return the headers in order, None when there are none."""
        return self.content[3]

    def leader_epoch(self) -> int | None:
        """Return the epoch of the leader that took the record, None if there are no leaders."""
        return self.epoch


class _Marker:
    """A commit or abort marker; it takes an offset and no reader sees it."""

    __slots__ = ("position", "written_ms")

    def __init__(self, position: int, written_ms: int) -> None:
        self.position = position
        self.written_ms = written_ms


def _position(entry: Any) -> int:
    position: int = entry.position
    return position


class PartitionLog:
    """The log of one partition.

    :param at: the partition.
    """

    __slots__ = ("_entries", "_open", "at", "epoch", "high_watermark", "start")

    def __init__(self, at: TopicPartition) -> None:
        self.at = at
        self.epoch = 0
        self.start = 0
        self.high_watermark = 0
        self._entries: list[LogRecord | _Marker] = []
        self._open: dict[int, tuple[Transaction, int]] = {}

    def append(
        self,
        content: Content,
        transaction: Transaction | None = None,
    ) -> LogRecord:
        """Append a record.

        :param content: key, value, timestamp in epoch milliseconds, headers.
        """
        record = LogRecord(self.at, self.high_watermark, content, transaction, self.epoch)
        if transaction is not None:
            self._open.setdefault(id(transaction), (transaction, record.position))
            transaction.records.append(record)
        self._entries.append(record)
        self.high_watermark += 1
        return record

    def mark(self, transaction: Transaction, now_ms: int) -> None:
        """Append the marker of a decided transaction.

        It ends the open records of its producer here, whichever transaction they are of.
        """
        self._open.pop(id(transaction), None)
        for left, _ in list(self._open.values()):
            if left.producer_id == transaction.producer_id:
                del self._open[id(left)]
                for record in left.records:
                    if record.at == self.at:
                        record.transaction = transaction
        self._entries.append(_Marker(self.high_watermark, now_ms))
        self.high_watermark += 1

    def end(self, isolation: Isolation) -> int:
        """Return the last stable offset under read_committed, else the high watermark."""
        if isolation == "read_committed" and self._open:
            return min(first for _, first in self._open.values())
        return self.high_watermark

    def read(self, position: int, limit: int, isolation: Isolation) -> tuple[list[LogRecord], int]:
        """Return at most ``limit`` visible records from a position, and the position after them.

        With fewer records than the limit, the position is the end that this isolation sees.
        """
        end = self.end(isolation)
        records: list[LogRecord] = []
        for index in range(bisect_left(self._entries, position, key=_position), len(self._entries)):
            entry = self._entries[index]
            if entry.position >= end:
                break
            if isinstance(entry, LogRecord) and not (isolation == "read_committed" and entry.aborted):
                if len(records) == limit:
                    return records, records[-1].position + 1
                records.append(entry)
        return records, max(position, end)

    def offset_at(self, time_ms: int) -> int | None:
        """Return the first offset whose record is dated at or after a time, None if there is none."""
        for entry in self._entries:
            dated_ms = entry.timestamp()[1] if isinstance(entry, LogRecord) else entry.written_ms
            if dated_ms >= time_ms:
                return entry.position
        return None

    def delete_before(self, offset: int) -> None:
        """Move the start of the log, which deletes the records before it."""
        self.start = max(self.start, offset)
        del self._entries[: bisect_left(self._entries, self.start, key=_position)]

    def truncate(self, end: int) -> None:
        """Delete the records from an offset on, as when a replica that lagged becomes the leader."""
        self.epoch += 1
        self.high_watermark = min(self.high_watermark, end)
        del self._entries[bisect_left(self._entries, end, key=_position) :]

    def compact(self, *, drop_tombstones_below: int = 0) -> None:
        """Keep the last committed record of each key below the last stable offset, drop aborted ones.

        Markers stay, and so do tombstones from an offset on: the broker keeps them for a while.
        """
        stable = self.end("read_committed")
        last = {
            entry.key(): entry.position
            for entry in self._entries
            if isinstance(entry, LogRecord) and entry.position < stable and not entry.aborted
        }

        def keep(entry: LogRecord | _Marker) -> bool:
            if not isinstance(entry, LogRecord) or entry.position >= stable:
                return True
            if entry.aborted or last[entry.key()] != entry.position:
                return False
            return entry.value() is not None or entry.position >= drop_tombstones_below

        self._entries = [entry for entry in self._entries if keep(entry)]


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
    """Return True if a topic refuses a batch, however its writer compresses it."""
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
