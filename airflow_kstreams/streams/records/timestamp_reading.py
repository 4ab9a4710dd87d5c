"""Reads the timestamps of consumed records when they are buffered.

A record's own time needs no decoding. Any other extractor looks at the decoded record, so records of such a
source are decoded here, once, and wait decoded (:class:`ReadRecord`).

A record dated after the latest time that is allowed (``max.timestamp.ahead.ms``) never counts as the largest
timestamp before another one. In a task that goes by stream time it is treated like a record without a
timestamp, so that it does not move stream time; elsewhere it keeps its time.

A record that cannot or must not be read is no error yet: it waits in the queue under the largest timestamp
before it, and fails, is skipped or goes to the dead-letter topic when its turn comes, so that all records
before it are processed first, however many were fetched.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.graph.nodes import SourceNode
from airflow_kstreams.streams.partitioning.partition_groups import first_few
from airflow_kstreams.streams.ports import Headers, Record, TimedRecords, TopicPartition
from airflow_kstreams.streams.timestamps import ConsumedRecord, TimestampExtractor

#: Kafka keeps timestamps in signed 64-bit numbers.
_LARGEST_MS = 2**63 - 1
#: Times from 2000 to 2100 in seconds since the epoch; taken for milliseconds they lie in the first weeks of
#: 1970.
SECONDS = range(946_684_800, 4_102_444_800)

#: Type of an extractor's answer that might stand for a time -> the reason why it does not.
_NO_MOMENT: dict[Any, str] = {
    str: " that is no ISO 8601 with an offset from UTC",
    datetime: " without an offset from UTC",
    float: " without a unit",
}

#: Gives the latest timestamp that a record of a partition may have, epoch milliseconds. Called once per
#: fetch.
LatestAllowed = Callable[[], int]


def no_bound() -> int:
    """Allow every time."""
    return _LARGEST_MS


class RecordTimestamps:
    """Reads the timestamps that records carry.

    :param latest_ms: largest timestamp before the first record, epoch milliseconds; -1 without any.
    :param allowed: function that gives the latest timestamp that a record may have.
    :param timed: True if the task goes by stream time.
    """

    __slots__ = ("_allowed", "_latest_ms", "_timed")

    def __init__(self, *, latest_ms: int, allowed: LatestAllowed = no_bound, timed: bool = False) -> None:
        self._latest_ms = latest_ms
        self._allowed = allowed
        self._timed = timed

    def __call__(self, records: Sequence[Record]) -> tuple[Sequence[Record], list[int]]:
        """Return the records and their timestamps."""
        if isinstance(records, TimedRecords):
            timestamps = records.timestamps_ms
        else:
            # Neighbours often share a time, and then its object: tables keep a time for each key.
            last = -1
            timestamps = [
                last if (time_ms := record.timestamp()[1]) == last else (last := time_ms)
                for record in records
            ]
        allowed_ms, largest_ms = self._allowed(), max(timestamps)
        if min(timestamps) >= 0 and largest_ms <= allowed_ms:
            self._latest_ms = max(self._latest_ms, largest_ms)
            return records, timestamps
        kept, timestamps = list(records), list(timestamps)
        for index, timestamp_ms in enumerate(timestamps):
            if timestamp_ms < 0:
                kept[index] = UnfitRecord(records[index], no_timestamp(timestamp_ms))
                timestamps[index] = self._latest_ms
            elif timestamp_ms > allowed_ms:
                if self._timed:
                    error = TimestampAheadError(timestamp_ms, allowed_ms)
                    kept[index] = UnfitRecord(records[index], error)
                    timestamps[index] = self._latest_ms
            else:
                self._latest_ms = max(self._latest_ms, timestamp_ms)
        return kept, timestamps


class UnfitRecord:
    """A record that must not be processed, as one without a usable timestamp; decoding it raises.

    :param error: the reason why it must not be processed.
    """

    __slots__ = ("_error", "offset", "partition", "raw", "topic")

    def __init__(self, record: Record, error: Exception) -> None:
        self._error = error
        self.raw = as_consumed(record)
        self.topic = record.topic
        self.partition = record.partition
        self.offset = record.offset

    def key(self) -> bytes | None:
        """Refuse.

        :raises Exception: the reason.
        """
        raise self._error

    def value(self) -> bytes | None:
        """Return the bytes."""
        return self.raw.value()

    def timestamp(self) -> tuple[int, int]:
        """Return the timestamp, which may be invalid."""
        return self.raw.timestamp()

    def headers(self) -> Headers | None:
        """Return the headers."""
        return self.raw.headers()

    def leader_epoch(self) -> int | None:
        """Return the leader epoch."""
        return self.raw.leader_epoch()


def as_consumed(record: Record | ReadRecord) -> Record:
    """Return a record with its bytes in the log, without the wrappers of this module."""
    return record.raw if isinstance(record, _WRAPPING) else record


class ReadRecord:
    """A record decoded ahead of its turn.

    :ivar error: the reason why it cannot be processed, None if it can.
    :ivar skipped: True if it is to be dropped and counted.
    """

    __slots__ = ("error", "key", "offset", "raw", "skipped", "value")

    def __init__(self, record: Record) -> None:
        self.raw = as_consumed(record)
        self.offset = record.offset
        self.key: Any = None
        self.value: Any = None
        self.error: Exception | None = None
        self.skipped = False


_WRAPPING = (UnfitRecord, ReadRecord)


class ExtractedTimestamps:
    """Decodes records and asks an extractor for their timestamps.

    :param node: the source node.
    :param extractor: the source's extractor.
    :param latest_ms: largest timestamp before the first record, epoch milliseconds; -1 without any.
    :param now_ms: function that gives the wall-clock time, epoch milliseconds.
    :param allowed: function that gives the latest timestamp that the extractor may return.
    :param timed: True if the task goes by stream time.
    """

    def __init__(
        self,
        node: SourceNode,
        extractor: TimestampExtractor,
        *,
        latest_ms: int,
        now_ms: Callable[[], int],
        allowed: LatestAllowed = no_bound,
        timed: bool = False,
    ) -> None:
        self._node = node.name
        self._deserialize_key = node.key_serde.deserialize
        self._deserialize_value = node.value_serde.deserialize
        self._extractor = extractor
        self._extract = extractor.bound(now_ms)
        self._allowed = allowed
        self._timed = timed
        self._latest_ms = latest_ms

    def __call__(self, records: Sequence[Record]) -> tuple[Sequence[Any], list[int]]:
        """Return the decoded records and their timestamps."""
        kept = [ReadRecord(record) for record in records]
        allowed_ms = self._allowed()
        return kept, [self._read(*each, allowed_ms, self._node) for each in zip(records, kept, strict=True)]

    def _read(self, record: Record, kept: ReadRecord, allowed_ms: int, _node: str) -> int:
        try:
            key, value = record.key(), record.value()
            kept.key = None if key is None else self._deserialize_key(key)
            kept.value = None if value is None else self._deserialize_value(value)
            # dating_failed() finds by this variable whether an error comes from the extractor or from a
            # serde.
            consumed = ConsumedRecord(
                kept.key,
                kept.value,
                record.timestamp()[1],
                record.headers() or [],
                record.topic(),
                record.partition(),
                record.offset(),
            )
            timestamp_ms = self._extract(consumed)
        except Exception as error:
            kept.error = error
            return self._latest_ms
        if type(timestamp_ms) is int and allowed_ms < timestamp_ms <= _LARGEST_MS:
            if not self._timed:
                return timestamp_ms
            kept.error = TimestampAheadError(timestamp_ms, allowed_ms)
            return self._latest_ms
        if type(timestamp_ms) is int and 0 <= timestamp_ms <= _LARGEST_MS:
            self._latest_ms = max(self._latest_ms, timestamp_ms)
            return timestamp_ms
        kept.skipped = self._extractor.invalid == "skip"
        if self._extractor.invalid == "fail" or (self._latest_ms < 0 and not kept.skipped):
            kept.error = no_timestamp(timestamp_ms, self._extractor)
        return self._latest_ms


def dating_failed(error: BaseException) -> bool:
    """Return True if the record was decoded, and its extractor raised or returned no usable timestamp."""
    if isinstance(error, InvalidTimestampError):
        return True
    reading = ExtractedTimestamps._read.__code__
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code is reading and "consumed" in frame.f_locals for frame, _ in frames)


class InvalidTimestampError(ValueError):
    """A record has no usable timestamp; becomes a ``RecordError`` when its turn comes."""

    own_words = True  # the text holds no data of a user's


class TimestampAheadError(ValueError):
    """A record is dated too far ahead for a task that goes by stream time; the processing handler takes it.

    :param timestamp_ms: the record's timestamp, epoch milliseconds.
    :param allowed_ms: the latest timestamp that is allowed, epoch milliseconds.
    """

    own_words = True  # the text holds no data of a user's

    def __init__(self, timestamp_ms: int, allowed_ms: int) -> None:
        super().__init__(
            f"dated {iso_of(timestamp_ms)}, and max.timestamp.ahead.ms allows {iso_of(allowed_ms)} at the "
            "latest"
        )


def implausible_times(count: int, topics: Collection[str], latest_ms: Mapping[TopicPartition, int]) -> str:
    """Return a warning of processed records whose times are implausible.

    :param count: number of these records.
    :param topics: topics of these records.
    :param latest_ms: partition -> largest timestamp read, epoch milliseconds.
    """
    newest = [
        f"{tp} has come to {iso_of(last_ms)}, which as seconds is {iso_of(last_ms * 1_000)}"
        for tp, last_ms in sorted(latest_ms.items())
        if tp.topic in topics and last_ms in SECONDS
    ]
    return (
        f"implausible times in {counted(count, 'record')} of {first_few(sorted(topics))}: seconds, taken for "
        "milliseconds, or later than max.timestamp.ahead.ms allows, as microseconds are"
        f"{f' ({first_few(newest)})' if newest else ''}; windows, joins, backfills and the retention of "
        "topics go by times: mend the producer, or date the records at their source "
        '(timestamps.value_field(..., unit="s"), timestamps.extract(...))'
    )


def iso_of(epoch_ms: int) -> str:
    """Return a time in ISO 8601, in UTC; ``<epoch_ms> ms`` for a number beyond the years 1 to 9999."""
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, tz=UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # a record may carry any number
        return f"{epoch_ms} ms"


def shown_extractor(extractor: TimestampExtractor) -> str:
    """Return an extractor's name for messages: its id, and the name of a function of the user's."""
    if extractor.id != "extract":
        return extractor.id
    return f"extract({getattr(extractor.function, '__name__', type(extractor.function).__name__)})"


def no_timestamp(found: object, extractor: TimestampExtractor | None = None) -> InvalidTimestampError:
    """Describe a record that has no usable timestamp.

    :param found: the timestamp of the record, or the extractor's answer, of which only the type is shown: it
        may be part of a record's value.
    :param extractor: the extractor that gave the answer; None for the record's own timestamp.
    """
    if extractor is None:
        given = f"it carries {found}"
    elif type(found) is int:
        given = f"{shown_extractor(extractor)} gave a number {'below 0' if found < 0 else 'beyond 64 bits'}"
    else:
        given = f"{shown_extractor(extractor)} gave {'None' if found is None else type(found).__name__}"
        given += next((why for kind, why in _NO_MOMENT.items() if isinstance(found, kind)), "")
    if extractor is not None and extractor.invalid == "partition_time":
        return InvalidTimestampError(
            f"the record has no valid timestamp ({given}), and its partition none before it to take instead"
        )
    goes_on = "the same extractor with invalid='skip' or 'partition_time' goes on"
    if extractor is None:
        goes_on = (
            "timestamps=timestamps.record_time(invalid='skip' or 'partition_time') at its source goes on"
        )
    return InvalidTimestampError(
        f"the record has no valid timestamp ({given}, expected epoch milliseconds from 0 on); {goes_on}"
    )
