"""Encodes the text that travels with every committed offset: the partition's times, the task's counters.

It is written in the same transaction as the results, so stream time and counters survive crashes and runs
exactly as far as the offsets do, and ``finish`` can rebuild the report of a task whose process has died.

It also counts the records that wait in retry topics for their next attempt, from one run to the next. A
record whose call failed for now is parked: its copy goes into its node's retry topic, a changelog of the
task, in the transaction that releases it. So a run finishes with records parked, and the next one must know
which tasks have some, though there is nothing else to read.

Rule: every commit of a task says beside its offsets what the task has parked, node by node. Begin repeats it
beside the offsets that it commits, and finish writes it into the ledger. A task owes the run its last
commit if it had records parked when the run began, or has retry topics and has committed in the run: neither
its driver nor finish takes it for done before, wherever its offsets are. Begin commits them at the stops of a
task with nothing to read; and a task that stays at its stops for parked records commits there meanwhile.

Invariant: the counts beside a task's offsets are as of the commit that wrote them, because it wrote both. So
they are newer than the ledger, which has what the last finished run, or a reset, left.

Crash argument: the counts and the records they count are in one transaction. Where they are not known,
because there was no room for them or an operator set the offsets of an unfinished run, the task counts as one
that may have some: it runs, finds none, and says so. A task that dies between a commit at its stops and its
last one still owes the last one, even if nothing is parked any more: the next attempt restores the parked
records, waits for them, and closes its processors. What they forward in close is in the last commit alone,
with the done notification. So it comes once, and readers of intermediate topics wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from airflow_kstreams.batch.protocol.offsets.task_report import (
    NOTHING_YET,
    PackedCounts,
    TaskMetrics,
    TaskReport,
)
from airflow_kstreams.streams.figures.record_counts import RecordCounts
from airflow_kstreams.streams.naming.topic_names import RETRY_ENDING, ProtocolTopics
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

    def of_partition(
        self, times: PartitionTimes, last: LastRecord, ruled_out: tuple[GrowthKind, ...] = ()
    ) -> OffsetMetadata:
        """Return a copy for the offset of one partition.

        :param times: of the partition.
        :param last: the record that the offset lies behind.
        :param ruled_out: kinds of growth that the partition's keys exclude.
        """
        known = last if last.known else LastRecord()
        return msgspec.structs.replace(
            self,
            partition_time_ms=times.partition_time_ms,
            latest_ms=times.latest_ms,
            stream_time_ms=times.stream_time_ms,
            last_offset=known.offset,
            last_epoch=known.epoch,
            ruled_out=ruled_out,
        )

    def due_at(self, moment_ms: int) -> bool:
        """Whether the task has, or may have, something to do on the way to a moment. One that has no stream
        time never has.
        """
        if not 0 <= self.stream_time_ms < moment_ms:
            return False
        return self.next_due_ms is None or NOTHING_DUE < self.next_due_ms <= moment_ms

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


#: Node -> partition group of the task, which is the partition of the retry topic -> how many records are
#: parked; None where that is not known. Without entries of 0.
Parked = Mapping[str, Mapping[int, int | None]]


def retry_topic(application_id: str, node: str) -> str:
    """Return the retry topic of a node."""
    return ProtocolTopics(application_id).internal(f"{node}{RETRY_ENDING}")


def retry_nodes(application_id: str, changelogs: Iterable[str]) -> list[str]:
    """Return the nodes whose retry topics are among the changelogs of a subtopology."""
    prefix = ProtocolTopics(application_id).internal("")
    return [
        topic.removeprefix(prefix).removesuffix(RETRY_ENDING)
        for topic in sorted(changelogs)
        if topic.endswith(RETRY_ENDING)
    ]


def may_park(sub: SubtopologyPlan) -> bool:
    """Whether tasks of a subtopology have retry topics."""
    return any(topic.endswith(RETRY_ENDING) for topic in sub.changelogs.values())


def owes_last_commit(
    run_id: str, committed: Iterable[OffsetMetadata], sub: SubtopologyPlan, *, moment_ms: int | None
) -> bool:
    """Whether a task whose offsets are at its stops must still run to make its last commit.

    :param committed: the metadata beside its offsets.
    :param sub: its subtopology.
    :param moment_ms: to where the end of the run brings its stream time; None if nowhere.
    """
    ours = [each for each in committed if each.run_id == run_id]
    if any(each.complete for each in ours):
        return False
    # Metadata without a task's name is begin's, with what earlier runs left.
    if moment_ms is not None and any(each.task_id or each.due_at(moment_ms) for each in ours):
        return True
    if not may_park(sub):
        return False
    # Only a task writes its name; None: not known.
    return any(each.task_id or each.parked is None or each.parked for each in ours)


def parked_total(parked: Parked) -> dict[str, int | None]:
    """Add up what is parked by node; None where a part is not known."""
    found: dict[str, int | None] = {}
    for node, by_group in parked.items():
        counts = list(by_group.values())
        known = [count for count in counts if count is not None]
        found[node] = sum(known) if len(known) == len(counts) else None
    return found


def parked_in_all(by_task: Iterable[Mapping[str, int | None]]) -> dict[str, int | None]:
    """Add up what tasks have parked, by node; None where a part is not known."""
    found: dict[str, int | None] = {}
    for by_node in by_task:
        for node, count in by_node.items():
            before = found.get(node, 0)
            found[node] = None if before is None or count is None else before + count
    return dict(sorted(found.items()))


def parked_text(by_node: Mapping[str, int | None]) -> str:
    """Return how many records are parked at which node, in words: ``3 at enrich``."""
    return ", ".join(
        f"{'an unknown number' if count is None else count} at {node}"
        for node, count in sorted(by_node.items())
    )


def sum_parked(by_node: Mapping[str, int | None]) -> int | None:
    """Return how many records are parked in all; None if that is not known."""
    known = [count for count in by_node.values() if count is not None]
    return sum(known) if len(known) == len(by_node) else None
