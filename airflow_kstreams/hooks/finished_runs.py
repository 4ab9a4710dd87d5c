"""Follows an application's ledger from run to run, with a cursor that Kafka keeps.

The cursor is the committed offset of a group of the follower's own on the ledger topic, never the
application's group. It moves only when whoever follows says that a run is taken care of, so a process that
dies in between is told of that run again. A follower that comes for the first time starts behind the last
finished run, or before the first one if it wants to, and commits that at once: what finishes from then on is
never missed. While there is no ledger there is nothing to commit on; one that appears is told from its start.
"""

from __future__ import annotations

import time
from typing import Self

import msgspec

from airflow_kstreams.batch.ledger import ledger_topic
from airflow_kstreams.batch.model import RunSummary
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.ports import ClusterPort, CommittedOffset, ReaderPort, TopicPartition

_RESERVED = b"__"
#: A group's offsets expire when nothing is committed for days.
_RECOMMIT_SECONDS = 3_600.0
_MAX_RECORDS = 1_000


class FinishedRuns:
    """The finished runs of an application, in the order in which they finished; a context manager. One thread
    at a time.

    :param cluster: where the application runs.
    :param application_id: the application.
    :param name: of the follower; each name has a cursor of its own.
    :param from_start: whether a follower without a cursor is told of the runs that have finished already.
    """

    def __init__(
        self, cluster: ClusterPort, application_id: str, *, name: str, from_start: bool = False
    ) -> None:
        self._cluster = cluster
        self._partition = TopicPartition(ledger_topic(application_id), 0)
        self._group = f"{application_id}-finished-runs-{name}"
        self._from_start = from_start
        self._reader: ReaderPort | None = None
        self._cursor = 0
        self._committed_at = 0.0

    def has_ledger(self) -> bool:
        """Look whether the application has a ledger; it has none before its first run."""
        admin = self._cluster.admin()
        try:
            found = self._partition.topic in admin.describe_topics([self._partition.topic])
        finally:
            admin.close()
        self._from_start |= not found
        return found

    def __enter__(self) -> Self:
        """Find the cursor.

        :raises ConfigError: the application has no ledger yet.
        """
        admin = self._cluster.admin()
        try:
            if self._partition.topic not in admin.describe_topics([self._partition.topic]):
                raise ConfigError(
                    f"there is no ledger {self._partition.topic}: the application has not run yet",
                    fix="correct the application id, or run the application once",
                )
            end = admin.end_offsets([self._partition], isolation="read_committed")[self._partition]
            start = admin.start_offsets([self._partition])[self._partition]
        finally:
            admin.close()
        self._reader = self._cluster.reader(group_id=self._group)
        known = self._reader.committed([self._partition]).get(self._partition)
        if known is None:
            self._cursor = start if self._from_start else end
        else:
            # A ledger that was made anew begins anew.
            self._cursor = max(start, known.offset) if known.offset <= end else start
        self.take(self._cursor)
        self._reader.assign({self._partition: self._cursor})
        return self

    def __exit__(self, *_: object) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def poll(self, timeout_seconds: float) -> list[tuple[int, RunSummary]]:
        """Wait for runs that finished.

        :return: offset and summary of each, in order.
        """
        if time.monotonic() - self._committed_at > _RECOMMIT_SECONDS:
            self.take(self._cursor)
        fetched = self._open().poll(max_records=_MAX_RECORDS, timeout_seconds=timeout_seconds)
        return [
            (record.offset(), msgspec.json.decode(value, type=RunSummary))
            for record in fetched.records.get(self._partition, ())
            if (value := record.value()) is not None and not (record.key() or _RESERVED).startswith(_RESERVED)
        ]

    def take(self, next_offset: int) -> None:
        """Move the cursor: runs before this offset are taken care of."""
        self._open().commit({self._partition: CommittedOffset(next_offset)})
        self._cursor, self._committed_at = next_offset, time.monotonic()

    def rewind(self, offset: int) -> None:
        """Tell the runs from an offset on once more."""
        self._open().assign({self._partition: offset})

    def _open(self) -> ReaderPort:
        if self._reader is None:
            raise ValueError("the runs are followed only within the context")
        return self._reader
