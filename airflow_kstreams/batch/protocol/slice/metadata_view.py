"""Follows the metadata topic: each look reads only what is new."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.protocol.logs.log_read import OPEN_TRANSACTION_TIMEOUT_MS, LogFacts, read_log
from airflow_kstreams.batch.protocol.slice.metadata import READS, Folded, LiveRecords, RunState, torn
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, ReaderPort

#: A tombstone stays for ``delete.retention.ms``, a day unless set; one that a view has missed is found again.
_TRUSTED_SECONDS = 3_600


class MetadataView:
    """The records that one reader of a metadata topic has seen, so that the next look reads only new ones.

    Records below the last stable offset never change, and compaction removes only those that a later record
    of the same key has replaced. So the records read so far, and those that follow, give the state that a
    read from the beginning would give; unless the topic was created again, its log begins or ends elsewhere,
    or the last look is so long ago that a tombstone may have come and gone. Then everything is read again.

    :param clock: the machine's unless given.
    """

    def __init__(self, cluster: ClusterPort, application_id: str, *, clock: Clock | None = None) -> None:
        self._cluster = cluster
        self._app = application_id
        self._clock = clock or SystemClock()
        self._live = LiveRecords()
        self._log = LogFacts()
        self._position = 0
        self._looked = 0.0
        self._folded: tuple[Collection[str], Folded] | None = None

    def read(
        self,
        *,
        admin: AdminPort,
        reader: ReaderPort,
        topics: Collection[str] = (),
        wait_ms: int = OPEN_TRANSACTION_TIMEOUT_MS,
    ) -> Folded:
        """Read what is new, and fold it with what was there; as :func:`read_metadata`."""
        for _ in range(READS):
            self._read(admin, reader, wait_ms)
            if self._folded is None or self._folded[0] != topics:
                self._folded = (topics, self._live.fold(self._app, topics=topics))
            folded = replace(self._folded[1], log=self._log)
            if not folded.torn or (folded.state is RunState.FINISHED and folded.slice is not None):
                return folded
            self._forget()
        raise torn(self._app)

    def _read(self, admin: AdminPort, reader: ReaderPort, wait_ms: int) -> None:
        now = self._clock.monotonic_seconds()
        if now - self._looked > _TRUSTED_SECONDS:
            self._forget()
        self._looked = now
        for _ in range(2):
            content = read_log(
                self._cluster,
                ProtocolTopics(self._app).metadata,
                group_id=self._app,
                admin=admin,
                reader=reader,
                first=self._position,
                wait_ms=wait_ms,
                clock=self._clock,
            )
            same = (content.log.topic_id, content.log.start) == (self._log.topic_id, self._log.start)
            if not self._position or (same and content.log.end >= self._position):
                break
            self._forget()
        self._log = content.log
        if content.records:
            self._live.add(content.records)
            self._folded = None
        self._position = max(self._position, content.stable_end)

    def _forget(self) -> None:
        self._live, self._position, self._folded = LiveRecords(), 0, None
