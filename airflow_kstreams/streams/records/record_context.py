"""Shows the record being processed to operators, processors and functions of users."""

from __future__ import annotations

from typing import Protocol

from airflow_kstreams.streams.hints.java_names import answers_java_names
from airflow_kstreams.streams.ports import Headers, Record
from airflow_kstreams.streams.type_variables import Given, Key, Value


class TaskRecordContext:
    """The record being processed; one object per task, updated in place for every record: an object per
    record would cost more than the processing.

    :param timestamp_ms: timestamp of the record being processed, epoch milliseconds.
    :ivar record: the consumed record; None while caches are flushed at a commit point and while timers call
        back.
    :ivar replaced_headers: headers that a processor gave its result; None for those of the consumed record.
    :ivar branch: ordinal of the call of a retrying node whose results are being processed; empty for none.
    :ivar emitting: name of the store whose cached entries are being emitted; empty for none. It counts only
        where there is no record.
    """

    __slots__ = ("branch", "emitting", "record", "replaced_headers", "timestamp_ms")

    def __init__(self, *, timestamp_ms: int = 0) -> None:
        self.record: Record | None = None
        self.timestamp_ms = timestamp_ms
        self.replaced_headers: Headers | None = None
        self.branch = ""
        self.emitting = ""

    def headers(self) -> Headers | None:
        """Return the headers of results: those of the consumed record, unless they are replaced."""
        if self.replaced_headers is not None:
            return self.replaced_headers
        return None if self.record is None else self.record.headers()

    @property
    def cached_from(self) -> str:
        """Name of the store whose cached entry is being processed in place of a record; empty for none."""
        return self.emitting if self.record is None else ""

    def where(self) -> str:
        """Return ``topic-partition@offset`` of the consumed record, for messages; without a record, a
        description of the cached entry or the step.
        """
        if self.cached_from:
            return f"a cached entry of store {self.cached_from!r}"
        if self.record is None:
            return "no record (start, punctuation, commit point or end of the task)"
        return f"{self.record.topic()}-{self.record.partition()}@{self.record.offset()}"


@answers_java_names
class RecordContext:
    """Topic, partition, offset, timestamp and headers of a record, for a function that declares a parameter
    ``context``.

    Topic, partition and offset are those of the consumed record. When a table emits at a commit point, or a
    punctuation runs, there is none: then ``topic`` is None, ``partition`` and ``offset`` are -1, ``headers``
    are empty, and ``timestamp_ms`` is the table entry's, or the punctuation's. The object does not change: a
    function may keep it.

    :ivar timestamp_ms: timestamp of the record being processed, epoch milliseconds.

    >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    >>> def placed(value, context):
    ...     return [context.topic, context.partition, context.offset, context.timestamp_ms, value]
    >>> builder.stream("in").map_values(placed).send_to("out")
    >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
    ...     driver.pipe_input("in", key="a", value=7, timestamp_ms=100)
    ...     driver.read_output("out")[0].value
    ['in', 0, 0, 100, 7]
    """

    __slots__ = ("_headers", "_record", "timestamp_ms")

    def __init__(self, record: Record | None, timestamp_ms: int, headers: Headers | None) -> None:
        self._record = record
        self.timestamp_ms = timestamp_ms
        self._headers = headers

    @property
    def topic(self) -> str | None:
        """Real name of the consumed record's topic; None without a record."""
        return None if self._record is None else self._record.topic()

    @property
    def partition(self) -> int:
        """Partition of the consumed record; -1 without a record."""
        return -1 if self._record is None else self._record.partition()

    @property
    def offset(self) -> int:
        """Offset of the consumed record; -1 without a record."""
        return -1 if self._record is None else self._record.offset()

    @property
    def headers(self) -> Headers:
        """Headers of the record being processed, in order; a list of the caller's own."""
        return [*(self._headers or ())]


class InContext(Protocol[Key, Value, Given]):
    """A function of a record's key and value that declares the record's context."""

    def __call__(self, key: Key, value: Value, /, *, context: RecordContext) -> Given:
        """Return the function's answer for the record."""
