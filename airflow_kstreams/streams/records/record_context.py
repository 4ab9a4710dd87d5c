"""The record being processed, as operators and processors see it."""

from __future__ import annotations

from airflow_kstreams.streams.ports import Headers, Record


class TaskRecordContext:
    """One per task, updated in place for every record: an object per record would cost more than the
    processing.

    ``record`` is None while caches are flushed at a commit point and while timers call back.
    ``replaced_headers`` are those a processor gave its result, None to inherit the record's. ``branch`` is
    the ordinal of the call of a retrying node that led here, empty for none.
    """

    __slots__ = ("branch", "record", "replaced_headers", "timestamp_ms")

    def __init__(self, *, timestamp_ms: int = 0) -> None:
        self.record: Record | None = None
        self.timestamp_ms = timestamp_ms
        self.replaced_headers: Headers | None = None
        self.branch = ""

    def headers(self) -> Headers | None:
        """Return the headers that results have: those of the record being processed, unless replaced."""
        if self.replaced_headers is not None:
            return self.replaced_headers
        return None if self.record is None else self.record.headers()

    def where(self) -> str:
        """Return ``topic-partition@offset`` of the record being processed, for messages."""
        if self.record is None:
            return "no record (start, punctuation, commit point or end of the task)"
        return f"{self.record.topic()}-{self.record.partition()}@{self.record.offset()}"
