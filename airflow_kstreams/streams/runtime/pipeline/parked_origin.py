"""The consumed record that a parked one comes from, as nodes, errors and dead letters see it."""

from __future__ import annotations

import msgspec

from airflow_kstreams.streams.ports import Headers, Record
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.serde.retry_entries import ParkedRecord

#: Kafka's number for a record's own time.
_CREATE_TIME = 1


class ParkedOrigin:
    """A record, as it was consumed.

    :param parked: what was kept of it.
    """

    __slots__ = ("_parked", "_topic")

    def __init__(self, parked: ParkedRecord, topic: str) -> None:
        self._parked = parked
        self._topic = topic

    def topic(self) -> str:
        """Return the topic."""
        return self._topic

    def partition(self) -> int:
        """Return the partition."""
        return self._parked.partition

    def offset(self) -> int:
        """Return the offset."""
        return self._parked.offset

    def key(self) -> bytes | None:
        """Return the key's original bytes."""
        parked = self._parked
        return parked.key if parked.original is None else parked.original[0]

    def value(self) -> bytes | None:
        """Return the value's original bytes."""
        parked = self._parked
        return parked.value if parked.original is None else parked.original[1]

    def timestamp(self) -> tuple[int, int]:
        """Return the record's own timestamp."""
        return _CREATE_TIME, self._parked.consumed_ms

    def headers(self) -> Headers | None:
        """Return the headers."""
        return self._parked.headers

    def leader_epoch(self) -> int | None:
        """Return that it is not known."""
        return None


def origin_of_parked(parked: ParkedRecord) -> Record | None:
    """Return the consumed record of a parked one; None if none led to it."""
    return None if parked.topic is None else ParkedOrigin(parked, parked.topic)


def to_park(
    context: TaskRecordContext, key: bytes | None, value: bytes | None, *, ordinal: str
) -> ParkedRecord:
    """Describe the record being processed as one that is due at once.

    :param key: as the node got it, serialized; so is ``value``.
    """
    parked = ParkedRecord(
        key=key,
        value=value,
        timestamp_ms=context.timestamp_ms,
        ordinal=ordinal,
        failures=0,
        not_before_ms=0,
        replaced_headers=_copied(context.replaced_headers),
    )
    record = context.record
    if record is None:
        return parked
    original = (record.key(), record.value())
    return msgspec.structs.replace(
        parked,
        topic=record.topic(),
        partition=record.partition(),
        offset=record.offset(),
        consumed_ms=record.timestamp()[1],
        headers=_copied(record.headers()),
        original=None if original == (key, value) else original,
    )


def _copied(headers: Headers | None) -> Headers | None:
    return None if headers is None else [(name, value) for name, value in headers]
