"""Encodes the text that travels with every committed offset: the partition's times, the task's counters.

It is written in the same transaction as the results, so stream time and counters survive crashes and runs
exactly as far as the offsets do, and ``finish`` can rebuild the report of a task whose process has died.
"""

from __future__ import annotations

from typing import Any

import msgspec

from airflow_kstreams.batch.protocol.offsets.task_report import (
    NOTHING_YET,
    PackedCounts,
    TaskMetrics,
    TaskReport,
)
from airflow_kstreams.streams.figures.record_counts import RecordCounts
from airflow_kstreams.streams.partitioning.topic_growth import GrowthKind
from airflow_kstreams.streams.plan import SubtopologyPlan, decode_json
from airflow_kstreams.streams.records.record_queue import LastRecord, PartitionTimes

#: The broker's default ``offset.metadata.max.bytes``.
LIMIT_BYTES = 4096
VERSION = 1
#: The stream time at which a task that waits for none is due next.
NOTHING_DUE = -1


class OffsetMetadata(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The text of a commit beside the offset.

    :param run_id: the run whose task committed; empty when another program wrote the text.
    :param partition_time_ms: partition time, -1 when unknown; with the next two, ``PartitionTimes``.
    :param latest_ms: largest timestamp of the records before the offset.
    :param stream_time_ms: stream time of the topic in the task.
    :param task_id: the task, ``<subtopology>_<group>``.
    :param records_in: records the task consumed since the slice's start; the other counters as in
        ``TaskReport``.
    :param last_offset: of the last record before the committed offset, -1 when unknown; with the next one,
        ``LastRecord``.
    :param last_epoch: leader epoch under which that record was written.
    :param changelog_ends: ends of the task's changelogs, sorted by topic, right before the commit, behind all
        that it had written to them; empty when it has none, when they are not known, and when there was no
        room for them: the ledger has them once the run is finished.
    :param stop_set: name of the slice's stop set; empty when a continuous run committed.
    :param records_ahead: as in ``TaskReport``.
    :param counts: the counters by topic and node; None when there was no room for them.
    :param complete: whether this is the task's last commit for the slice.
    :param metrics: how fast the task was; None when there was no room for them.
    :param parked: node -> how many records the task has parked; None when there was no room for them.
    :param parked_due_ms: when the first of them is due, epoch milliseconds; None when none is, or that is not
        known.
    :param next_due_ms: stream time at which the task has something to do next, though no record comes;
        ``NOTHING_DUE`` when at none, None when that is not known, because the task may be another one since.
    :param ruled_out: kinds of growth of the partition's topic that its keys exclude.
    """

    run_id: str = msgspec.field(default="", name="run")
    partition_time_ms: int = msgspec.field(default=-1, name="time")
    latest_ms: int = msgspec.field(default=-1, name="latest")
    stream_time_ms: int = msgspec.field(default=-1, name="stream")
    task_id: str = msgspec.field(default="", name="task")
    records_in: int = msgspec.field(default=0, name="in")
    records_out: int = msgspec.field(default=0, name="out")
    records_dropped: int = msgspec.field(default=0, name="dropped")
    records_dead_lettered: int = msgspec.field(default=0, name="dead")
    records_skipped: int = msgspec.field(default=0, name="skipped")
    restored: int = 0
    commits: int = 0
    attempts: int = 1
    seconds: float = 0.0
    peak_memory_bytes: int = msgspec.field(default=0, name="memory")
    version: int = msgspec.field(default=0, name="v")
    last_offset: int = msgspec.field(default=-1, name="last")
    last_epoch: int = msgspec.field(default=-1, name="epoch")
    records_ahead: int = msgspec.field(default=0, name="ahead")
    changelog_ends: tuple[int, ...] = msgspec.field(default=(), name="ends")
    counts: PackedCounts | None = msgspec.field(default=None, name="record_counts")
    stop_set: str = msgspec.field(default="", name="slice")
    complete: bool = False
    metrics: TaskMetrics | None = None
    parked: dict[str, int] | None = None
    parked_due_ms: int | None = msgspec.field(default=None, name="due")
    next_due_ms: int | None = msgspec.field(default=None, name="next")
    ruled_out: tuple[GrowthKind, ...] = msgspec.field(default=(), name="not")

    def encode(self) -> str:
        """Return the text, at most 4096 bytes; run ids are checked to leave it room.

        What decides nothing is left out first: the figures of calls, the later half of their nodes at a time,
        then the other metrics. Then fewer nodes have counts by name; then the counts are left out or, where
        they take less than is missing, the ends of changelogs, and what is parked.
        """
        if (text := self._text()) is not None:
            return text
        if self.metrics is not None:
            return self._with(metrics=self.metrics.shorter()).encode()
        shorter = self.counts
        while shorter is not None:
            shorter = shorter.shorter()
            if shorter is not None and (text := self._with(counts=shorter)._text()) is not None:
                return text
        if (text := self._with(counts=None)._text()) is not None:
            return text
        if self.changelog_ends:
            return self._with(changelog_ends=()).encode()
        return self._with(parked=None).encode()

    def _text(self) -> str | None:
        """Return the text if it is short enough, or nothing can be left out."""
        text = msgspec.json.encode(self._with(version=VERSION))
        large = (self.metrics, self.counts, self.parked)
        final = all(each is None for each in large) and not self.changelog_ends
        return text.decode() if len(text) <= LIMIT_BYTES or final else None

    def _with(self, **changes: Any) -> OffsetMetadata:
        return msgspec.structs.replace(self, **changes)

    def at_times(self, times: PartitionTimes) -> OffsetMetadata:
        """Return a copy for a partition whose times are these."""
        return msgspec.structs.replace(
            self,
            partition_time_ms=times.partition_time_ms,
            latest_ms=times.latest_ms,
            stream_time_ms=times.stream_time_ms,
        )

    def behind(self, last: LastRecord) -> OffsetMetadata:
        """Return a copy for an offset behind this record."""
        known = last if last.known else LastRecord()
        return msgspec.structs.replace(self, last_offset=known.offset, last_epoch=known.epoch)

    def with_ruled_out(self, kinds: tuple[GrowthKind, ...]) -> OffsetMetadata:
        """Return a copy for an offset of a partition whose keys exclude these."""
        return msgspec.structs.replace(self, ruled_out=kinds)

    def with_parked(self, parked: dict[str, int] | None) -> OffsetMetadata:
        """Return a copy for an offset whose task has so many records parked."""
        return msgspec.structs.replace(self, parked=parked)

    def with_next_due(self, next_due_ms: int | None) -> OffsetMetadata:
        """Return a copy for an offset whose task has something to do at a stream time."""
        return msgspec.structs.replace(self, next_due_ms=next_due_ms)

    def due_at(self, moment_ms: int) -> bool:
        """Whether the task has, or may have, something to do on the way to a moment. One that has no stream
        time never has.
        """
        if not 0 <= self.stream_time_ms < moment_ms:
            return False
        return self.next_due_ms is None or NOTHING_DUE < self.next_due_ms <= moment_ms

    def with_changelogs_at(self, ends: tuple[int, ...]) -> OffsetMetadata:
        """Return a copy for an offset whose task's changelogs end there."""
        return msgspec.structs.replace(self, changelog_ends=ends)

    @property
    def last_record(self) -> LastRecord:
        """The last record before the offset."""
        return LastRecord(self.last_offset, self.last_epoch)

    @property
    def times(self) -> PartitionTimes:
        """The partition's times."""
        return PartitionTimes(self.partition_time_ms, self.latest_ms, self.stream_time_ms)

    @classmethod
    def decode(cls, text: str) -> OffsetMetadata:
        """Read the text; one that is not ours (another tool committed) gives the defaults."""
        if not text:
            return cls()
        try:
            decoded = decode_json(text, cls)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return cls()
        return decoded if decoded.version == VERSION else cls()

    @property
    def metrics_so_far(self) -> TaskMetrics | None:
        """The metrics that the next commit adds to: nothing when no task has committed for the slice yet."""
        return self.metrics if self.task_id else NOTHING_YET

    def counts_so_far(self, plan: SubtopologyPlan) -> RecordCounts | None:
        """Return the counts that the next commit goes on from: all 0 when no task has committed for the slice
        yet.

        :param plan: of the task's subtopology.
        """
        if not self.task_id:
            return RecordCounts()
        return None if self.counts is None else self.counts.unpacked(plan)

    def report(self) -> TaskReport:
        """Return the counters as the task's report."""
        return TaskReport(
            task_id=self.task_id,
            records_in=self.records_in,
            records_out=self.records_out,
            records_dropped=self.records_dropped,
            records_dead_lettered=self.records_dead_lettered,
            records_skipped=self.records_skipped,
            restored=self.restored,
            commits=self.commits,
            attempts=self.attempts,
            seconds=self.seconds,
            peak_memory_bytes=self.peak_memory_bytes,
            records_ahead=self.records_ahead,
            metrics=self.metrics,
            parked=dict(self.parked or {}),
            parked_due_ms=self.parked_due_ms,
        )
