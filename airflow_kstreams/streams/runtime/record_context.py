"""The record being processed, as operators and processors see it."""

from __future__ import annotations

from airflow_kstreams.streams.ports import Headers, Record


class TaskRecordContext:
    """One per task, updated in place for every record: an object per record would cost more than the
    processing.

    ``record`` is None while caches are flushed at a commit point.
    """

    __slots__ = ("record", "timestamp_ms")

    def __init__(self, *, timestamp_ms: int = 0) -> None:
        self.record: Record | None = None
        self.timestamp_ms = timestamp_ms

    def headers(self) -> Headers | None:
        """Return the headers of the record being processed, which its results inherit."""
        return None if self.record is None else self.record.headers()

    def where(self) -> str:
        """Return ``topic-partition@offset`` of the record being processed, for messages."""
        if self.record is None:
            return "no record (start, commit point or end of the task)"
        return f"{self.record.topic()}-{self.record.partition()}@{self.record.offset()}"
